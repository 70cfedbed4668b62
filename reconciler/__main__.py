"""`python -m reconciler`: the command line of a checkout and of an installed package."""

from __future__ import annotations

import signal
import sys

if __name__ == "__main__":
    # Nothing is begun yet, so Ctrl-C may simply end us; `main` makes it an exception.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from reconciler.surfaces.cli.main import main

    sys.exit(main())
