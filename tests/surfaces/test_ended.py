from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from reconciler.guest.capture import Capture
from reconciler.guest.protocol import Exit
from reconciler.surfaces.cli.ended import as_value

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "exec-result.schema.json").read_text())
DONE = Exit(0, 0, timed_out=False)


def test_the_schema_is_closed_and_explained() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["required"] == list(SCHEMA["properties"])
    assert SCHEMA["additionalProperties"] is False
    assert all(each["description"] for each in SCHEMA["properties"].values())


@pytest.mark.parametrize("cut_by", ["the agent", "stdout", "stderr", ""])
def test_what_is_missing_is_told_whoever_left_it_out(cut_by: str) -> None:
    streams = {name: Capture(1, 1) for name in ("stdout", "stderr")}
    if cut_by in streams:
        streams[cut_by](b"abc")
    value = as_value(DONE._replace(truncated=cut_by == "the agent"), **streams, duration_ms=1)
    jsonschema.validate(value, SCHEMA)
    assert value["truncated"] is bool(cut_by)
    assert value["stdout_gap"] == ({"offset": 1, "length": 1} if cut_by == "stdout" else None)
