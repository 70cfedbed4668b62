"""`quickstart` and `setup`: from a bare host to running sandboxes."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

import reconciler
from reconciler.engine import slots
from reconciler.engine.home import open_home
from reconciler.engine.host import needs
from reconciler.engine.host.need import Account, Need, account_of, own_account
from reconciler.engine.host.setup import set_up_home, set_up_host
from reconciler.errors import Missing, Refused
from reconciler.linux import process
from reconciler.surfaces import declared
from reconciler.surfaces.cli import first_run
from reconciler.surfaces.cli.endings import unwinding
from reconciler.surfaces.cli.terminal import say, tell

_SETUP_SLOTS = 16
_INTERRUPTED = (128 + signal.SIGINT, -signal.SIGINT)
_SUDO_ENVIRONMENT = ("TERM", "DISPLAY", "XAUTHORITY", "SUDO_ASKPASS")

Folder = Annotated[
    Path | None, typer.Argument(metavar="[DIR]", help="The folder of Boxfiles: desired/.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")]
User = Annotated[str, typer.Option("--user", help="Whose sandboxes: a name or a UID.")]
Slots = Annotated[
    int | None, typer.Option("--slots", min=0, max=4096, help="Room for so many strict sandboxes.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command()(quickstart)
    app.command()(setup)


def quickstart(folder: Folder = None, *, yes: Yes = False) -> int:
    """Install what is missing, converge DIR, run a command in a sandbox, show what confines it.

    Asks before it installs anything. Broken off, it goes on where it was; run again, it only
    converges.
    """
    with unwinding():
        home = open_home()
        wanted = _folder(folder)
        account = own_account(os.getuid(), os.getgid())
        _bring_what_is_missing(home, wanted, account, yes=yes)
        return first_run.converge_and_show(home, wanted)


def setup(user: User, *, slot_count: Slots = None) -> int:
    """As root: bring all that takes root for USER's sandboxes. Twice is the same as once.

    Packages, subordinate IDs and, where no systemd does it, a cgroup (gone with the next boot).
    """
    # The checkout may be USER's: no compiled modules of root's are left in it.
    sys.dont_write_bytecode = True
    account = account_of(user)
    wanted = slot_count if slot_count is not None else _SETUP_SLOTS
    with unwinding():
        met = set_up_host(account, slots=wanted, progress=tell_progress)
    for need in met:
        say(f"brought {need.what}")
    say(f"{account.name} has all that takes root")
    return 0


def tell_progress(text: str) -> None:
    """Say what is going on."""
    tell(f"quickstart: {text}")


def _default_slots(account: Account) -> int:
    return _SETUP_SLOTS if account.uid == 0 else 1


def _folder(given: Path | None) -> Path:
    folder = (given or declared.default_folder()).absolute()
    if not folder.is_dir():
        raise Missing(
            f"There is no folder {folder}.",
            hint="name the folder that holds your Boxfiles: box quickstart DIR",
        )
    return folder


def _bring_what_is_missing(home: Path, folder: Path, account: Account, *, yes: bool) -> None:
    new = [n for n in first_run.strict_sandboxes(folder) if not slots.holds(home, n)]
    held = [owner for owner in slots.held() if owner.exists()]
    wanted = max(len(new) + len(held), _default_slots(account))
    roots = (*needs.list_needs(home), *needs.host_needs(account, slots=wanted))
    own = needs.home_needs(account, home)
    if not roots and not own:
        return
    _show((*roots, *own), account)
    setup_command = ["setup", "--user", str(account.uid), "--slots", str(wanted)]
    sudo = process.find_program("sudo")
    if roots and account.uid != 0 and sudo is None:
        raise Missing(
            "Some of this takes root, and there is no sudo here.",
            details="\n".join(_as_root(roots)),
            hint=f"have root run these, or: {shlex.join([process.own_program(), *setup_command])}",
        )
    _agree(yes=yes, folder=folder)
    if roots and account.uid == 0:
        set_up_host(account, slots=wanted, progress=tell_progress)
    elif roots:
        ours = [sys.executable, "-I", "-B", "-m", reconciler.__name__, *setup_command]
        _sudo([str(sudo), "--", *ours])
    set_up_home(account, home, tell_progress)


def _show(missing: Iterable[Need], account: Account) -> None:
    tell("box: missing here:")
    for need in missing:
        tell(f"  {need.what}")
        tell(f"    {need.why}")
        for command in need.fix:
            root = "sudo " if need.needs_root and account.uid != 0 else ""
            tell(f"    $ {root}{shlex.join(pasteable(command))}")


def _as_root(roots: Iterable[Need]) -> list[str]:
    return [shlex.join(pasteable(command)) for need in roots for command in need.fix]


def pasteable(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command as it can be pasted."""
    return (process.own_program(), *command[1:]) if command[0] == "box" else command


def _agree(*, yes: bool, folder: Path) -> None:
    if yes:
        return
    if not (os.isatty(0) and os.isatty(2)):
        raise Refused(
            "Nothing was changed: there is no terminal to ask on.",
            hint=shlex.join([process.own_program(), "quickstart", "--yes", str(folder)]),
        )
    sys.stderr.write("Bring all of it now? [Y/n] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if answer.strip().lower() not in ({"", "y", "yes"} if answer else set()):
        raise Refused("Nothing was changed.")


def _sudo(command: list[str]) -> None:
    status = process.run_on_terminal(command, env=process.inherited(*_SUDO_ENVIRONMENT))
    if status in _INTERRUPTED:
        # On a terminal of sudo's own, Ctrl-C never came to us.
        raise KeyboardInterrupt
    if status != 0:
        raise Missing(
            "What takes root could not be brought.",
            details=f"$ {shlex.join(command)}\nended with status {status}",
            hint="run that as root, then quickstart again",
        )
