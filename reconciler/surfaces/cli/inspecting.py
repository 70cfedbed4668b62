"""`inspect`: what confines a sandbox's VMMs, read back now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from reconciler.boxfile.names import check_name
from reconciler.engine import observe, proof
from reconciler.engine.home import open_home
from reconciler.engine.security_report import SecurityReport, report_of
from reconciler.errors import NotFound
from reconciler.surfaces import declared, render
from reconciler.surfaces.cli.options import Usage
from reconciler.surfaces.security_report import comparing, document, text

_BARE = "--security-report"
_STATUS = (
    "Exit status: 0 when every fact is as promised or does not apply here, and when nothing runs "
    "that could be read; 1 when one differs or cannot be read; with --diff 2 when the two differ "
    "and neither has failed."
)

Name = Annotated[str, typer.Argument(help="The sandbox: its Boxfile's name.")]
Output = Annotated[
    Literal["text", "json"], typer.Option("--output", "-o", help="How to print: text or json.")
]
Report = Annotated[
    Literal["text", "json"] | None,
    typer.Option(
        _BARE,
        metavar="[=text|json]",
        help="All that the sandbox's VMMs can and cannot touch, and whether that is so.",
    ),
]
Other = Annotated[
    str | None,
    typer.Option("--diff", metavar="OTHER", help="Only what differs from that sandbox's report."),
]


class BareReport(TyperCommand):
    """A command whose --security-report may stand without a value, which then is `text`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's own click
        """Give the bare option its value."""
        return super().parse_args(ctx, [f"{_BARE}=text" if a == _BARE else a for a in args])


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command(cls=BareReport, epilog=_STATUS)(inspect)


def inspect(
    name: Name,
    output: Output = "text",
    security_report: Report = None,
    diff: Other = None,
) -> int:
    """Read back what confines NAME's running VMM, fact by fact; exit 1 when one is not so."""
    if security_report is None and diff is None:
        return _facts(open_home(), name, output)
    if diff == name:
        raise Usage("--diff is for two sandboxes.", hint="box inspect --help")
    form: render.Format = "json" if "json" in (output, security_report) else "text"
    home = open_home()
    one = _report(home, name)
    if diff is None:
        if form == "json":
            render.as_json(document.document(one))
        else:
            text.show(one)
        return 1 if one.failed else 0
    return comparing.show(comparing.compare(one, _report(home, diff)), form)


def _report(home: Path, name: str) -> SecurityReport:
    check_name(name)
    return report_of(home, name, lambda: declared.sandbox(home, name)[0])


def _facts(home: Path, name: str, output: render.Format) -> int:
    seen = observe.observe(home, name)
    if seen.record is None:
        raise NotFound(f"There is no sandbox {name}.", hint="box ls")
    # A record outlives its VM: what it says of a process is no process's any more.
    who = seen.vm.identity if seen.vm and seen.running else None
    value: dict[str, Any] = {
        "name": name,
        "spec": seen.record.spec.to_json(),
        "running": seen.running,
        "accelerator": seen.vm.accelerator if seen.vm else None,
        "pid": who.pid if who else None,
        "kernel_proof": proof.proof_of(home, seen.record.spec.backend, seen.vm.fingerprint)
        if seen.vm
        else None,
        "frozen": asdict(seen.frozen) if seen.frozen else None,
        "waiting": _waiting(seen.waiting),
        "lost": list(seen.broken),
        "facts": [vars(fact) for fact in seen.facts],
    }
    render.inspection(value, output)
    waiting = any(each.differences for each in seen.waiting)
    return 1 if seen.differences or waiting or seen.broken else 0


def _waiting(pool: Iterable[observe.Waiting]) -> list[dict[str, Any]]:
    """The VMs that wait; a ready one was read just now, `fault` tells what is not so."""
    return [
        {
            "vm": each.vm.vm,
            "pid": each.vm.identity.pid if each.vm.identity else None,
            "read": each.vm.ready,
            "fault": each.fault or None,
        }
        for each in pool
    ]
