"""The Boxfile: what one sandbox shall be."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from reconciler.boxfile.fields import (
    MAX_ITEMS,
    BaseReference,
    DataSize,
    Env,
    FileContent,
    FileMode,
    GuestPath,
    HostPath,
    PackageManager,
    Packages,
    SeccompPath,
    Shell,
    ShellLines,
    UserName,
    Version,
)
from reconciler.boxfile.sizes import parse_size

MOST_MOUNTS = 64


def _default_on_drift(data: dict[str, Any]) -> Literal["alert", "stop"]:
    return "stop" if data.get("isolation") == "strict" else "alert"


def _without_default(schema: dict[str, Any]) -> None:
    del schema["default"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Mount(_Part):
    """A folder or file of the host that the guest sees, on top of /data."""

    host: HostPath = Field(
        description="The folder or file of the host: absolute, or below your home (~/...). "
        "Refused when it is, contains or lies in something that no sandbox may "
        "see: the Boxfiles, box's own files, container storage, control sockets, /proc, /sys, "
        "/dev, SSH and cloud credentials.",
        examples=["~/projects/demo"],
    )
    guest: GuestPath = Field(
        description="Where the guest sees it: an absolute path, not over or in /data, /dev, /proc "
        "or /sys.",
        examples=["/work"],
    )
    mode: Literal["ro", "rw"] = Field(
        default="ro",
        description="ro: the guest reads. rw: the guest can change and delete what is there. "
        "Under isolation strict only ro.",
        examples=["ro"],
    )
    follow_symlink: bool = Field(
        default=False,
        description="Follow symbolic links in `host`, once, when the VM is started. Otherwise a "
        "path with a link in it is refused.",
        examples=[True],
    )
    risky: bool = Field(
        default=False,
        description="Allow what hands over more than one should: / or your home as a whole, or a "
        "folder with sockets in it. What holds Boxfiles or box's own files is never handed over "
        "with mode rw.",
        examples=[True],
    )


class User(_Part):
    """A user of the guest, with a home directory of its own."""

    name: UserName = Field(description="The login name.", examples=["agent"])
    shell: Shell = Field(default="/bin/sh", description="The login shell.", examples=["/bin/bash"])
    sudo: bool = Field(
        default=False,
        description="Whether it may become root without a password; `sudo` must be installed.",
        examples=[True],
    )


class WriteFile(_Part):
    """A file of the root image, owned by root."""

    path: GuestPath = Field(
        description="Where it is: an absolute path of the guest. Folders on the way are made.",
        examples=["/etc/motd"],
    )
    content: FileContent = Field(
        description="What is in it, as it stands here.", examples=["Work in /data.\n"]
    )
    mode: FileMode = Field(
        default="0644",
        description="Its permissions: octal, in quotes.",
        examples=["0755"],
    )


class Blueprint(_Part):
    """Provisioning in the words of cloud-init, applied once when the image is built."""

    users: Annotated[list[User], Field(max_length=MAX_ITEMS)] = Field(
        default_factory=list, description="Users to make.", examples=[[{"name": "agent"}]]
    )
    write_files: Annotated[list[WriteFile], Field(max_length=MAX_ITEMS)] = Field(
        default_factory=list,
        description="Files to write.",
        examples=[[{"path": "/etc/motd", "content": "Work in /data.\n"}]],
    )
    runcmd: ShellLines = Field(
        default_factory=list,
        description="Shell commands, run as root after users and files are there and after `run`.",
        examples=[["chown agent /srv"]],
    )


class Boxfile(_Part):
    """One sandbox as declared. Its name is its file's: `NAME.Boxfile` or `NAME/Boxfile`."""

    version: Version = Field(default=1, description="Version of the Boxfile format.", examples=[1])
    base: BaseReference = Field(
        description="What the root image is made from: builtin:busybox (needs no download), "
        "oci-archive:PATH, or an image reference of local podman storage.",
        examples=["builtin:busybox", "oci-archive:images/debian.tar", "docker.io/library/alpine:3"],
    )
    backend: Literal["qemu", "firecracker", "krun", "podman"] = Field(
        default="qemu",
        description="What runs the microVM. This version of box has qemu.",
        examples=["qemu"],
    )
    isolation: Literal["standard", "strict"] = Field(
        default="standard",
        description="Whose host UID the VMM has: standard is your own, strict is one that owns "
        "nothing of yours and nothing of any other sandbox's.",
        examples=["strict"],
    )
    cpus: Annotated[int, Field(ge=1, le=16)] = Field(
        default=2, description="Number of virtual CPUs.", examples=[1]
    )
    ram_mib: Annotated[int, Field(ge=128, le=1 << 20)] = Field(
        default=2048,
        description="Memory of the guest in MiB. The VMM as a whole may use 256 MiB more.",
        examples=[512],
    )
    network: Literal["bridge", "none"] = Field(
        default="bridge",
        description="What the guest can reach. none: nothing. bridge: everything the host can "
        "reach, which backend qemu cannot do yet, so that there `network: none` must be written.",
        examples=["none"],
    )
    passt: bool = Field(
        default=False,
        description="Give the guest a network interface and a default route of its own, through "
        "passt; for the backends krun and podman.",
        examples=[True],
    )
    readonly: bool = Field(
        default=False,
        description="Whether the root cannot be written. Otherwise it can, and what was written is "
        "thrown away with the VM. /tmp and /data can always be written.",
        examples=[True],
    )
    timeout_seconds: Annotated[int, Field(ge=0, le=2_592_000)] = Field(
        default=0,
        description="How long one command may take; then all it started is killed and the exit "
        "code is 124. 0 is no limit, 2592000 (30 days) the most.",
        examples=[600],
    )
    warm: Annotated[int, Field(ge=0, le=8)] = Field(
        default=0,
        description="How many VMs wait, started and claimed by nobody, so that a run begins at "
        "once. Each holds its memory.",
        examples=[2],
    )
    warmup: ShellLines = Field(
        default_factory=list,
        description="Shell commands run once in each waiting VM.",
        examples=[["python3 -c 'import numpy'"]],
    )
    packages: Packages = Field(
        default_factory=list,
        description="Packages installed into the image when it is built, by the base's package "
        "manager; builtin:busybox has none. A version can be given in the manager's own way.",
        examples=[["git", "ripgrep"]],
    )
    run: ShellLines = Field(
        default_factory=list,
        description="Shell commands run as root when the image is built, each after the other.",
        examples=[["pip3 install --break-system-packages requests"]],
    )
    env: Env = Field(
        default_factory=dict,
        description="Environment variables of every command. Not for secrets: the sandbox reads "
        "them.",
        examples=[{"LANG": "C.UTF-8"}],
    )
    mounts: Annotated[list[Mount], Field(max_length=MOST_MOUNTS)] = Field(
        default_factory=list,
        description="Folders and files of the host that the guest sees, on top of /data.",
        examples=[[{"host": "~/projects/demo", "guest": "/work"}]],
    )
    blueprint: Blueprint = Field(
        default_factory=Blueprint,
        description="Users, files and commands, applied when the image is built.",
        examples=[{"users": [{"name": "agent"}]}],
    )
    pkgmgr: PackageManager = Field(
        default=None,
        description="The base's package manager. Without it: told by the name of the base, where "
        "that is a well-known image.",
        examples=["apt"],
        json_schema_extra=_without_default,
    )
    seccomp: SeccompPath = Field(
        default=None,
        description="A seccomp profile for the VMM (not for what runs in the guest) in place of "
        "box's own: a .json file in the OCI form, relative to the Boxfile.",
        examples=["profiles/vmm.json"],
        json_schema_extra=_without_default,
    )
    data_size: DataSize = Field(
        default=None,
        description="Size of /data, which outlives the VM: a whole number with K, M, G or T, "
        "16M to 16T. Without it: 8G on backends with a disk, no limit on the others.",
        examples=["10G"],
        json_schema_extra=_without_default,
    )
    state: Literal["running", "stopped", "built"] = Field(
        default="running",
        description="running: a VM is kept up. stopped: none is. built: none is, but everything to "
        "start one in an instant is ready.",
        examples=["stopped"],
    )
    on_drift: Literal["alert", "freeze", "stop"] = Field(
        default_factory=_default_on_drift,
        description="What happens when the VMM is found less confined than declared: alert records "
        "and shows it, freeze also halts the VM and keeps it for a look, stop also stops it. "
        "Without it: stop for strict, alert for standard.",
        examples=["stop"],
    )
    protect: bool = Field(
        default=False,
        description="Refuse to destroy the sandbox, by command or by removing its file.",
        examples=[True],
    )

    @property
    def data_size_bytes(self) -> int | None:
        """`data_size` in bytes; None when the Boxfile does not say."""
        return None if self.data_size is None else parse_size(self.data_size)
