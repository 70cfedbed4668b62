"""Pydantic's errors as problems a person can act on: what stands there, and what is allowed."""

from __future__ import annotations

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from reconciler.boxfile.known import NOT_YET, NOT_YET_VALUES, missing_network_message
from reconciler.boxfile.problems import shown
from reconciler.boxfile.scalars import Unquoted
from reconciler.boxfile.tree import Path, Place, Tree

EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "dict_type": "a mapping (KEY: value lines)",
}


def add_problems(tree: Tree, errors: ValidationError) -> None:
    """Record every error of a validation at its place, but none where the text itself is broken."""
    for error in errors.errors(include_url=False):
        if error["type"] == "default_factory_not_called":
            continue  # follows from another error
        path, is_key = _path(error)
        if not any(path[:length] in tree.broken for length in range(1, len(path) + 1)):
            tree.add(_place(tree, path, is_key=is_key), path, _message(error, tree, path))


def _path(error: ErrorDetails) -> tuple[Path, bool]:
    """Return the path in the text, and whether the error is about the key itself."""
    path = error["loc"]
    return (path[:-1], True) if path[-1:] == ("[key]",) else (path, False)


def _place(tree: Tree, path: Path, *, is_key: bool) -> Place:
    place = tree.keys.get(path) if is_key else tree.places.get(path)
    # A missing field has no place of its own.
    return place or tree.places[path[:-1]]


def _message(error: ErrorDetails, tree: Tree, path: Path) -> str:
    value, kind = error["input"], error["type"]
    field = str(path[-1])
    if kind == "missing":
        return missing_network_message() if field == "network" else "is required"
    if isinstance(value, Unquoted) and value.raw == "":
        return "has no value; give one or remove the line"
    if kind in EXPECTED:
        expected = "a size like 10G" if field == "data_size" else EXPECTED[kind]
        return _wrong_type(value, expected, tree.places[path].unquoted)
    if kind == "literal_error":
        return _wrong_word(value, field, error["ctx"]["expected"].replace("'", ""))
    return _out_of_bounds(error)


def _out_of_bounds(error: ErrorDetails) -> str:
    value, context = error["input"], error.get("ctx", {})
    match error["type"]:
        case "greater_than_equal":
            return f"{value} is too small; the least is {context['ge']}"
        case "less_than_equal":
            return f"{value} is too large; the most is {context['le']}"
        case "value_error":
            subject = f"{shown(value)} " if isinstance(value, str) else ""
            return f"{subject}{context['error']}"
        case _:
            return error["msg"]


def _wrong_type(value: object, expected: str, unquoted: str | None) -> str:
    if isinstance(value, list | dict):
        what = "a list" if isinstance(value, list) else "a mapping"
        return f"is {what}; {expected} belongs here"
    if unquoted is None:
        fix = "" if expected == "text" else ", without quotes"
        return f"{shown(str(value))} is text; {expected} belongs here{fix}"
    if expected != "text":
        return f"{shown(unquoted)[1:-1]} is not {expected}"
    return f"{_taken_for(value, unquoted)} in YAML; write it in quotes: {shown(unquoted)}"


def _taken_for(value: object, unquoted: str) -> str:
    if isinstance(value, Unquoted):
        noun = value.taken_for
    else:
        noun = "a boolean" if isinstance(value, bool) else "a number"
    return f"{shown(unquoted)[1:-1]} is {noun}"


def _wrong_word(value: object, field: str, expected: str) -> str:
    if isinstance(value, str) and value in NOT_YET_VALUES.get(field, ()):
        return f"{value} is {NOT_YET}; allowed now: {expected}"
    what = shown(value) if isinstance(value, str) else _plain(value)
    if field == "version":
        return f"{what} is not a version this box reads (it reads {expected}); a newer box may"
    return f"{what} is not allowed; allowed: {expected}"


def _plain(value: object) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    if isinstance(value, bool):
        return "true" if value else "false"
    return shown(value.raw if isinstance(value, Unquoted) else str(value))[1:-1]
