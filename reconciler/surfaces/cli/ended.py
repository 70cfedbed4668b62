"""A command's end as `-o json` tells it: one object, as schemas/exec-result.schema.json has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconciler.engine import commands

if TYPE_CHECKING:
    from reconciler.guest.capture import Capture
    from reconciler.guest.protocol import Exit


def as_value(end: Exit, stdout: Capture, stderr: Capture, duration_ms: int) -> dict[str, Any]:
    """How the command ended and what it wrote."""
    truncated = end.truncated or bool(stdout.gap) or bool(stderr.gap)
    return {
        "exit_code": commands.exit_code(end),
        "signal": commands.signal_name(end),
        "timed_out": end.timed_out,
        "duration_ms": duration_ms,
        "truncated": truncated,
        **_stream("stdout", stdout),
        **_stream("stderr", stderr),
    }


def _stream(name: str, capture: Capture) -> dict[str, Any]:
    kept = capture.kept()
    return {
        name: kept.text,
        f"{name}_encoding": kept.encoding,
        f"{name}_bytes": capture.total,
        f"{name}_gap": kept.gap and kept.gap._asdict(),
    }
