"""docs/boxfile.md: the whole format on one page, made from the model."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from reconciler.boxfile.names import RESERVED_NAMES
from reconciler.boxfile.parser import MAX_DEPTH, MAX_NODES, MAX_SCALAR
from reconciler.boxfile.reference import PROMISE, Entry, entries
from reconciler.boxfile.snippets import snippet
from reconciler.boxfile.support import AVAILABLE
from reconciler.boxfile.text import MAX_BYTES

_WIDTH = 100

_HEAD = """\
<!-- Made from the model; BOX_UPDATE_SCHEMAS=1 ./check -k boxfile writes it anew. -->
# The Boxfile

One file declares one sandbox. It is `NAME.Boxfile` or `NAME/Boxfile` in a watched folder, and NAME
is the sandbox's name: 1 to 63 characters of `a-z`, `0-9` and `-`, with no `-` at either end, and
none of {reserved}.

```console
$ box new web --from tiny-python    # a new one, explained; --list shows the examples
$ box validate desired              # every error, with file, line and column
$ box explain network               # what is below, field by field
$ box schema                        # the JSON schema; editors find it in what `box new` writes
$ box plan desired                  # what a change does before it is done
```

[examples/](../examples/) has more to begin with.

## Text

- YAML in UTF-8, at most {kib} KiB; one mapping, one document. Windows' line ends and one byte order
  mark are taken.
- At most {depth} levels, {nodes} values and keys, and {scalar} Ki characters in one value.
- No anchors, aliases, tags, merge keys, directives or repeated keys, and no tabs outside quotes.
- `true` and `false` are the booleans, `-?[1-9][0-9]*` and `0` the numbers. What YAML reads as
  something else when it is not quoted (`no`, `0644`, `22:22`, `1_000`, `1e3`, dates) is an error
  wherever it stands; in quotes it is text.
- Control characters are errors, but for tabs and line ends in `content`; so are marks that reorder
  a line.
- Unknown fields are errors. All errors of a file are told at once.

## Versions

{promise} A text of an unknown version is refused with the box that reads it.

## Backends

This version of box has {available}. A Boxfile for another backend is good, and `box validate` says
so with a note; it is not started. What a backend cannot do is an error at the field that asks for
it.

## Fields

| field | default | |
|---|---|---|
"""


def reference_page() -> str:
    """Return the page as it is committed in docs/boxfile.md."""
    head = _HEAD.format(
        reserved=", ".join(f"`{name}`" for name in sorted(RESERVED_NAMES)),
        kib=MAX_BYTES >> 10,
        depth=MAX_DEPTH,
        nodes=MAX_NODES,
        scalar=MAX_SCALAR >> 10,
        promise=PROMISE,
        available=" and ".join(sorted(AVAILABLE)),
    )
    sections = (_section(each) for each in entries())
    return "\n".join([_folded_head(head), *_table(), *sections]).rstrip("\n") + "\n"


def _folded_head(head: str) -> str:
    lines = head.rstrip("\n").split("\n")
    return "\n".join(_fold(line) if len(line) > _WIDTH else line for line in lines)


def _table() -> Iterator[str]:
    for entry in entries():
        link = f"[`{entry.path}`](#{_anchor(entry.path)})"
        yield f"| {link} | {entry.default_words} | {_cell(entry.summary)} |"
    yield ""


def _section(entry: Entry) -> str:
    facts = [f"allowed: {entry.allowed}", f"default: {entry.default_words}"]
    if "." not in entry.path:
        facts.append(f"change: {entry.effect}")
        if entry.wider:
            facts.append(f"wider, which `box plan` marks with !: {entry.wider}")
    facts += [f"with backend {backend}: {why}" for backend, why in entry.not_on]
    lines = [f"### {entry.path}", "", _fold(entry.description), ""]
    lines += [_fold(f"- {fact}", "  ") for fact in facts]
    examples = "\n# or\n".join(snippet(entry.name, value) for value in entry.examples)
    return "\n".join([*lines, "", "```yaml", examples, "```", ""])


def _fold(text: str, indent: str = "") -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def _anchor(path: str) -> str:
    # GitHub's and GitLab's: punctuation but _ and - is dropped.
    return path.replace(".", "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
