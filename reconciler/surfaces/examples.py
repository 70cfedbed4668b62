"""The Boxfiles that box brings, to begin with: in an installed wheel, else in a checkout."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from reconciler.boxfile.names import SUFFIX
from reconciler.boxfile.problems import shown
from reconciler.boxfile.template import title, with_schema
from reconciler.errors import Missing

_PACKAGE = Path(__file__).parents[1]
_FOLDERS = (_PACKAGE / "_examples", _PACKAGE.parent / "examples")


@dataclass(frozen=True, slots=True)
class Example:
    """A shipped Boxfile; `summary` is one line."""

    name: str
    summary: str
    text: str

    def written_for(self, name: str, schema: str) -> str:
        """The text as a Boxfile of the sandbox `name`, see `template`."""
        return re.sub(r"\bbox (run|exec) NAME\b", rf"box \1 {name}", with_schema(self.text, schema))


def examples() -> tuple[Example, ...]:
    """All of them, by name. Raises Missing when box was installed without them."""
    folder = next((each for each in _FOLDERS if each.is_dir()), None)
    if folder is None:
        raise Missing("The examples are not there.", hint="reinstall box: its files are incomplete")
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(folder.glob(f"*{SUFFIX}"))}
    return tuple(
        Example(path.name.removesuffix(SUFFIX), title(text), text) for path, text in texts.items()
    )


def example(name: str) -> Example:
    """The example of this name. Raises Missing, which says what there is."""
    known = {each.name: each for each in examples()}
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name.lower()[:40], known, n=1, cutoff=0.5)
    close = close or [each for each in known if name and name in each]
    meant = f"; did you mean {close[0]}?" if close else "."
    raise Missing(
        f"There is no example {shown(name)}{meant}",
        details="\n".join(f"{each.name:<14}{each.summary}" for each in known.values()),
        hint="box new --list",
    )
