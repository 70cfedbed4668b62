"""The Boxfiles under tests/data: good ones load, a bad one's first lines say what is wrong."""

from __future__ import annotations

from pathlib import Path

import reconciler

FOLDER = Path(__file__).parents[1] / "data" / "boxfiles"
GOOD = sorted((FOLDER / "good").iterdir())
BAD = sorted((FOLDER / "bad").iterdir())
_ROOT = Path(__file__).parents[2]
EXAMPLES = sorted([*_ROOT.glob("desired/*Boxfile"), *_ROOT.glob("examples/*Boxfile")])

EXPECT = "# expect: "


def expected(path: Path) -> list[str]:
    """Return the problems a bad Boxfile announces, each `line:column: field: message`."""
    text = path.read_bytes().decode(errors="replace")
    said = [line.removeprefix(EXPECT) for line in text.split("\n") if line.startswith(EXPECT)]
    return [line.replace("{version}", reconciler.__version__) for line in said]
