"""`python -m reconciler`: the command line of a checkout and of an installed package."""

from __future__ import annotations

import sys

from reconciler.surfaces.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
