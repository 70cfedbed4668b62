"""Pydantic's errors as problems a person can act on: what stands there, and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Collection

from annotated_types import Ge, Le
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

import reconciler
from reconciler.boxfile.known import unknown_key_message
from reconciler.boxfile.model import Blueprint, Boxfile, Mount, User, WriteFile
from reconciler.boxfile.problems import MOST_PROBLEMS, shown
from reconciler.boxfile.scalars import Unquoted
from reconciler.boxfile.tree import Path, Place, Tree

EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "dict_type": "a mapping (KEY: value lines)",
    "model_type": "a mapping",
    "list_type": "a list (lines of `- item`)",
}
# The models below the fields that hold them, by path without the indices of lists.
_MODELS: dict[tuple[str, ...], type[BaseModel]] = {
    (): Boxfile,
    ("mounts",): Mount,
    ("blueprint",): Blueprint,
    ("blueprint", "users"): User,
    ("blueprint", "write_files"): WriteFile,
}
_FOLLOWS = "default_factory_not_called"  # from another error, which is there too


def add_problems(tree: Tree, errors: ValidationError) -> list[Path]:
    """Record every error of a validation at its place, and return their paths.

    Nothing is said of values that are not what the text says.
    """
    found: list[tuple[int, int, int, Place, Path, ErrorDetails]] = []
    paths = []
    for error in errors.errors(include_url=False):
        path, is_key = _path(error)
        if error["type"] == _FOLLOWS:
            continue
        paths.append(path)
        if is_key or path not in tree.broken:
            place = _place(tree, path, is_key=is_key)
            found.append((place.line, place.column, len(found), place, path, error))
    # Far more than anybody is shown are not looked at: a hostile file can have one per byte.
    found.sort()
    for _, _, _, place, path, error in found[:MOST_PROBLEMS]:
        tree.add(place, path, _message(error, tree, path))
    tree.more += len(found[MOST_PROBLEMS:])
    return paths


def fields_at(path: Path) -> Collection[str]:
    """The fields a mapping at `path` may have."""
    return _MODELS[tuple(part for part in path if isinstance(part, str))].model_fields


def _path(error: ErrorDetails) -> tuple[Path, bool]:
    """Return the path in the text, and whether the error is about the key itself."""
    path = error["loc"]
    if path[-1:] == ("[key]",):
        return path[:-1], True
    return path, error["type"] == "extra_forbidden"


def _place(tree: Tree, path: Path, *, is_key: bool) -> Place:
    # A missing field has no place of its own.
    return tree.keys[path] if is_key and path in tree.keys else tree.place_of(path)


def _message(error: ErrorDetails, tree: Tree, path: Path) -> str:
    value, kind = error["input"], error["type"]
    if path == ("version",) and not _is_empty(value):
        return _wrong_version(value)
    if kind == "missing":
        return f"is required, for example {path[-1]}: {_example(path)}"
    if kind == "extra_forbidden":
        return unknown_key_message(str(path[-1]), fields_at(path[:-1]))
    if _is_empty(value):
        rest = "" if _is_required(path) else " or remove the line"
        return f"has no value; give one{rest}"
    if kind in EXPECTED:
        expected = "a size like 10G" if path == ("data_size",) else EXPECTED[kind]
        return _wrong_type(value, expected + _range(path), tree.places[path].unquoted, path)
    if kind == "literal_error":
        allowed = error["ctx"]["expected"].replace("'", "")
        what = shown(value) if isinstance(value, str) else _plain(value)
        return f"{what} is not allowed; allowed: {allowed}"
    return _out_of_bounds(error, path)


def _field(path: Path) -> FieldInfo | None:
    """The model's field at a path; None for items of lists and variables."""
    if not path or not isinstance(path[-1], str):
        return None
    model = _MODELS.get(tuple(part for part in path[:-1] if isinstance(part, str)))
    return model.model_fields.get(path[-1]) if model else None


def _example(path: Path) -> str:
    field = _field(path)
    example = str(field.examples[0]) if field and field.examples else "..."
    return example.partition("\n")[0]


def _is_required(path: Path) -> bool:
    field = _field(path)
    return field is not None and field.is_required()


def _range(path: Path) -> str:
    """The bounds of a number's field, to be put after "a whole number"."""
    field = _field(path)
    bounds = {type(each): each for each in field.metadata} if field else {}
    least, most = bounds.get(Ge), bounds.get(Le)
    return f" from {least.ge} to {most.le}" if least and most else ""


def _is_empty(value: object) -> bool:
    return isinstance(value, Unquoted) and value.raw == ""


def _out_of_bounds(error: ErrorDetails, path: Path) -> str:
    value, context = error["input"], error.get("ctx", {})
    match error["type"]:
        case "greater_than_equal":
            return f"{value} is too small; the least is {context['ge']}"
        case "less_than_equal":
            return f"{value} is too large; the most is {context['le']}"
        case "too_long":
            return f"has more than {context['max_length']} items"
        case "value_error":
            subject = f"{shown(value)} " if isinstance(value, str) and not _is_private(path) else ""
            return f"{subject}{context['error']}"
        case _:
            return error["msg"]


def _is_private(path: Path) -> bool:
    """Whether the value may be a secret: it is repeated in no message."""
    return len(path) > 1 and path[0] == "env"


def _wrong_type(value: object, expected: str, unquoted: str | None, path: Path) -> str:
    if isinstance(value, list | dict):
        what = "a list" if isinstance(value, list) else "a mapping"
        return f"is {what}; {expected} belongs here"
    if unquoted is None:
        fix = " without quotes" if expected.startswith(("a whole number", "true or false")) else ""
        return f"{shown(str(value))} is text; {expected} belongs here{fix}"
    if expected.startswith("a whole number") and re.fullmatch("-?[0-9]{19,}", unquoted):
        return f"{shown(unquoted)[1:-1]} has too many digits"
    if expected != "text":
        return f"{shown(unquoted)[1:-1]} is not {expected}"
    # Words for booleans and for nothing are no secrets.
    if _is_private(path) and _noun(value) in {"a number", "a date"}:
        return f"is {_noun(value)} in YAML; write it in quotes"
    taken_for = f"{shown(unquoted)[1:-1]} is {_noun(value)}"
    return f"{taken_for} in YAML; write it in quotes: {shown(unquoted)}"


def _noun(value: object) -> str:
    if isinstance(value, Unquoted):
        return value.taken_for
    return "a boolean" if isinstance(value, bool) else "a number"


def _wrong_version(value: object) -> str:
    """Which box reads that version: of major version N, all up to N (0.x counts as 1)."""
    here = f"this is box {reconciler.__version__}, which reads version 1"
    if type(value) is int and value > 1:
        return f"{value} is read by box {value}.0 and later; {here}"
    what = shown(value) if isinstance(value, str) else _plain(value)
    return f"{what} is no version of the format; {here}"


def _plain(value: object) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    if isinstance(value, bool):
        return "true" if value else "false"
    return shown(value.raw if isinstance(value, Unquoted) else str(value))[1:-1]
