"""The JSON Schema (draft 2020-12) of the Boxfile, for editors and other programs."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from reconciler.boxfile import bases, packages, paths
from reconciler.boxfile.conditions import conditions
from reconciler.boxfile.model import Boxfile
from reconciler.boxfile.titles import TITLES

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_DEFINITION = "#/$defs/"
# In characters; those of paths count in bytes, which are no fewer.
_LONGEST = {
    "base": bases.MAX_LENGTH,
    "packages": packages.MAX_LENGTH,
    "mounts.host": paths.MAX_LENGTH,
    "mounts.guest": paths.MAX_LENGTH,
    "blueprint.users.shell": paths.MAX_LENGTH,
    "blueprint.write_files.path": paths.MAX_LENGTH,
    "seccomp": paths.MAX_LENGTH,
}


class _AsWritten(GenerateJsonSchema):
    """Keeps the order of keys, which in examples is the order of fields."""

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        return value


@dataclass(frozen=True, slots=True)
class Property:
    """A field in a schema: `rule` is its own, `inner` are the fields inside it."""

    path: str
    rule: dict[str, Any]
    required: bool
    inner: tuple[str, ...]


def schema_text() -> str:
    """Return the schema as it is committed in schemas/boxfile.schema.json."""
    return json.dumps(schema(), indent=2, ensure_ascii=True) + "\n"


def schema() -> dict[str, Any]:
    """Return the schema.

    It has no `$id`: there is no place to fetch it from, and editors find it by its path.
    """
    # A copy: parts of it are the model's own.
    made = copy.deepcopy(Boxfile.model_json_schema(schema_generator=_AsWritten))
    for each in properties(made):
        each.rule["title"] = TITLES[each.path]
        if each.path in _LONGEST:
            each.rule.get("items", each.rule)["maxLength"] = _LONGEST[each.path]
        empty = _empty(each.rule)
        if empty is not None and not each.required:
            each.rule.setdefault("default", empty)
    _end_patterns(made)
    for name, definition in made["$defs"].items():
        definition["title"] = re.sub("(?<=[a-z])(?=[A-Z])", " ", name).capitalize()
    order = ("title", "description", "type", "required", "properties", "additionalProperties")
    return {
        "$schema": DIALECT,
        **{key: made[key] for key in order},
        "allOf": conditions(made["properties"]),
        "$defs": made["$defs"],
    }


def properties(whole: Mapping[str, Any]) -> Iterator[Property]:
    """Every field of a schema, each before those inside it; lists have no indices in paths."""
    yield from _properties(whole, whole, "")


def _properties(
    whole: Mapping[str, Any], part: Mapping[str, Any], prefix: str
) -> Iterator[Property]:
    for name, rule in part["properties"].items():
        inner = _definition(whole, rule)
        names = tuple(inner["properties"]) if inner else ()
        yield Property(prefix + name, rule, name in part.get("required", ()), names)
        if inner:
            yield from _properties(whole, inner, f"{prefix}{name}.")


def _definition(whole: Mapping[str, Any], rule: Mapping[str, Any]) -> dict[str, Any] | None:
    """The definition a field, or each item of its list, refers to."""
    reference = rule.get("items", rule).get("$ref")
    if reference is None:
        return None
    found: dict[str, Any] = whole["$defs"][reference.removeprefix(_DEFINITION)]
    return found


def _empty(rule: Mapping[str, Any]) -> object:
    """What a list or mapping is when it is left out, which pydantic does not tell."""
    if rule.get("type") == "array":
        return []
    return {} if rule.get("type") == "object" or "$ref" in rule else None


def _end_patterns(value: object) -> None:
    """Let `$` match at the very end only, as in ECMA-262; Python's does before a last \\n too."""
    if isinstance(value, dict):
        if isinstance(value.get("pattern"), str):
            value["pattern"] = value["pattern"].removesuffix("$") + r"(?!\n)$"
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            _end_patterns(each)
