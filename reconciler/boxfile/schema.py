"""The JSON Schema (draft 2020-12) of the Boxfile, for editors and other programs."""

from __future__ import annotations

import json

from reconciler.boxfile.model import Boxfile


def schema_text() -> str:
    """Return the schema as it is committed in schemas/boxfile.json."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Boxfile.model_json_schema(),
    }
    return json.dumps(schema, indent=2, ensure_ascii=True) + "\n"
