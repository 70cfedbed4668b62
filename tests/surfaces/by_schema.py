"""What a command printed as JSON, held to the schema that is committed for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

SCHEMAS = Path(__file__).parents[2] / "schemas"


def validator(name: str) -> jsonschema.Draft202012Validator:
    """Of the schema schemas/NAME.schema.json."""
    return jsonschema.Draft202012Validator(
        json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    )


def by_schema(name: str, text: str | bytes) -> Any:  # noqa: ANN401 - whatever JSON has
    """The value of a text that is by the schema. Raises ValidationError."""
    value = json.loads(text)
    validator(name).validate(value)
    return value
