"""Facts about the fields of a Boxfile, for people: from the model and the tables beside it."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.boxfile.changes import DEFAULT_DATA_BYTES, FIELDS, Effect
from reconciler.boxfile.fields import LARGEST_DATA_BYTES, SMALLEST_DATA_BYTES
from reconciler.boxfile.known import unknown_key_message
from reconciler.boxfile.problems import shown
from reconciler.boxfile.scalars import needs_quotes
from reconciler.boxfile.schema import Property, properties, schema
from reconciler.boxfile.sizes import format_size
from reconciler.boxfile.support import LACKS
from reconciler.errors import BoxError

PROMISE = (
    "A box of major version N reads every Boxfile version up to N; 0.x counts as 1. Within a "
    "version, fields are only added and never change their meaning, and what is valid stays valid."
)
"""What users may rely on when box is upgraded."""

_EFFECTS = {
    Effect.NOTHING: "the sandbox is the same",
    Effect.LIVE: "taken over at once; the VM goes on",
    Effect.RESTART: "the VM is replaced; /data stays",
    Effect.REBUILD: "the image is built anew and the VM replaced; /data stays",
    Effect.DATA_LOSING: "what is in /data would be lost",
}
# Where the effect depends on the values.
_DEPENDS = {
    "backend": "rebuild: the image is built anew and the VM replaced; data-losing where /data is a "
    "disk for one backend and a folder of the host for the other",
    "data_size": "restart when larger, data-losing when smaller; refused once there is a /data, "
    "since box cannot resize a disk yet. On backends whose /data is a folder: live",
    "pkgmgr": "rebuild where it changes what installs the packages, else nothing",
}
# Which changes give a sandbox more reach, where its values cannot be counted.
_WIDER = {
    "mounts": "a new mount, one made rw, and one that is given follow_symlink or risky",
    "seccomp": "every profile but box's own",
}
# What fields without a fixed default are when they are left out.
_DEFAULTS = {
    "data_size": f"{format_size(DEFAULT_DATA_BYTES)} on backends with a disk, else no limit",
    "on_drift": "stop under isolation strict, else alert",
    "pkgmgr": "told by the base's name",
    "seccomp": "box's own profile",
}
# What may be written where the schema has a regular expression.
_TEXTS = {
    "base": "builtin:busybox, oci-archive:PATH (relative to the Boxfile), or an image reference: "
    "[registry/]name[:tag][@sha256:digest]",
    "data_size": "a whole number with K, M, G or T, from "
    f"{format_size(SMALLEST_DATA_BYTES)} to {format_size(LARGEST_DATA_BYTES)}",
    "seccomp": "the path of a .json file, relative to the Boxfile",
    "packages": "packages' names, with a version in the package manager's own way",
    "run": "shell commands of one line each",
    "warmup": "shell commands of one line each",
    "mounts.host": "an absolute path of the host, ~ or ~/...; no ..",
    "mounts.guest": "an absolute path of the guest, not over or in /data, /dev, /proc or /sys",
    "blueprint.users.name": "1 to 32 characters of a-z, 0-9, _ and -, starting with a letter or "
    "_; not root",
    "blueprint.users.shell": "an absolute path made of letters, digits and ._-/",
    "blueprint.write_files.path": "an absolute path of the guest, not over or in /data, /dev, "
    "/proc or /sys",
    "blueprint.write_files.content": "text, of control characters only tab and line ends",
    "blueprint.write_files.mode": "three or four octal digits in quotes",
    "blueprint.runcmd": "shell commands of one line each",
}


class UnknownField(BoxError):
    """There is no such field."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One field. `default` is None where it has no fixed one, which `default_words` says.

    `not_on` are the backends that cannot do it with their reason, `inner` the fields inside it.
    """

    path: str
    title: str
    description: str
    allowed: str
    required: bool
    default: object
    default_words: str
    examples: tuple[Any, ...]
    not_on: tuple[tuple[str, str], ...]
    effect: str
    wider: str
    inner: tuple[str, ...]

    @property
    def name(self) -> str:
        """The last word of the path, which stands in the file."""
        return self.path.rpartition(".")[2]

    @property
    def summary(self) -> str:
        """The first sentence of the description; all of it where it goes through the values."""
        if re.match(r"\w+: ", self.description):
            return self.description
        return re.split(r"(?<=[.])\s", self.description, maxsplit=1)[0]


@functools.cache
def entries() -> tuple[Entry, ...]:
    """All fields in the model's order, each before those inside it."""
    return tuple(_entry(each) for each in properties(schema()))


