"""A Boxfile's values without the bad ones, so that the good rest can be held to the rules too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from reconciler.boxfile.tree import Path, Value

_ANY_BASE = "builtin:busybox"
# Good items of the lists whose other items count although some are bad.
_ITEMS: dict[Path, str | dict[str, str]] = {
    ("mounts",): {"host": "/", "guest": "/filled-in"},
    ("packages",): "filled-in",
    ("warmup",): "true",
    ("blueprint", "users"): {"name": "filled-in"},
    ("blueprint", "write_files"): {"path": "/filled-in", "content": ""},
}


@dataclass(slots=True)
class Pruned:
    """`fields` with nothing bad in them.

    `unknown` are the top-level fields that are gone as a whole, `filled` the items of lists, and
    the keys of such items, that something good stands for: no rule says anything about those.
    """

    fields: dict[str, Value]
    unknown: set[str | int] = field(default_factory=set)
    filled: set[Path] = field(default_factory=set)
    _copied: dict[Path, list[Value]] = field(default_factory=dict)

    def is_filled(self, path: Path) -> bool:
        """Whether what is at `path` is not the text's."""
        return any(path[:length] in self.filled for length in range(1, len(path) + 1))

    def leave_out(self, path: Path) -> None:
        """Make what is at `path` good: an item of a list or its key, a part of the blueprint."""
        listed = next((path[:length] for length in (1, 2) if path[:length] in _ITEMS), None)
        blueprint = self.fields.get("blueprint")
        if listed is not None and len(path) > len(listed):
            self._fill(listed, path[len(listed) :])
        elif path[0] == "blueprint" and len(path) > 1 and isinstance(blueprint, dict):
            blueprint.pop(str(path[1]), None)
        else:
            self.unknown.add(path[0])
            self.fields.pop(str(path[0]), None)

    def _fill(self, listed: Path, inner: Path) -> None:
        items, good = self._items(listed), _ITEMS[listed]
        index = inner[0]
        if items is None or not isinstance(index, int):
            return
        item = items[index]
        if len(inner) == 1 or isinstance(good, str) or not isinstance(item, dict):
            items[index] = good if isinstance(good, str) else {**good}
            self.filled.add((*listed, index))
            return
        key = str(inner[1])
        rest = {name: value for name, value in item.items() if name != key}
        items[index] = {**rest, key: good[key]} if key in good else rest
        self.filled.add((*listed, index, key))

    def _items(self, listed: Path) -> list[Value] | None:
        """The list at `listed`, copied before its first change; None when there is none."""
        if listed not in self._copied:
            holder: Value | None = self.fields
            for key in listed[:-1]:
                holder = holder.get(str(key)) if isinstance(holder, dict) else None
            items = holder.get(str(listed[-1])) if isinstance(holder, dict) else None
            if not isinstance(holder, dict) or not isinstance(items, list):
                return None
            self._copied[listed] = holder[str(listed[-1])] = list(items)
        return self._copied[listed]


def prune(fields: dict[str, Value], bad: Iterable[Path]) -> Pruned:
    """Leave the `bad` paths out; the `base`, which is always needed, is replaced."""
    pruned = Pruned(dict(fields))
    if isinstance(blueprint := fields.get("blueprint"), dict):
        pruned.fields["blueprint"] = dict(blueprint)
    for path in bad:
        pruned.leave_out(path)
    if "base" not in pruned.fields:
        pruned.unknown.add("base")
        pruned.fields["base"] = _ANY_BASE
    return pruned
