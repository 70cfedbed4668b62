"""The one way from bytes to a Boxfile, for the command line and the controller alike."""

from __future__ import annotations

from pydantic import ValidationError

from reconciler.boxfile.explain import add_problems
from reconciler.boxfile.known import unknown_key_message
from reconciler.boxfile.model import Boxfile
from reconciler.boxfile.parser import parse
from reconciler.boxfile.problems import InvalidBoxfile
from reconciler.boxfile.text import decode
from reconciler.boxfile.tree import Place, Tree, Value


def load(data: bytes, *, source: str) -> Boxfile:
    """Return the Boxfile that `data` declares.

    `source` names the text in problems, usually a path. Raises InvalidBoxfile with every problem,
    in the order of the text; nothing else is raised, whatever the bytes are.
    """
    tree = parse(decode(data, source), source)
    boxfile = _validate(tree) if tree.complete else None
    if boxfile is None or tree.problems:
        raise InvalidBoxfile(source, tree.problems)
    return boxfile


def _validate(tree: Tree) -> Boxfile | None:
    if not isinstance(tree.value, dict):
        _refuse_shape(tree)
        return None
    fields = {key: tree.value[key] for key in tree.value if key in Boxfile.model_fields}
    for key in tree.value.keys() - fields.keys():
        tree.add(tree.keys[(key,)], (key,), unknown_key_message(key, Boxfile.model_fields))
    try:
        return Boxfile.model_validate(fields)
    except ValidationError as errors:
        add_problems(tree, errors)
        return None


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
