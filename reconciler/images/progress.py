"""How the slow steps tell the user where they are."""

from __future__ import annotations

from collections.abc import Callable

# Called with one line of text; what it does with it is the surface's affair.
Progress = Callable[[str], None]
