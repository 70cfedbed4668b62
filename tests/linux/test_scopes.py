from __future__ import annotations

import threading
from pathlib import Path

import pytest

from reconciler.linux import scopes

# The ways to be logged in: ssh or a console, a terminal of the desktop, su from root's login.
SESSION = b"0::/user.slice/user-1000.slice/session-1.scope\n"
TERMINAL = b"0::/user.slice/user-1000.slice/user@1000.service/app.slice/terminal-7.scope\n"
ROOTS = b"0::/user.slice/user-0.slice/session-3.scope\n"
HYBRID = b"1:name=systemd:/user.slice/user-1000.slice/user@1000.service/x.scope\n0::/\n"


@pytest.mark.parametrize(
    ("uid", "cgroup", "managed"),
    [
        (1000, TERMINAL, True),
        (1000, SESSION, False),
        (1000, ROOTS, False),
        (1000, HYBRID, False),
        (100, TERMINAL, False),
        (0, SESSION, True),
    ],
)
def test_who_is_below_their_own_systemd(uid: int, cgroup: bytes, *, managed: bool) -> None:
    assert scopes.is_managed(uid, cgroup) is managed


def test_the_way_to_systemd_follows_from_the_uid_alone() -> None:
    assert scopes.manager_environment(0) == {}
    assert scopes.manager_environment(1000) == {
        "XDG_RUNTIME_DIR": "/run/user/1000",
        "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/1000/bus",
    }


def test_a_scope_is_left_to_systemd_and_other_cgroups_are_not_waited_for(tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.mkdir()
    scopes.settle("/box/held", [held])
    assert held.exists()
    remover = threading.Timer(0.1, held.rmdir)
    remover.start()
    scopes.settle("/user.slice/box-held.scope", [held, tmp_path / "never"])
    assert not held.exists()
    remover.join()
