"""YAML text to plain values and their places, from the parser's events.

PyYAML's composer and constructor are not used: they recurse as deep as the text says (200 KB of
`[` kills the process inside libyaml's binding), let the last of two equal keys win, and follow
aliases, tags and merge keys. Events come one by one, so a text is left at the first excess.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from reconciler.boxfile.problems import printable, shown
from reconciler.boxfile.scalars import Unquoted, plain_value
from reconciler.boxfile.tabs import TabSearch
from reconciler.boxfile.text import position
from reconciler.boxfile.tree import ASIDE, Path, Place, Scalar, Tree, Value

MAX_DEPTH = 16
MAX_NODES = 10_000
MAX_SCALAR = 64 << 10

# libyaml where PyYAML was built with it, which its wheels are.
PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_LINE = re.compile("([^\r\n]*)[\r\n]*")


class _Stop(Exception):
    """The text cannot be read further; the problem is recorded already."""


def parse(text: str, source: str, loader: type[yaml.SafeLoader] = PARSER) -> Tree:
    """Parse one YAML document. Never raises for what the text holds: see `Tree.problems`."""
    tree = Tree(source)
    reader = _Reader(text, tree)
    try:
        reader.document(yaml.parse(_without_directives(text, tree), Loader=loader))
    except _Stop:
        tree.complete = False
    except yaml.MarkedYAMLError as error:
        tree.complete = False
        mark = error.problem_mark or error.context_mark
        place = _inside(text, mark)
        reason = printable(", ".join(part for part in (error.context, error.problem) if part))[:200]
        tree.add(place, (), f"is not YAML: {reason}{_tab_hint(text, place)}")
    # The pure parser raises the last two for escapes like "\\UFFFFFFFF".
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        tree.complete = False
        tree.add(Place(1, 1), (), f"is not YAML: {shown(str(error))}")
    return tree


def _inside(text: str, mark: yaml.Mark | None) -> Place:
    """The place of a mark; libyaml puts what is missing at the end one line behind the last."""
    if mark is None:
        return Place(1, 1)
    end = Place(*position(text, len(text)))
    place = Place(mark.line + 1, mark.column + 1)
    return place if (place.line, place.column) <= (end.line, end.column) else end


def _without_directives(text: str, tree: Tree) -> str:
    """Refuse directives and make comments of them.

    libyaml compares each %TAG with all before it: those that fit take the better part of a second.
    """
    first, end = _head(text, 0)
    if first is None:
        return text
    tree.add(Place(*position(text, first)), (), "YAML directives (%) are not allowed")
    return re.sub("(?<![^\r\n])%", "#", text[:end]) + text[end:]


def _head(text: str, start: int) -> tuple[int | None, int]:
    """Where the first directive before a document is, if any, and where the document starts."""
    first, end = None, start
    for line in _LINE.finditer(text, start):
        if line[1].startswith("%"):
            first = line.start() if first is None else first
        elif not line[1].lstrip(" \t").startswith(("#", "...")) and line[1].strip(" \t"):
            break
        end = line.end()
    return first, end


def _tab_hint(text: str, place: Place) -> str:
    lines = re.split("\r\n|\r|\n", text)
    line = lines[place.line - 1] if place.line <= len(lines) else ""
    return " (the line has a tab; use spaces)" if "\t" in line else ""


def _place(event: yaml.Event, unquoted: str | None = None) -> Place:
    mark = event.start_mark
    return Place(mark.line + 1, mark.column + 1, unquoted) if mark else Place(1, 1, unquoted)


class _Reader:
    """Builds a tree from events. Recursion is bounded by MAX_DEPTH."""

    def __init__(self, text: str, tree: Tree) -> None:
        self._text = text
        self._tree = tree
        self._tabs = TabSearch(text)
        self._nodes = 0

    def document(self, events: Iterator[yaml.Event]) -> None:
        try:
            for event in events:
                if isinstance(event, yaml.DocumentStartEvent):
                    if self._tree.value is not None:
                        self._second(_place(event))
                    self._tree.value = self._node(next(events), events, ())
                elif isinstance(event, yaml.DocumentEndEvent) and event.end_mark:
                    self._check_end(event.end_mark.index)
            self._tabs.rest()
        finally:
            if self._tabs.found is not None:
                place = Place(*position(self._text, self._tabs.found))
                self._tree.add(place, (), "a tab outside quotes; use spaces")

    def _check_end(self, index: int) -> None:
        """Stop before directives of a second document; see `_without_directives`."""
        first, _ = _head(self._text, index)
        if first is not None:
            self._second(Place(*position(self._text, first)))

    def _second(self, place: Place) -> None:
        self._stop(place, (), "a second document starts here; one file, one Boxfile")

    def _stop(self, place: Place, path: Path, message: str) -> None:
        self._tree.add(place, path, message)
        raise _Stop

    def _refuse(self, event: yaml.Event, path: Path, message: str) -> None:
        """Record a problem of a value that then is not what the text says."""
        self._tree.add(_place(event), path, message)
        self._tree.broken.add(path)

    def _node(self, event: yaml.Event, events: Iterator[yaml.Event], path: Path) -> Value:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self._stop(_place(event), path, f"more than {MAX_NODES} values and keys")
        if isinstance(event, yaml.AliasEvent):
            self._tree.places[path] = _place(event)
            name = _cut(event.anchor)
            self._refuse(event, path, f"aliases are not allowed (*{name}); write it out")
            return ""
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            self._tree.add(_place(event), path, f"anchors are not allowed (&{_cut(event.anchor)})")
        if isinstance(event, yaml.CollectionStartEvent | yaml.ScalarEvent) and event.tag:
            name = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._refuse(event, path, f"tags are not allowed ({_cut(name)})")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        self._tree.places[path] = _place(event)
        if len(path) >= MAX_DEPTH:
            self._stop(_place(event), path, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(events, path)
        return self._mapping(events, path)

    def _scalar(self, event: yaml.ScalarEvent, path: Path) -> Scalar:
        if event.start_mark and event.end_mark:
            self._tabs.scalar(event.style, event.start_mark.index, event.end_mark.index)
        text = event.value
        plain = not event.style
        self._tree.places[path] = _place(event, text if plain else None)
        if len(text) > MAX_SCALAR:
            self._stop(_place(event), path, f"longer than {MAX_SCALAR >> 10} Ki characters")
        if re.search("[\ud800-\udfff]", text):
            self._refuse(event, path, "half of a surrogate pair is no character")
            return ""
        return plain_value(text) if plain else text

    def _sequence(self, events: Iterator[yaml.Event], path: Path) -> list[Value]:
        values: list[Value] = []
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            values.append(self._node(event, events, (*path, len(values))))
        return values

    def _mapping(self, events: Iterator[yaml.Event], path: Path) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._key(event, events, path)
            if key is None:
                self._skip(events, path)
            elif key in values:
                first = self._tree.keys[*path, key].line
                self._tree.add(
                    _place(event), (*path, key), f"is given twice (first in line {first})"
                )
                self._skip(events, path)
            else:
                self._tree.keys[*path, key] = _place(event)
                values[key] = self._node(next(events), events, (*path, key))
        return values

    def _key(self, event: yaml.Event, events: Iterator[yaml.Event], path: Path) -> str | None:
        """Return a usable key, or None after recording why it is none."""
        key_path = (*path, ASIDE)
        key = self._node(event, events, key_path)
        self._tree.places.pop(key_path, None)
        if key_path in self._tree.broken:
            self._tree.broken.remove(key_path)
            return None
        if not isinstance(key, str):
            self._tree.add(_place(event), path, _key_message(key))
            return None
        return key

    def _skip(self, events: Iterator[yaml.Event], path: Path) -> None:
        """Read the value of a refused key: its own problems count, its places do not."""
        tree = self._tree
        mine = tree.places, tree.keys, tree.broken
        tree.places, tree.keys, tree.broken = {}, {}, set()
        try:
            self._node(next(events), events, (*path, ASIDE))
        finally:
            tree.places, tree.keys, tree.broken = mine


def _cut(text: str | None) -> str:
    return shown(text or "")[1:-1]


def _key_message(key: Value) -> str:
    match key:
        case Unquoted(raw="<<"):
            return "merge keys (<<) are not allowed; write the keys out"
        case Unquoted(raw=""):
            return "a key is missing before the colon"
        case Unquoted(raw=raw, taken_for=taken_for):
            return f"the key {_cut(raw)} is {taken_for} in YAML; write it in quotes: {shown(raw)}"
        case bool():
            word = "true" if key else "false"
            return f'the key {word} is a boolean in YAML; write it in quotes: "{word}"'
        case int():
            return f'the key {key} is a number in YAML; write it in quotes: "{key}"'
        case _:
            return "a key must be text, not a list or mapping"
