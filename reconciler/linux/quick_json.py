"""JSON by the C half of Python's own `json`, for commands that people wait for.

The other half compiles regular expressions when it is imported, which takes such a command as long
as a tenth of its guest's work. What comes out is what `json` makes of it, errors included.
"""

from __future__ import annotations

from typing import Any


def _c_half() -> Any:  # noqa: ANN401 - a module that nothing describes
    try:
        import _json
    except ImportError:  # another Python than CPython
        return None
    return _json


_C = _c_half()


class _Options:
    """What json.JSONDecoder tells its scanner when it is told nothing itself."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def loads(data: bytes) -> Any:  # noqa: ANN401 - JSON
    """What `json.loads` returns for UTF-8. Raises ValueError, RecursionError."""
    if _C is not None:
        text = data.decode().strip(" \t\n\r")
        try:
            value, end = _C.make_scanner(_Options)(text, 0)
        except StopIteration:
            end = -1
        if end == len(text):
            return value
    import json

    # Not JSON, most likely: it says where and why.
    return json.loads(data)


def dumps(value: dict[str, Any]) -> str:
    """What `json.dumps` returns for an object of text, whole numbers, lists and objects."""
    if _C is None:
        import json

        return json.dumps(value)
    return _dump(value)


def _dump(value: Any) -> str:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        return str(_C.encode_basestring_ascii(value))
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_dump(k)}: {_dump(each)}" for k, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_dump, value)) + "]"
    raise TypeError(f"{type(value).__name__} is nothing for JSON")
