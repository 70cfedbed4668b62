"""The entry point: commands that people wait for take a short way, all others the typer app."""

from __future__ import annotations

import gc
import os
import signal
import sys

from reconciler.errors import BoxError
from reconciler.surfaces.cli.terminal import tell

_FAST = frozenset({"cp", "exec", "ps", "run", "shell", "up", "down"})


def main() -> int:
    """Run the command line in sys.argv and return the process's exit status."""
    _open_missing_streams()
    try:
        status = _run(sys.argv[1:])
        # Here rather than at the interpreter's exit, where an error of it has no good answer.
        sys.stdout.flush()
    except BoxError as error:
        tell(f"box: {error}")
        return error.exit_code
    except KeyboardInterrupt as error:
        tell("box: interrupted")
        return 128 + (error.args[0] if error.args else signal.SIGINT)
    except BrokenPipeError:
        # Whoever read our output has gone; say nothing more, on exit neither.
        _to_nowhere(sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        tell(f"box: {place}{error.strerror or error}")
        _to_nowhere(sys.stdout.fileno())
        return BoxError.exit_code
    return status


def is_short(arguments: list[str]) -> bool:
    """Whether the command takes the short way."""
    return bool(arguments) and arguments[0] in _FAST


def _run(arguments: list[str]) -> int:
    if is_short(arguments):
        from reconciler.surfaces.cli import vm

        _begin()
        return vm.main(arguments)
    from reconciler.surfaces.cli import app

    _begin()
    return app.main(arguments)


def _begin() -> None:
    """All modules are loaded: nothing of them will be garbage, so none is looked for there."""
    gc.freeze()
    gc.enable()
    _raise_on_interrupt()


def _raise_on_interrupt() -> None:
    """From here on Ctrl-C unwinds; before, while modules are loaded, it just ends us."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _open_missing_streams() -> None:
    """Put /dev/null where a standard stream was closed by our starter (`>&-`).

    Else the next file that is opened, a disk or a socket, would be our standard output.
    """
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            _to_nowhere(fd)
            setattr(sys, name, os.fdopen(fd, "r" if fd == 0 else "w", closefd=False))


def _to_nowhere(fd: int) -> None:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    if null != fd:
        os.dup2(null, fd)
        os.close(null)
