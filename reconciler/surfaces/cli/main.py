"""The entry point: commands that people wait for take a short way, all others the typer app."""

from __future__ import annotations

import os
import sys

from reconciler.errors import BoxError
from reconciler.surfaces.cli.terminal import tell

_FAST = frozenset({"exec", "run", "up", "down"})
_INTERRUPTED = 130


def main() -> int:
    """Run the command line in sys.argv and return the process's exit status."""
    arguments = sys.argv[1:]
    try:
        if arguments and arguments[0] in _FAST and not _asks_help(arguments):
            from reconciler.surfaces.cli import vm

            return vm.main(arguments)
        from reconciler.surfaces.cli import app

        return app.main(arguments)
    except BoxError as error:
        tell(f"box: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        tell("box: interrupted")
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; say nothing more, on exit neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        tell(f"box: {place}{error.strerror or error}")
        return BoxError.exit_code


def _asks_help(arguments: list[str]) -> bool:
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--help" in own or "-h" in own
