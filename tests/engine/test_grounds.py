from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from reconciler.engine import records
from reconciler.engine.grounds import Grounds, gather, guarded_paths
from tests.engine import specs

HOME = Path("/home/me")


def guarded(
    environment: dict[str, str] | None = None, homes: tuple[Path, ...] = (HOME,)
) -> dict[Path, str]:
    grounds = Grounds(Path("/state"), (Path("/watched"),), homes, environment or {})
    return {path: noun for noun, path in guarded_paths(grounds, Path("/boxes"))}


@pytest.mark.parametrize(
    ("path", "noun"),
    [
        ("/state", "BOX_HOME"),
        ("/home/me/.box", "BOX_HOME"),
        ("/boxes", "the Boxfile's own folder"),
        ("/watched", "a folder of Boxfiles"),
        ("/proc", "the kernel's files"),
        ("/var/lib/containers", "container storage"),
        ("/run/docker.sock", "control sockets"),
        ("/home/me/.ssh", "your SSH and GPG keys"),
        ("/home/me/.aws", "your credentials"),
        ("/home/me/.local/share/containers", "container storage"),
    ],
)
def test_what_is_guarded_has_a_name(path: str, noun: str) -> None:
    assert guarded()[Path(path)] == noun


def test_every_home_is_guarded() -> None:
    both = guarded(homes=(HOME, Path("/root")))
    assert both.keys() >= {HOME / ".ssh", Path("/root/.ssh"), HOME / ".box", Path("/root/.box")}
    assert not any("~" in str(path) for path in both)


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("KUBECONFIG", "/k/one:/k/two", {"/k/one", "/k/two"}),
        ("KUBECONFIG", "~/k:relative:", {"/home/me/k"}),
        ("SSH_AUTH_SOCK", "/tmp/ssh-1/agent.2", {"/tmp/ssh-1/agent.2"}),
        ("DOCKER_HOST", "unix:///d/x.sock", {"/d/x.sock"}),
        ("DOCKER_HOST", "tcp://10.0.0.1:2375", set()),
        ("CONTAINER_HOST", "ssh://me@host/run/x.sock", set()),
        ("CONTAINER_HOST", "unix:/run/p/x.sock", {"/run/p/x.sock"}),
        ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/b/one,guid=1;unix:path=/b/2", {"/b/one", "/b/2"}),
        ("DBUS_SESSION_BUS_ADDRESS", "unix:abstract=/tmp/dbus", set()),
        ("DBUS_SESSION_BUS_ADDRESS", "disabled:", set()),
        ("XDG_RUNTIME_DIR", "", set()),
    ],
)
def test_what_a_variable_names_is_guarded(variable: str, value: str, expected: set[str]) -> None:
    found = guarded({variable: value}).items()
    assert {str(path) for path, noun in found if noun == f"what {variable} names"} == expected


@pytest.mark.parametrize(
    "variable",
    """AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE AZURE_CONFIG_DIR CLOUDSDK_CONFIG DOCKER_CONFIG
    GNUPGHOME GOOGLE_APPLICATION_CREDENTIALS KUBECONFIG SSH_AUTH_SOCK XDG_RUNTIME_DIR""".split(),
)
def test_the_variables_of_keys_and_sockets_are_known(variable: str) -> None:
    assert guarded({variable: "/x"})[Path("/x")] == f"what {variable} names"


def test_folders_that_xdg_moves_are_guarded_in_both_places() -> None:
    moved = guarded({"XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "/d"})
    assert moved[Path("/c/gcloud")] == moved[HOME / ".config/gcloud"] == "your credentials"
    assert moved[Path("/d/keyrings")] == moved[HOME / ".local/share/keyrings"] == "your keyring"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[storage]\ngraphroot = "/g"\n  runroot="/r"\n', {"/g", "/r"}),
        ('#graphroot = "/g"\n', set()),
        ('rootless_storage_path = "$HOME/s"', {"/home/me/s"}),
        ("graphroot = '/s/${UID}/$UNKNOWN'", {f"/s/{os.getuid()}/$UNKNOWN"}),
        ('graphroot = "relative"', set()),
        ('{"debug": true, "data-root": "/docker"}', {"/docker"}),
        ("graphroot = [[[", set()),
        ("", set()),
    ],
)
def test_storage_that_a_configuration_moves_is_guarded(
    tmp_path: Path, text: str, expected: set[str]
) -> None:
    file = tmp_path / ".config/containers/storage.conf"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    named = tmp_path / "named.conf"
    named.write_text(text)
    before = guarded(homes=(HOME, tmp_path / "nobody")).keys()
    by_home = guarded(homes=(HOME, tmp_path)).items()
    by_variable = guarded({"CONTAINERS_STORAGE_CONF": str(named)}).items()
    for found in (by_home, by_variable):
        new = {path for path, noun in found if noun == "container storage"} - before
        assert {str(path) for path in new if tmp_path not in path.parents} == expected


def test_watched_folders_come_from_the_records_that_can_be_read(home: Path) -> None:
    records.keep_sandbox(home, specs.RECORD)
    (home / "sandboxes/broken").mkdir()
    (home / "sandboxes/broken/record.json").write_text("{")
    assert gather(home, {}).folders == (Path("/folder"),)


def test_a_home_that_does_not_exist_watches_nothing(tmp_path: Path) -> None:
    assert gather(tmp_path / "missing", {}).folders == ()


def test_the_homes_are_the_accounts_the_environments_and_the_callers_of_sudo() -> None:
    own = Path(pwd.getpwuid(os.getuid()).pw_dir)
    other = next(each for each in pwd.getpwall() if Path(each.pw_dir) != own)
    environment = {"HOME": "/elsewhere", "SUDO_UID": str(other.pw_uid)}
    assert gather(Path("/state"), environment).homes == (
        Path("/elsewhere"),
        own,
        Path(other.pw_dir),
    )


@pytest.mark.parametrize("environment", [{"HOME": ""}, {"HOME": "x"}, {"SUDO_UID": "x"}, {}])
def test_a_variable_that_means_no_home_is_passed_over(environment: dict[str, str]) -> None:
    assert gather(Path("/state"), environment).homes == (Path(pwd.getpwuid(os.getuid()).pw_dir),)


def test_an_unknown_account_has_no_home() -> None:
    unknown = max(each.pw_uid for each in pwd.getpwall() if each.pw_uid < 900_000_000) + 1
    assert len(gather(Path("/state"), {"SUDO_UID": str(unknown)}).homes) == 1
