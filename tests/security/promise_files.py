"""security/promises.yaml, and what is made from it: the module and SECURITY.md's first table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

REPO = Path(__file__).parent.parent.parent
SOURCE = REPO / "security" / "promises.yaml"
MODULE = REPO / "reconciler" / "confinement" / "promises.py"
DOCUMENT = REPO / "SECURITY.md"
BEGIN = "<!-- from security/promises.yaml: begin -->"
END = "<!-- from security/promises.yaml: end -->"

GROUPS = ("identity", "privileges", "seccomp", "namespaces", "network", "limits", "files")
BACKENDS = ("qemu", "firecracker", "krun", "podman")
_TEXTS = ("id", "group", "sentence", "read", "expect")
_LISTS = ("backends", "outside", "attack")
_LINE = 100
_LONGEST = 110  # of `read` and `sentence` 88, which the linter sees to

_HEAD = '''\
"""What box promises about the process that holds a VM: one sentence each, by a stable id.

Made from security/promises.yaml, which has more of each and says how to change one.
"""

from __future__ import annotations

from typing import NamedTuple


class Promise(NamedTuple):
    """An `id` that reports and tests name, and the sentence that a user reads.

    `group` is where the security report shows it, `read` the file and field that it is read from.
    `backends` are those it holds for.
    """

    id: str
    sentence: str
    group: str = "other"
    read: str = ""
    backends: tuple[str, ...] = ("qemu", "firecracker", "krun", "podman")


PROMISES = (
'''
_TAIL = ''')


def promise(promise_id: str) -> Promise:
    """The promise with this id; KeyError without one."""
    for each in PROMISES:
        if each.id == promise_id:
            return each
    raise KeyError(promise_id)
'''


@dataclass(frozen=True)
class Row:
    """One promise as the file has it."""

    id: str
    group: str
    sentence: str
    read: str
    expect: str
    backends: tuple[str, ...]
    outside: tuple[str, ...]
    attack: tuple[str, ...]


def rows() -> tuple[Row, ...]:
    """The file's promises. Raises AssertionError for one that is not as the file's head says."""
    return tuple(row_of(each) for each in yaml.safe_load(SOURCE.read_text()))


def row_of(value: dict[str, Any]) -> Row:
    """One promise, every field checked."""
    unknown = set(value) - {*_TEXTS, *_LISTS}
    assert not unknown, f"{value}: unknown {unknown}"
    for name in _TEXTS:
        text = value.get(name)
        assert isinstance(text, str), f"{value}: `{name}` is missing"
        assert text.strip(), f"{value}: `{name}` is empty"
        assert len(text) <= _LONGEST, f"{value}: `{name}` is too long"
    for name in _LISTS:
        items = value.get(name)
        assert isinstance(items, list), f"{value}: `{name}` is missing"
        assert items, f"{value}: `{name}` is empty"
    assert value["group"] in GROUPS, value
    assert set(value["backends"]) <= set(BACKENDS), value
    lists = {name: tuple(value[name]) for name in _LISTS}
    return Row(**{**value, **lists})


def module_text(promises: tuple[Row, ...]) -> str:
    """reconciler/confinement/promises.py, as the formatter leaves it."""
    return _HEAD + "".join(map(_entry, promises)) + _TAIL


def _entry(row: Row) -> str:
    words = [*map(_quoted, (row.id, row.sentence, row.group, row.read))]
    if row.backends != BACKENDS:
        comma = "," if len(row.backends) == 1 else ""
        words.append(f"backends=({', '.join(map(_quoted, row.backends))}{comma})")
    whole = f"    Promise({', '.join(words)}),\n"
    if len(whole) <= _LINE + 1:
        return whole
    lines = "".join(f"        {word},\n" for word in words)
    return f"    Promise(\n{lines}    ),\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def table(promises: tuple[Row, ...]) -> str:
    """The table of SECURITY.md, its markers included."""
    head = "| promise | id | read from | what must stand there | tests |"
    lines = [BEGIN, head, "|---|---|---|---|---|"]
    lines += [_line(each) for each in promises]
    return "\n".join([*lines, END])


def _line(row: Row) -> str:
    tests = ", ".join(f"`{each}`" for each in dict.fromkeys((*row.outside, *row.attack)))
    kept = "" if row.backends == BACKENDS else f" ({', '.join(row.backends)})"
    return f"| {row.sentence}{kept} | `{row.id}` | `{row.read}` | {row.expect} | {tests} |"


def document_with(text: str, made: str) -> str:
    """SECURITY.md with the table between its markers replaced."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + made + after
