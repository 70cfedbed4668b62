"""A Boxfile as text that loads to the same Boxfile."""

from __future__ import annotations

import re

from reconciler.boxfile.model import Boxfile
from reconciler.boxfile.scalars import needs_quotes

# Characters that mean nothing to YAML wherever they stand; the colon only inside.
_PLAIN = re.compile("[A-Za-z0-9_./][A-Za-z0-9_./@+-]*(:[A-Za-z0-9_./@+-]+)*")


def render(boxfile: Boxfile) -> str:
    """Write the Boxfile as YAML: what must be said, and what differs from the defaults."""
    lines: list[str] = []
    least = Boxfile(base=boxfile.base, network=boxfile.network, isolation=boxfile.isolation)
    for field in Boxfile.model_fields:
        value = getattr(boxfile, field)
        if field in {"version", "base", "network", "isolation"} or value != getattr(least, field):
            lines += _field(field, value)
    return "\n".join(lines) + "\n"


def _field(field: str, value: object) -> list[str]:
    if not isinstance(value, dict):
        return [f"{field}: {_scalar(value)}"]
    return [f"{field}:", *(f"  {_scalar(key)}: {_scalar(value[key])}" for key in value)]


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
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    return f"\\U{ord(character):08x}"
