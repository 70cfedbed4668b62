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
from reconciler.boxfile.tree import ASIDE, Path, Place, Scalar, Tree, Value

MAX_DEPTH = 16
MAX_NODES = 10_000
MAX_SCALAR = 64 << 10

# libyaml where PyYAML was built with it, which its wheels are.
PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Stop(Exception):
    """The text cannot be read further; the problem is recorded already."""


def parse(text: str, source: str) -> Tree:
    """Parse one YAML document. Never raises for what the text holds: see `Tree.problems`."""
    tree = Tree(source)
    reader = _Reader(text, tree)
    try:
        reader.document(yaml.parse(text, Loader=PARSER))
    except _Stop:
        tree.complete = False
    except yaml.MarkedYAMLError as error:
        tree.complete = False
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
        reason = printable(", ".join(part for part in (error.context, error.problem) if part))[:200]
        tree.add(place, (), f"is not YAML: {reason}{_tab_hint(text, place)}")
    # The pure parser raises the last two for escapes like "\\UFFFFFFFF".
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        tree.complete = False
        tree.add(Place(1, 1), (), f"is not YAML: {shown(str(error))}")
    return tree


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
        self._nodes = 0
        self._read_to = 0
        self._tab_found = False

    def document(self, events: Iterator[yaml.Event]) -> None:
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._check_start(event)
                self._tree.value = self._node(next(events), events, ())
        self._check_tabs_before(len(self._text))

    def _check_start(self, event: yaml.DocumentStartEvent) -> None:
        if self._tree.value is not None:
            self._stop(_place(event), (), "a second document starts here; one file, one Boxfile")
        if event.version or event.tags:
            self._tree.add(_place(event), (), "YAML directives (%) are not allowed")

    def _stop(self, place: Place, path: Path, message: str) -> None:
        self._tree.add(place, path, message)
        raise _Stop

    def _refuse(self, event: yaml.Event, path: Path, message: str) -> None:
        self._tree.add(_place(event), path, message)
        self._tree.broken.add(path)

    def _node(self, event: yaml.Event, events: Iterator[yaml.Event], path: Path) -> Value:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self._stop(_place(event), path, f"more than {MAX_NODES} values and keys")
        if isinstance(event, yaml.AliasEvent):
            self._tree.places[path] = _place(event)
            self._refuse(event, path, f"aliases are not allowed (*{event.anchor}); write it out")
            return ""
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            self._refuse(event, path, f"anchors are not allowed (&{event.anchor})")
        if isinstance(event, yaml.CollectionStartEvent | yaml.ScalarEvent) and event.tag:
            self._refuse(event, path, f"tags are not allowed ({_tag_text(event.tag)})")
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
            self._check_tabs_before(event.start_mark.index)
            self._check_tabs_inside(event.style, event.start_mark.index, event.end_mark.index)
            self._read_to = event.end_mark.index
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
        aside = Tree(self._tree.source, problems=self._tree.problems)
        mine, self._tree = self._tree, aside
        try:
            self._node(next(events), events, (*path, ASIDE))
        finally:
            self._tree = mine

    # libyaml takes tabs in places where the pure parser does not: refused in all of them.

    def _check_tabs_before(self, upto: int) -> None:
        """Refuse tabs between scalars, except in comments."""
        if "\t" in self._text[self._read_to : upto]:
            for found in re.compile("#[^\r\n]*|\t").finditer(self._text, self._read_to, upto):
                if found[0] == "\t":
                    self._refuse_tab(found.start())
                    return

    def _check_tabs_inside(self, style: str | None, start: int, end: int) -> None:
        """Refuse tabs in unquoted scalars, and in the first line of block scalars."""
        if style in {"|", ">"}:
            line_end = re.compile("[\r\n]").search(self._text, start, end)
            end = line_end.start() if line_end else end
        if not style or style in {"|", ">"}:
            tab = self._text.find("\t", start, end)
            if tab >= 0:
                self._refuse_tab(tab)

    def _refuse_tab(self, index: int) -> None:
        if not self._tab_found:
            self._tab_found = True
            lines = re.split("\r\n|\r|\n", self._text[:index])
            place = Place(len(lines), len(lines[-1]) + 1)
            self._tree.add(place, (), "a tab outside quotes; use spaces")


def _tag_text(tag: str) -> str:
    """Write a tag as in the text, shortened: `!!python/object` for its long name."""
    return shown(tag.replace("tag:yaml.org,2002:", "!!"))[1:-1]


def _key_message(key: Value) -> str:
    match key:
        case Unquoted(raw="<<"):
            return "merge keys (<<) are not allowed; write the keys out"
        case Unquoted(raw=""):
            return "a key is missing before the colon"
        case Unquoted(raw=raw, taken_for=taken_for):
            return f'the key {raw} is {taken_for} in YAML; write it in quotes: "{raw}"'
        case bool():
            word = "true" if key else "false"
            return f'the key {word} is a boolean in YAML; write it in quotes: "{word}"'
        case int():
            return f'the key {key} is a number in YAML; write it in quotes: "{key}"'
        case _:
            return "a key must be text, not a list or mapping"
