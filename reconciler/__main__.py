"""`python -m reconciler`: the command line of a checkout and of an installed package."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys


def _find_packages() -> None:
    """Do what `site`, with which a checkout's launcher spends no time (-S), would do for us."""
    checkout = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    sys.path.insert(0, checkout)
    sys.path.append(f"{checkout}/.venv/lib/{version}/site-packages")


def run() -> int:
    """Run the command line in sys.argv. Commands that people wait for end the process themselves.

    Nothing is begun before `main`, so until then Ctrl-C may simply end us; `main` makes it an
    exception. Modules leave no garbage worth looking for while they are loaded, and what is
    taken apart at an interpreter's orderly exit takes a third of a short command's time.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()
    from reconciler.surfaces.cli import main

    status = main.main()
    if main.is_short(sys.argv[1:]):
        # What an error has left in it; if nobody takes that, the status says enough.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(status)
    return status


if __name__ == "__main__":
    if sys.flags.no_site:
        _find_packages()
    sys.exit(run())
