"""The schemas of what `status`, `events`, `plan` and `ls` print as JSON, committed in schemas/."""

from __future__ import annotations

import json
from typing import Any

from reconciler.boxfile.changes import Effect
from reconciler.controller.conditions import GENERATION_CHARACTERS
from reconciler.engine.plan import ActionKind

Schema = dict[str, Any]


def texts() -> dict[str, str]:
    """The content of each committed file, by its name."""
    found = {"status": _STATUS, "event": _EVENT, "plan": _PLAN, "ls": _LS}
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {
        f"{name}.schema.json": json.dumps({**draft, **schema}, indent=2) + "\n"
        for name, schema in found.items()
    }


def _object(properties: Schema, **more: Any) -> Schema:  # noqa: ANN401 - schemas are plain JSON
    return {
        **more,
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


def _list(items: Schema, description: str) -> Schema:
    return {"type": "array", "items": items, "description": description}


def _is(kind: str | list[str], description: str, **more: Any) -> Schema:  # noqa: ANN401
    return {"type": kind, "description": description, **more}


_MAYBE_WORD = ["string", "null"]
_MAYBE_NUMBER = ["integer", "null"]
_WORD: Schema = {"type": "string"}
_NAME = _is("string", "The sandbox's.")
_REASON = _is("string", "Why, as one word; new ones may come.", pattern="^[A-Z][A-Za-z]*$")
_TIME = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{3}Z"
_STATEMENT: Schema = {
    "status": {"enum": ["True", "False", "Unknown"], "description": "Whether it is so."},
    "reason": _REASON,
    "message": _is("string", "The same for people; may be empty."),
}
_OF_SANDBOXES = (
    "Accepted",
    "Built",
    "Confined",
    "DeletionHeld",
    "Frozen",
    "Ready",
    "Running",
    "Stalled",
    "Warm",
)
_CONDITION = _object(
    {
        "type": {"enum": list(_OF_SANDBOXES), "description": "What is said; each at most once."},
        **_STATEMENT,
        "observed_generation": _is(
            "string",
            "The declaration that it is about: the start of its digest; empty for none.",
            maxLength=GENERATION_CHARACTERS,
        ),
        "last_transition_time": _is(
            "string",
            "When `status` last changed: RFC 3339, UTC; or empty.",
            pattern=f"^({_TIME})?$",
        ),
    }
)
_OF_FOLDER = _object(
    {
        "type": {"enum": ["SourceAvailable", "DeletionHeld", "StaleGitLock"]},
        **_STATEMENT,
    }
)
_IGNORED = _list(_WORD, "Files that look like Boxfiles and are called like none.")

_STATUS: Schema = _object(
    {
        "folders": _list(
            _object(
                {
                    "path": _is("string", "Where it is, links resolved."),
                    "controller_pid": _is(_MAYBE_NUMBER, "Who converges it now; null for nobody."),
                    "log": _is("string", "The log of its controller."),
                    "conditions": _list(_OF_FOLDER, "What is said of the folder itself."),
                    "ignored": _IGNORED,
                }
            ),
            "The folder that was asked for; without one, all that own a sandbox of this home.",
        ),
        "sandboxes": _list(
            _object(
                {
                    "name": _NAME,
                    "folder": _is(_MAYBE_WORD, "The folder it is declared in; null for none."),
                    "source": _is(_MAYBE_WORD, "Its Boxfile."),
                    "generation": _is(
                        "string",
                        "The start of its declaration's digest; empty for none.",
                        maxLength=GENERATION_CHARACTERS,
                    ),
                    "declared_state": {
                        "enum": ["running", "stopped", "built", None],
                        "description": "What it should be; null while no good Boxfile says so.",
                    },
                    "running": _is("boolean", "Whether its VM runs."),
                    "pid": _is(_MAYBE_NUMBER, "Of its VMM, while that runs."),
                    "incarnation": _is(_MAYBE_NUMBER, "Counts its VMs; of the one that runs."),
                    "conditions": _list(_CONDITION, "What is said of it; none once it is gone."),
                }
            ),
            "Those of the folders; without one asked for, those that no folder owns too.",
        ),
    },
    title="box status -o json",
)

_DIFFERENCE = _object({"promise": _WORD, "want": _WORD, "have": _WORD})
_EVENT: Schema = {
    **_object(
        {
            "time": _is("string", "RFC 3339, UTC, to the millisecond.", pattern=f"^{_TIME}$"),
            "sandbox": _is("string", "Its name; empty for what is said of a folder."),
            "type": {"enum": ["Normal", "Warning"]},
            "reason": _REASON,
            "message": _is("string", "What happened, for people."),
            "previous": _is(
                "string",
                "SHA-256 of the line before, as it is in the file; zeros in the first.",
                pattern="^[0-9a-f]{64}$",
            ),
        },
        title="One line of box events -o json",
        description="Some reasons have more fields; new reasons and fields may come.",
    ),
    "additionalProperties": True,
}
_EVENT["properties"] |= {
    "details": _is(_MAYBE_WORD, "More of the message."),
    "cut": {"const": True, "description": "It was too long: the message is cut, fields are out."},
    "promise": _is("string", "Drift, DriftResolved, DriftAcknowledged: what is promised."),
    "want": _is(_MAYBE_WORD, "What was promised."),
    "have": _is(_MAYBE_WORD, "What was found."),
    "since": _is(_MAYBE_WORD, "When it was found first."),
    "vm": _is(_MAYBE_WORD, "The VM that it is about."),
    "incarnation": _is(_MAYBE_NUMBER, "Which of the sandbox's VMs that was."),
    "pid": _is(_MAYBE_NUMBER, "Of its VMM."),
    "start_time_ticks": _is(_MAYBE_NUMBER, "When that process started: proc(5), field 22."),
    "differences": _list(_DIFFERENCE, "What an action answers."),
    "widening": _list(_WORD, "Accepted: the fields that give the sandbox more reach."),
    "snapshots": _list(_WORD, "Collected: their keys."),
    "with_data": _is("boolean", "Destroyed: whether /data went too."),
}

_PROBLEM = _object(
    {
        "file": _WORD,
        "line": _is("integer", "From 1.", minimum=1),
        "column": _is("integer", "From 1.", minimum=1),
        "path": _is("string", "The field; empty for the whole file."),
        "message": _WORD,
    }
)
_CHANGE = _object(
    {
        "field": _WORD,
        "effect": {"enum": [str(each) for each in Effect]},
        "widening": _is("boolean", "Whether it gives the sandbox more reach."),
        "text": _is("string", "How it differs, without values that may be private."),
    }
)
_ACTION = _object(
    {
        "kind": {"enum": [str(each) for each in ActionKind]},
        "reason": _WORD,
        "widening": _list(_WORD, "The fields that give the sandbox more reach."),
        "changes": _list(_CHANGE, "The changes of the Boxfile that it makes so."),
    }
)
_PLAN: Schema = _object(
    {
        "folder": _is("string", "Where it is, links resolved."),
        "conditions": _list(_OF_FOLDER, "What is said of the folder itself."),
        "ignored": _IGNORED,
        "sandboxes": _list(
            _object(
                {
                    "name": _NAME,
                    "source": _is(_MAYBE_WORD, "The file that is read now; null for a last good."),
                    "accepted": {"enum": ["True", "False", "Unknown"]},
                    "reason": _REASON,
                    "message": _is("string", "Why, for people; may be empty."),
                    "problems": _list(_PROBLEM, "What is wrong with the file, each place."),
                    "actions": _list(_ACTION, "What a sync would do, in order."),
                    "error": _is(_MAYBE_WORD, "Why that cannot be told, or done."),
                }
            ),
            "Each name that the folder declares or owns.",
        ),
    },
    title="box plan -o json",
)

_LS: Schema = {
    "title": "box ls -o json",
    "type": "array",
    "items": _object(
        {
            "name": _NAME,
            "running": _is(["boolean", "null"], "Whether its VM runs."),
            "built": _is(["boolean", "null"], "Whether it could start from a snapshot."),
            "isolation": {"enum": ["standard", "strict", None]},
            "incarnation": _is(_MAYBE_NUMBER, "Counts its VMs; of the last one."),
            "source": _is(_MAYBE_WORD, "Its Boxfile; or why its record cannot be read."),
        },
        description="All but name and source are null where the record cannot be read.",
    ),
}
