"""On what grounds a mount's source is refused: what no sandbox may see of the host."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import string
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.engine import records
from reconciler.errors import BoxError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# What a message calls it, and the paths of it; `~` is every home of the user.
_GUARDED = {
    "the kernel's files": "/dev /proc /sys",
    "secrets of this host": """
        /etc/NetworkManager/system-connections /etc/gshadow /etc/gshadow- /etc/krb5.keytab
        /etc/kubernetes /etc/rancher /etc/shadow /etc/shadow- /etc/ssh /etc/ssl/private
        /etc/wireguard""",
    "container storage": """
        /run/containers /run/crun /run/docker /run/libpod /run/runc /var/lib/containerd
        /var/lib/containers /var/lib/docker /var/lib/incus /var/lib/kubelet /var/lib/libvirt
        /var/lib/lxc /var/lib/lxd /var/lib/machines /var/lib/rancher /var/snap/lxd
        ~/.local/share/containers ~/.local/share/docker ~/.local/share/libvirt ~/.lima""",
    "control sockets": """
        /run/acpid.socket /run/containerd /run/crio /run/cups /run/dbus /run/docker.sock
        /run/libvirt /run/podman /run/snapd.socket /run/snapd-snap.socket /run/systemd /run/udev
        /run/user /tmp/.ICE-unix /tmp/.X11-unix /var/run/docker.sock""",
    "your SSH and GPG keys": "~/.gnupg ~/.ssh",
    "your keyring": """
        ~/.config/op ~/.local/share/keyrings ~/.local/share/kwalletd ~/.password-store""",
    "your credentials": """
        ~/.Xauthority ~/.aliyun ~/.aws ~/.azure ~/.bluemix ~/.boto ~/.cargo/credentials
        ~/.cargo/credentials.toml ~/.config/containers ~/.config/doctl ~/.config/gcloud
        ~/.config/gh ~/.config/git/credentials ~/.config/glab-cli ~/.config/hcloud
        ~/.config/helm ~/.config/hub ~/.config/openstack ~/.config/rclone ~/.config/scw
        ~/.config/sops ~/.docker ~/.fly ~/.git-credentials ~/.kube ~/.minikube ~/.my.cnf
        ~/.netrc ~/.npmrc ~/.oci ~/.pgpass ~/.pypirc ~/.s3cfg ~/.terraform.d ~/.terraformrc
        ~/.vault-token""",
}
SECRET_NOUNS = frozenset({"your SSH and GPG keys", "your keyring", "your credentials"})
"""The folders of these are small enough to be known file by file."""

_OWN_HOME = "BOX_HOME"
_OWN_FOLDER = "the Boxfile's own folder"
_WATCHED = "a folder of Boxfiles"
OWN_NOUNS = frozenset({_OWN_HOME, _OWN_FOLDER, _WATCHED})
"""What of a host decides over sandboxes themselves."""

KERNEL_FILE_SYSTEMS = frozenset(
    """binder binfmt_misc bpf cgroup cgroup2 configfs cpuset debugfs devpts devtmpfs efivarfs
    fusectl hugetlbfs mqueue nfsd nsfs proc pstore resctrl rpc_pipefs securityfs selinuxfs smackfs
    sysfs tracefs xenfs""".split()
)
"""File systems of the kernel, of devices and of processes, wherever they are mounted (mount(8))."""

# Variables that name a file, a folder, several with colons between, or a socket's address.
_VARIABLES = """
    AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE AWS_WEB_IDENTITY_TOKEN_FILE AZURE_CONFIG_DIR
    BOTO_CONFIG CLOUDSDK_CONFIG CONTAINER_HOST DBUS_SESSION_BUS_ADDRESS
    DBUS_SYSTEM_BUS_ADDRESS DOCKER_CONFIG DOCKER_HOST GH_CONFIG_DIR GNUPGHOME
    GOOGLE_APPLICATION_CREDENTIALS KUBECONFIG NETRC NPM_CONFIG_USERCONFIG
    OCI_CLI_CONFIG_FILE OS_CLIENT_CONFIG_FILE PASSWORD_STORE_DIR PGPASSFILE RCLONE_CONFIG
    REGISTRY_AUTH_FILE SOPS_AGE_KEY_FILE SSH_AUTH_SOCK XAUTHORITY XDG_RUNTIME_DIR""".split()
# containers-storage.conf(5), and dockerd's daemon.json.
_STORAGE_FILES = (
    "/etc/containers/storage.conf",
    "/usr/share/containers/storage.conf",
    "/etc/docker/daemon.json",
    "~/.config/containers/storage.conf",
    "~/.config/docker/daemon.json",
)
_STORAGE = re.compile(
    r"""(?:^|[{,])\s*"?(?:data-root|graphroot|imagestore|rootless_storage_path|runroot)"?"""
    r"""\s*[:=]\s*["']([^"'\n]+)["']""",
    re.MULTILINE,
)
_STORAGE_BYTES = 1 << 20
_UNIX_ADDRESS = re.compile(r"unix:(?://|path=)?(/[^,;]+)")


@dataclass(frozen=True, slots=True)
class Grounds:
    """What the guarded paths follow from.

    `folders` are the watched ones that are known; of `homes`, the first is what `~` means.
    """

    box_home: Path
    folders: tuple[Path, ...]
    homes: tuple[Path, ...]
    environment: Mapping[str, str]


def gather(box_home: Path, environment: Mapping[str, str]) -> Grounds:
    """The grounds of this host, user and BOX_HOME, which need not exist. Raises nothing."""
    folders = set()
    for name in records.sandbox_names(box_home):
        # A record that cannot be read is told where it matters: not here.
        with contextlib.suppress(BoxError, OSError):
            record = records.sandbox_record(box_home, name)
            if record is not None and record.folder is not None:
                folders.add(Path(record.folder))
    return Grounds(box_home, tuple(sorted(folders)), _homes(environment), environment)


def _homes(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Of our account, of the environment, and of the account that called sudo."""
    found = [environment.get("HOME"), _account_home(str(os.getuid()))]
    found.append(_account_home(environment.get("SUDO_UID", "")))
    # An account without a home has / or none at all.
    return tuple(dict.fromkeys(Path(each) for each in found if each and each.startswith("/")))


def _account_home(uid: str) -> str | None:
    if not re.fullmatch("[0-9]{1,9}", uid):
        return None
    try:
        return pwd.getpwuid(int(uid)).pw_dir
    except KeyError:
        return None


def guarded_paths(grounds: Grounds, folder: Path) -> Iterator[tuple[str, Path]]:
    """Every path that no sandbox may see, existing or not, after what a message calls it.

    `folder` is that of the Boxfile that asks.
    """
    yield _OWN_HOME, grounds.box_home
    yield _OWN_FOLDER, folder
    for path in grounds.folders:
        yield _WATCHED, path
    for home in grounds.homes:
        yield _OWN_HOME, home / ".box"
    for noun, words in _GUARDED.items():
        for word in words.split():
            for path in _meant(word, grounds):
                yield noun, path
    for variable in _VARIABLES:
        for path in _named(grounds.environment.get(variable, ""), grounds):
            yield f"what {variable} names", path
    for path in _configured_storage(grounds):
        yield "container storage", path


def _meant(word: str, grounds: Grounds) -> Iterator[Path]:
    """The paths of a word, those that the XDG variables move included."""
    if not word.startswith("~/"):
        yield Path(word)
        return
    for home in grounds.homes:
        yield home / word[2:]
    for prefix, variable in (
        ("~/.config/", "XDG_CONFIG_HOME"),
        ("~/.local/share/", "XDG_DATA_HOME"),
    ):
        moved = grounds.environment.get(variable, "")
        if word.startswith(prefix) and moved.startswith("/"):
            yield Path(moved, word.removeprefix(prefix))


def _named(value: str, grounds: Grounds) -> Iterator[Path]:
    """The paths in a variable's value; a relative one has no meaning in another process."""
    if "unix:" in value:
        yield from map(Path, _UNIX_ADDRESS.findall(value))
    elif "://" not in value:
        for word in value.split(":"):
            if word.startswith(("/", "~/")):
                yield from _meant(word, grounds)


def _configured_storage(grounds: Grounds) -> Iterator[Path]:
    named = grounds.environment.get("CONTAINERS_STORAGE_CONF", "")
    words = [*_STORAGE_FILES, named] if named.startswith("/") else _STORAGE_FILES
    for file in (path for word in words for path in _meant(word, grounds)):
        with contextlib.suppress(OSError), file.open("rb") as content:
            text = content.read(_STORAGE_BYTES).decode(errors="replace")
            for value in _STORAGE.findall(text):
                yield from _expanded(value, grounds)


def _expanded(value: str, grounds: Grounds) -> Iterator[Path]:
    for home in grounds.homes or (Path("/"),):
        known = {**grounds.environment, "HOME": str(home), "UID": str(os.getuid())}
        text = string.Template(value).safe_substitute(known)
        if text.startswith("/"):
            yield Path(text)
