"""The Boxfiles under tests/data: good ones load, a bad one's first lines say what is wrong."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "data" / "boxfiles"
GOOD = sorted((FOLDER / "good").iterdir())
BAD = sorted((FOLDER / "bad").iterdir())
EXAMPLES = sorted((Path(__file__).parents[2] / "desired").rglob("*Boxfile"))

EXPECT = "# expect: "


def expected(path: Path) -> list[str]:
    """Return the problems a bad Boxfile announces, each `line:column: field: message`."""
    lines = path.read_text(encoding="utf-8").split("\n")
    return [line.removeprefix(EXPECT) for line in lines if line.startswith(EXPECT)]
