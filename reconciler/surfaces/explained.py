"""A field of the Boxfile explained: on a terminal and as JSON."""

from __future__ import annotations

import shutil
import textwrap
from typing import Any

from reconciler.boxfile.reference import PROMISE, Entry
from reconciler.boxfile.snippets import snippet

_WIDEST = 100
_INDENT = " " * 18


def entry_lines(entry: Entry) -> list[str]:
    """Everything about a field, folded to the terminal's width."""
    width = min(shutil.get_terminal_size((_WIDEST, 0)).columns, _WIDEST)
    meaning = f"{entry.description} {PROMISE}" if entry.path == "version" else entry.description
    lines = [f"{entry.path}: {entry.title}", "", *_folded(meaning, width, "  "), ""]
    for label, text in _rows(entry):
        lines += _labelled(label, _folded(text, width, _INDENT))
    for value in entry.examples:
        lines += _labelled(
            "example", textwrap.indent(snippet(entry.name, value), _INDENT).split("\n")
        )
    return lines


def _rows(entry: Entry) -> list[tuple[str, str]]:
    rows = [("allowed", entry.allowed), ("default", entry.default_words)]
    rows.append(("change", entry.effect))
    if entry.wider:
        rows.append(("wider", f"{entry.wider}; `box plan` marks it with !"))
    rows += [(f"on {backend}", why) for backend, why in entry.not_on]
    if entry.inner:
        rows.append(("fields", ", ".join(f"{entry.path}.{name}" for name in entry.inner)))
    return rows


def _folded(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        max(width, 40),
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _labelled(label: str, lines: list[str]) -> list[str]:
    return [f"  {label}".ljust(len(_INDENT)) + lines[0][len(_INDENT) :], *lines[1:]]


def entry_json(entry: Entry) -> dict[str, Any]:
    """The same facts; `default` is null where there is no fixed one."""
    return {
        "field": entry.path,
        "title": entry.title,
        "description": entry.description,
        "allowed": entry.allowed,
        "required": entry.required,
        "default": entry.default,
        "default_words": entry.default_words,
        "examples": list(entry.examples),
        "change": {"effect": entry.effect, "wider": entry.wider or None},
        "not_on": dict(entry.not_on),
        "fields": [f"{entry.path}.{name}" for name in entry.inner],
    }
