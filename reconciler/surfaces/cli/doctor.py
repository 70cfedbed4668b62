"""`doctor`: every part of the host tried, and what to do about those that do not work.

What tries it is imported when it is asked for: no other command has use for it.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from reconciler.engine.home import open_home
from reconciler.engine.host.need import Account, own_account
from reconciler.surfaces.cli.endings import unwinding
from reconciler.surfaces.cli.quickstart import pasteable
from reconciler.surfaces.cli.terminal import tell

if TYPE_CHECKING:
    from reconciler.engine.host.check import Check

Output = Annotated[
    Literal["text", "json"], typer.Option("--output", "-o", help="How to print: text or json.")
]
Fix = Annotated[
    bool,
    typer.Option("--fix", help="Mend what is safe to mend, then look again. Twice is once."),
]
Boot = Annotated[
    bool,
    typer.Option("--boot", help="Boot a guest, on KVM if it works, though that is known already."),
]


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(doctor)


def doctor(output: Output = "text", *, fix: Fix = False, boot: Boot = False) -> int:
    """Try every part that sandboxes rest on, as you, and say how to mend each that fails.

    A container is started as a VMM's is, limits are written and read back, an
    image is made; nothing of it is left. The first time after a boot of the host
    a guest is booted too, to see whether KVM works.

    FAILED: sandboxes do not start, or not confined as promised. finding: the host
    is weaker than it could be, and no promise is broken. Each has one fix.

    --fix brings subordinate IDs and a cgroup where they are missing: as root it
    does, otherwise it prints what root has to run. It installs nothing (that is
    box quickstart, which asks) and changes no setting.

    Exit status: 1 when something failed, with --fix when something still does;
    else 0. docs/doctor.md says of each check what it means.
    """
    from reconciler.engine.host.checks import check_host
    from reconciler.surfaces.doctor.document import works

    with unwinding():
        home = open_home()
        checks = check_host(home, _progress, boot=boot)
        mended: tuple[str, ...] = ()
        if fix:
            mended = _mend(checks, own_account(os.getuid(), os.getgid()))
            if mended:
                checks = check_host(home, _progress, boot=boot)
    _show(checks, mended, output)
    return 0 if works(checks) else 1


def _show(
    checks: tuple[Check, ...], mended: tuple[str, ...], output: Literal["text", "json"]
) -> None:
    from reconciler.surfaces import render
    from reconciler.surfaces.doctor import document, text
    from reconciler.surfaces.security_report.lines import draw

    if output == "json":
        render.as_json(document.document(checks, mended))
    else:
        draw(text.lines(checks), render.console())


def _mend(checks: tuple[Check, ...], account: Account) -> tuple[str, ...]:
    from reconciler.engine.host import mending

    needs = mending.mendable(checks, account)
    root = account.uid == 0
    for need in needs:
        tell(f"doctor: {'bringing' if root else 'root has to bring'} {need.what}: {need.why}")
        for command in need.fix:
            tell(f"  $ {'' if root else 'sudo '}{shlex.join(pasteable(command))}")
    if not needs:
        tell("doctor: nothing here is safe to mend unasked")
    return tuple(need.what for need in mending.mend(checks, account, _progress))


def _progress(told: str) -> None:
    tell(f"doctor: {told}")
