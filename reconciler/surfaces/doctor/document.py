"""What the doctor found as JSON: schemas/doctor.schema.json describes it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from reconciler.confinement.promises import PROMISES
from reconciler.engine.host.check import Check, Group, Status
from reconciler.engine.host.checks import IDS

VERSION = 1


def document(checks: tuple[Check, ...], mended: tuple[str, ...]) -> dict[str, Any]:
    """All checks as plain values; `mended` is what --fix brought before they were made."""
    return {
        "version": VERSION,
        "works": works(checks),
        "mended": list(mended),
        "checks": [_check(each) for each in checks],
    }


def works(checks: tuple[Check, ...]) -> bool:
    """Whether nothing failed: findings are not failures."""
    return not any(each.status is Status.FAILED for each in checks)


def _check(check: Check) -> dict[str, Any]:
    return {
        "id": check.id,
        "group": str(check.group),
        "status": str(check.status),
        "found": check.seen.found,
        "fix": check.seen.fix,
        "tried_as": check.tried_as,
        "bearing": asdict(check.bearing) if check.bearing else None,
    }


def schema() -> dict[str, Any]:
    """The JSON schema of the document (draft 2020-12)."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "box doctor -o json",
        **_object(
            version={"const": VERSION},
            works={"type": "boolean", "description": "Nothing failed; exit status 0."},
            mended={
                "type": "array",
                "items": {"type": "string"},
                "description": "What --fix brought, before the checks below were made.",
            },
            checks={"type": "array", "items": _object(**_CHECK)},
        ),
    }


def schema_text() -> str:
    """The committed file's content."""
    return json.dumps(schema(), indent=2) + "\n"


def _object(**properties: Any) -> dict[str, Any]:  # noqa: ANN401 - schemas are plain JSON
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


_WORDS = {"type": "array", "items": {"type": "string"}}
_CHECK: dict[str, Any] = {
    "id": {"enum": list(IDS), "description": "Stays the same for ever."},
    "group": {"enum": [str(each) for each in Group]},
    "status": {
        "enum": [str(each) for each in Status],
        "description": "Failures alone make the exit status 1.",
    },
    "found": {"type": "string", "description": "What was seen."},
    "fix": {
        "type": ["string", "null"],
        "description": "The one thing to do: a command line, or a sentence.",
    },
    "tried_as": {"type": "integer", "minimum": 0, "description": "The UID it was tried as."},
    "bearing": {
        "description": "What it has to do with the promises of security/promises.yaml.",
        "anyOf": [
            {"type": "null"},
            _object(
                effect={"enum": ["kept_by", "unread", "weakened"]},
                promises={"type": "array", "items": {"enum": [each.id for each in PROMISES]}},
                isolations=_WORDS,
                backends=_WORDS,
            ),
        ],
    },
}
