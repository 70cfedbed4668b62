"""Rules over more than one field, as far as a JSON Schema can say them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.boxfile.support import LACKS, Lack


def conditions(properties: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Members of `allOf` for a schema with these `properties`, those of the Boxfile."""
    found = [
        _when({"backend": backend}, _refusing(lacks, properties), properties)
        for backend, lacks in LACKS.items()
        if lacks
    ]
    reading = {"mounts": {"items": {"properties": {"mode": {"const": "ro"}}}}}
    found.append(_when({"isolation": "strict"}, {"properties": reading}, properties))
    bare = {"properties": {"base": {"pattern": "^builtin:"}}, "required": ["base"]}
    found.append({"if": bare, "then": {"properties": {"packages": {"maxItems": 0}}}})
    return found


def _when(
    values: Mapping[str, object], then: dict[str, Any], properties: Mapping[str, Any]
) -> dict[str, Any]:
    """`then` holds where all fields have these values, said or by default."""
    wanted: dict[str, Any] = {"properties": {name: {"const": v} for name, v in values.items()}}
    said = [name for name, value in values.items() if properties[name].get("default") != value]
    if said:
        wanted["required"] = said
    return {"if": wanted, "then": then}


def _refusing(lacks: tuple[Lack, ...], properties: Mapping[str, Any]) -> dict[str, Any]:
    then: dict[str, Any] = {
        "properties": {lack.field: _without(lack, properties[lack.field]) for lack in lacks}
    }
    # What a backend cannot do and has by default must be said otherwise.
    said = [lack.field for lack in lacks if properties[lack.field].get("default") in lack.asking]
    if said:
        then["required"] = said
    return then


def _without(lack: Lack, field: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a field that do not ask for what is lacking."""
    rule: dict[str, Any]
    if lack.asking:
        rule = {"enum": [value for value in field["enum"] if value not in lack.asking]}
    elif "default" not in field:
        rule = {"not": {}}
    elif field["type"] == "array":
        rule = {"maxItems": 0}
    else:
        rule = {"const": field["default"]}
    return {**rule, "$comment": lack.message}