def find(path: str) -> Entry:
    """The entry of a field, given as `mounts.host` or as problems name it: `mounts[0].host`.

    Raises UnknownField, with what was probably meant.
    """
    plain = re.sub(r"\[[0-9]*\]", "", path)
    if plain.startswith("env."):
        plain = "env"
    known = {entry.path: entry for entry in entries()}
    if plain in known:
        return known[plain]
    above, _, last = plain.rpartition(".")
    if above in known and known[above].inner:
        message = unknown_key_message(last, known[above].inner)
        raise UnknownField(f"{shown(plain)} {message}", hint=f"box explain {above}")
    if deeper := [each for each in known if each.endswith(f".{plain}")]:
        message = f"is not a field; did you mean {listed(deeper, 'or')}?"
    else:
        message = unknown_key_message(plain, [each for each in known if "." not in each])
    raise UnknownField(f"{shown(plain)} {message}", hint="box explain")


def _entry(field: Property) -> Entry:
    rule, top = field.rule, field.path.partition(".")[0]
    return Entry(
        path=field.path,
        title=rule["title"],
        description=rule["description"],
        allowed=_allowed(field),
        required=field.required,
        default=rule.get("default"),
        default_words=_default_words(field),
        examples=tuple(rule["examples"]),
        not_on=_not_on(field.path),
        effect=_effect(top),
        wider=_wider(top, rule) if top == field.path else "",
        inner=field.inner,
    )


def _default_words(field: Property) -> str:
    if field.required:
        return "required"
    default = field.rule.get("default")
    return _DEFAULTS[field.path] if default is None else word(default)


def word(value: object) -> str:
    """A default as it is written in a Boxfile."""
    if isinstance(value, list | dict):
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return shown(value) if isinstance(value, str) and needs_quotes(value) else str(value)


def _allowed(field: Property) -> str:
    rule = field.rule
    if field.path in _TEXTS:
        return _TEXTS[field.path]
    if field.inner:
        several = "a list of mappings" if rule.get("type") == "array" else "a mapping"
        return f"{several} with {listed(field.inner, 'and')}"
    if choices := _choices(rule):
        return listed([word(value) for value in choices], "or")
    if rule["type"] == "object":
        return "names and values, both text; names are letters, digits and _"
    return f"a whole number from {rule['minimum']} to {rule['maximum']}"


def _choices(rule: Mapping[str, Any]) -> list[Any]:
    """All values of a field that has few."""
    if rule.get("type") == "boolean":
        return [False, True]
    return [rule["const"]] if "const" in rule else list(rule.get("enum", ()))


def listed(words: Sequence[str], conjunction: str) -> str:
    """`a, b or c`."""
    *first, last = words
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def _not_on(path: str) -> tuple[tuple[str, str], ...]:
    top = path.partition(".")[0]
    return tuple(
        (backend, lack.message)
        for backend, lacks in LACKS.items()
        for lack in lacks
        if lack.field == top
    )


def _effect(top: str) -> str:
    effect = FIELDS[top].effect
    return f"{effect}: {_EFFECTS[effect]}" if isinstance(effect, Effect) else _DEPENDS[top]


def _wider(path: str, rule: Mapping[str, Any]) -> str:
    if path in _WIDER:
        return _WIDER[path]
    choices = _choices(rule)
    widens = FIELDS[path].widens
    to = [after for after in choices if any(b != after and widens(b, after) for b in choices)]
    return f"to {listed([word(value) for value in to], 'or')}" if to else ""
