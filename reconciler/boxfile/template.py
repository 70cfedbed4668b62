"""The text of a new Boxfile: ready to run, and telling what else can be said."""

from __future__ import annotations

import re
import textwrap

from reconciler.boxfile.model import Boxfile
from reconciler.boxfile.reference import Entry, find
from reconciler.boxfile.snippets import snippet

WIDTH = 100
# What yaml-language-server (Visual Studio Code, Neovim, Helix and others) looks for in comments; it
# takes a path from the file's own folder.
_SCHEMA_LINE = "# yaml-language-server: $schema="
_MODELINES = re.compile(r"\A(# (yaml-language-server|vim): .*\n)+")

# Works at once, offline, for root too.
_CHOSEN = {
    "version": 1,
    "base": "builtin:busybox",
    "isolation": "strict",
    "network": "none",
    "data_size": "10G",
}
_OFFERED = (
    "cpus",
    "ram_mib",
    "readonly",
    "timeout_seconds",
    "packages",
    "run",
    "env",
    "blueprint",
    "state",
    "on_drift",
    "protect",
)
_HEAD = (
    "Sandbox {name}. Take the # from a field to set it: what stands there is its default, or, for "
    "one that is empty by default, an example. `box explain` lists all fields, `box explain FIELD` "
    "tells about one."
)


def template(name: str, schema: str) -> str:
    """The text of a new Boxfile for `name`; `schema` is the schema's path from its folder."""
    least = Boxfile.model_validate(_CHOSEN)
    parts = [with_schema(_comment(_HEAD.format(name=name)), schema)]
    for field in Boxfile.model_fields:
        if field in _CHOSEN:
            parts.append(_chosen(find(field)))
        elif field in _OFFERED:
            parts.append(_offered(find(field), getattr(least, field)))
    return "\n\n".join(parts) + "\n"


def with_schema(text: str, schema: str) -> str:
    """The text of a Boxfile with lines for editors, instead of those it has."""
    return f"{_SCHEMA_LINE}{schema}\n# vim: ft=yaml\n{_MODELINES.sub('', text)}"


def title(text: str) -> str:
    """The first line of a Boxfile's first comment that is for people; "" without one."""
    first = _MODELINES.sub("", text).partition("\n")[0]
    return first.removeprefix("# ") if first.startswith("# ") else ""


def _chosen(entry: Entry) -> str:
    value = _CHOSEN[entry.path]
    other = entry.default not in (None, value)
    default = f" Default: {entry.default_words}." if other else ""
    return f"{_comment(entry.description + default)}\n{snippet(entry.path, value)}"


def _offered(entry: Entry, default: object) -> str:
    value = default if isinstance(default, str | int) else entry.examples[0]
    return _comment(entry.description) + "\n" + textwrap.indent(snippet(entry.path, value), "#")


def _comment(text: str) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )
