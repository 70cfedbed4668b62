"""A Boxfile as text that loads to the same Boxfile."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import BaseModel

from reconciler.boxfile.model import Boxfile
from reconciler.boxfile.scalars import needs_quotes

# Characters that mean nothing to YAML wherever they stand; the colon only inside.
_PLAIN = re.compile("[A-Za-z0-9_./][A-Za-z0-9_./@+-]*(:[A-Za-z0-9_./@+-]+)*")
_ALWAYS = {"version", "base", "network", "isolation"}
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def render(boxfile: Boxfile) -> str:
    """Write the Boxfile as YAML: what must be said, and what differs from the defaults."""
    least = Boxfile(base=boxfile.base, network=boxfile.network, isolation=boxfile.isolation)
    said = {
        name: value for name, value in boxfile if name in _ALWAYS or value != getattr(least, name)
    }
    return "".join(f"{line}\n" for line in _mapping(said))


def _mapping(values: dict[str, object]) -> Iterator[str]:
    for key, value in values.items():
        inner = list(_lines(value))
        if isinstance(value, list | dict | BaseModel) and inner:
            yield f"{_scalar(key)}:"
            yield from (f"  {line}" for line in inner)
        else:
            yield f"{_scalar(key)}: {inner[0]}"


def _lines(value: object) -> Iterator[str]:
    match value:
        case BaseModel():
            yield from _mapping(dict(value.model_dump(exclude_defaults=True)))
        case dict():
            yield from _mapping(value)
        case list():
            for item in value:
                first, *rest = _lines(item)
                yield f"- {first}"
                yield from (f"  {line}" for line in rest)
        case _:
            yield _scalar(value)


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    text = str(value)
    return text if _PLAIN.fullmatch(text) and not needs_quotes(text) else _quoted(text)


def _quoted(text: str) -> str:
    return '"' + "".join(map(_character, text)) + '"'


def _character(character: str) -> str:
    if character in _ESCAPES or character.isprintable():
        return _ESCAPES.get(character, character)
    return f"\\U{ord(character):08x}"
