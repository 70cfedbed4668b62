"""The one way from bytes to a Boxfile, for the command line and the controller alike."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from reconciler.boxfile.explain import add_problems
from reconciler.boxfile.known import unknown_key_message
from reconciler.boxfile.model import Boxfile
from reconciler.boxfile.parser import parse
from reconciler.boxfile.problems import MOST_PROBLEMS, InvalidBoxfile, Problem
from reconciler.boxfile.pruning import prune
from reconciler.boxfile.rules import broken_rules
from reconciler.boxfile.support import absence
from reconciler.boxfile.text import decode
from reconciler.boxfile.tree import Path, Place, Tree, Value


@dataclass(frozen=True, slots=True)
class Loaded:
    """A good Boxfile. `notes` say what keeps this version of box from running it, if anything."""

    boxfile: Boxfile
    tree: Tree
    notes: tuple[Problem, ...]

    def problem(self, path: Path, message: str) -> Problem:
        """A problem of this file that the text alone does not show, at its place."""
        return self.tree.problem(self.tree.place_of(path), path, message)


def load(data: bytes, *, source: str) -> Boxfile:
    """Return the Boxfile that `data` declares; see `read`."""
    return read(data, source=source).boxfile


def read(data: bytes, *, source: str) -> Loaded:
    """Return the Boxfile that `data` declares, with the places of its fields.

    `source` names the text in problems, usually a path. Raises InvalidBoxfile with every problem,
    in the order of the text; nothing else is raised, whatever the bytes are.
    """
    try:
        return _read(data, source)
    except InvalidBoxfile:
        raise
    except Exception as error:  # one file's fault, even ours, must stay that file's
        message = f"box itself failed on this text ({type(error).__name__}); please report it"
        raise InvalidBoxfile(source, [Problem(source, 1, 1, "", message)]) from error


def _read(data: bytes, source: str) -> Loaded:
    tree = parse(decode(data, source), source)
    boxfile = _validate(tree) if tree.complete else None
    if boxfile is None or tree.problems:
        raise tree.refusal()
    missing = absence(boxfile)
    path: Path = ("backend",)
    notes = (tree.problem(tree.place_of(path), path, missing),) if missing else ()
    return Loaded(boxfile, tree, notes)


def _validate(tree: Tree) -> Boxfile | None:
    if not isinstance(tree.value, dict):
        _refuse_shape(tree)
        return None
    fields = {key: tree.value[key] for key in tree.value if key in Boxfile.model_fields}
    # Looking for what was meant takes time, and a hostile file has thousands of keys.
    unknown = [key for key in tree.value if key not in fields]
    for key in unknown[:MOST_PROBLEMS]:
        tree.add(tree.keys[(key,)], (key,), unknown_key_message(key, Boxfile.model_fields))
    tree.more += len(unknown[MOST_PROBLEMS:])
    bad = [path for path in tree.broken if path]
    boxfile = None
    try:
        boxfile = Boxfile.model_validate(fields)
    except ValidationError as errors:
        bad += add_problems(tree, errors)
    _hold_to_rules(tree, boxfile, fields, bad)
    return boxfile


def _hold_to_rules(
    tree: Tree, boxfile: Boxfile | None, fields: dict[str, Value], bad: list[Path]
) -> None:
    """Record every broken rule; of a bad Boxfile, those of the good rest, so that all come."""
    good = prune(fields, bad)
    if boxfile is None:
        boxfile = Boxfile.model_validate(good.fields)
    for fault in broken_rules(boxfile, frozenset(good.unknown)):
        if good.is_filled(fault.path) or (fault.first and good.is_filled(fault.first)):
            continue
        message = fault.message
        if fault.first is not None:
            message += f" (first in line {tree.place_of(fault.first).line})"
        tree.add(tree.place_of(fault.path), fault.path, message)


def _refuse_shape(tree: Tree) -> None:
    if not tree.problems:
        empty = tree.value is None or _is_null(tree.value)
        what = "is empty" if empty else "is not a mapping"
        place = tree.places.get((), Place(1, 1))
        tree.add(
            place,
            (),
            f"{what}; a Boxfile is lines of `field: value`, at least `base` and `network`",
        )


def _is_null(value: Value) -> bool:
    return not isinstance(value, dict | list | str | int) and value.taken_for == "no value"
