"""What docs/sdk.md says of errors is what the code has."""

from __future__ import annotations

from pathlib import Path

from reconciler import sdk
from reconciler.codes import MEANINGS, Code
from reconciler.errors import BoxError

README = Path(__file__).parents[3] / "README.md"
PAGE = README.parent / "docs" / "sdk.md"


def test_the_page_lists_every_code_with_its_class_and_meaning() -> None:
    classes = {}
    for name in sdk.__all__:
        kind = getattr(sdk, name)
        if isinstance(kind, type) and issubclass(kind, BoxError):
            classes[kind.code] = f"`{name}`"
    rows = [
        f"| `{c}` | {classes.get(c, '')} | {MEANINGS[c]} |".replace("|  |", "| |") for c in Code
    ]
    table = PAGE.read_text().partition("|---|---|---|\n")[2]
    assert table.splitlines()[: len(rows)] == [row.replace("|  |", "| |") for row in rows]
