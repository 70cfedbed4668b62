"""What an unquoted YAML scalar means here: text, true, false or a whole number, never a surprise.

YAML 1.1 reads `no` as false, `0644` as 420, `22:22` as 1342 and `2024-01-01` as a date; YAML 1.2
reads some of these differently. Whatever any of them takes for something else than text becomes an
`Unquoted` here, which no field accepts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# yaml.org/type/bool.html without y and n, which no widespread parser takes for booleans.
_BOOLEAN = re.compile("yes|no|on|off|true|false", re.IGNORECASE)
_NULL = re.compile("|~|null", re.IGNORECASE)
_WHOLE = re.compile("0|-?[1-9][0-9]{0,17}")
# yaml.org/type/int.html and float.html, and the 0o and 1e3 of YAML 1.2.
_NUMBER = re.compile(
    r"[-+]?(0b[01_]+|0o[0-7_]+|0x[0-9a-f_]+"
    r"|[0-9][0-9_]*(:[0-5]?[0-9])*(\.[0-9_]*)?(e[-+]?[0-9]+)?"
    r"|\.[0-9][0-9_]*(e[-+]?[0-9]+)?|\.inf)|\.nan",
    re.IGNORECASE,
)
# yaml.org/type/timestamp.html, and everything that merely starts like one.
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)?")
_WORDS = {"<<": "a merge key", "=": "the default key"}


@dataclass(frozen=True, slots=True)
class Unquoted:
    """An unquoted scalar that YAML takes for something else than text.

    `taken_for` is a noun with its article: what YAML reads it as.
    """

    raw: str
    taken_for: str


def plain_value(raw: str) -> str | int | bool | Unquoted:
    """Return the value of an unquoted scalar. Pure; any text is accepted."""
    if raw in {"true", "false"}:
        return raw == "true"
    # 18 digits: no field needs more, and reading thousands of them takes quadratic time.
    if _WHOLE.fullmatch(raw):
        return int(raw)
    taken_for = _taken_for(raw)
    return Unquoted(raw, taken_for) if taken_for else raw


def _taken_for(raw: str) -> str | None:
    if _NULL.fullmatch(raw):
        return "no value"
    if _BOOLEAN.fullmatch(raw):
        return "a boolean"
    if _DATE.fullmatch(raw):
        return "a date"
    if _NUMBER.fullmatch(raw):
        return "a number"
    return _WORDS.get(raw)


def needs_quotes(text: str) -> bool:
    """Whether text would be read back as something else when written without quotes."""
    return plain_value(text) != text
