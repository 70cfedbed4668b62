"""What a change of a Boxfile does to its sandbox, field by field, and whether it widens it. Pure.

Works on Boxfiles and on anything with the same fields as plain values, such as a spec's JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from reconciler.boxfile.sizes import parse_size

if TYPE_CHECKING:
    from reconciler.boxfile.model import Boxfile

DEFAULT_DATA_BYTES = 8 << 30
DISK_BACKENDS = frozenset({"firecracker", "qemu"})
"""Those whose /data is a disk; on the others it is a folder, which a disk does not become."""


class Effect(StrEnum):
    """What it takes to make a change so, from nothing to the worst."""

    NOTHING = "nothing"
    LIVE = "live"
    RESTART = "restart"
    REBUILD = "rebuild"
    DATA_LOSING = "data-losing"


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs. `text` says how, without values that may be private."""

    field: str
    effect: Effect
    widening: bool
    text: str

    def __str__(self) -> str:
        """For a reason: `network none→bridge (restart, wider)`."""
        return f"{self.text} ({self.effect}{', wider' if self.widening else ''})"


@dataclass(frozen=True, slots=True)
class Field:
    """How changes of a field are judged, by its values before and after."""

    effect: Effect | Callable[[Any, Any], Effect]
    widens: Callable[[Any, Any], bool] = lambda _before, _after: False
    describe: Callable[[str, Any, Any], str] = lambda name, before, after: (
        f"{name} {_word(before)}→{_word(after)}"
    )

    def effect_of(self, before: object, after: object) -> Effect:
        """The effect of one change."""
        return self.effect(before, after) if callable(self.effect) else self.effect


def between(old: Boxfile, new: Boxfile) -> tuple[Change, ...]:
    """How `new` differs from `old`, in the order of the fields."""
    return changes(old.model_dump(), new.model_dump())


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Change, ...]:
    """How `new` differs from `old` in the fields that both have; other keys do not count."""
    found = []
    for name, field in FIELDS.items():
        if name not in old or name not in new or old[name] == new[name]:
            continue
        before, after = old[name], new[name]
        found.append(
            Change(
                name,
                field.effect_of(before, after),
                field.widens(before, after),
                field.describe(name, before, after),
            )
        )
    return tuple(found)


def _word(value: object) -> str:
    if value is None:
        return "unset"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _only_name(name: str, _before: object, _after: object) -> str:
    return name


def _added_and_removed(name: str, before: list[str], after: list[str]) -> str:
    added = [f"+{each}" for each in after if each not in before]
    removed = [f"-{each}" for each in before if each not in after]
    return " ".join([name, *added, *removed] if added or removed else [name, "in another order"])


def _keys(name: str, before: object, after: object) -> str:
    """The names of variables: their values may be private."""
    old, new = dict(_pairs(before)), dict(_pairs(after))
    added = [f"+{key}" for key in new if key not in old]
    removed = [f"-{key}" for key in old if key not in new]
    changed = [f"~{key}" for key in new if key in old and old[key] != new[key]]
    return " ".join([name, *added, *removed, *changed])


def _pairs(env: Any) -> Any:  # noqa: ANN401  # a mapping, or its items
    return env.items() if isinstance(env, Mapping) else env


def _mounts(name: str, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> str:
    old = {mount["guest"]: mount for mount in before}
    new = {mount["guest"]: mount for mount in after}
    words = [name]
    for guest, mount in new.items():
        was = old.get(guest)
        if was is None:
            words.append(f"+{guest} ({mount['mode']})")
        elif was["mode"] != mount["mode"]:
            words.append(f"{guest} {was['mode']}→{mount['mode']}")
        elif was != mount:
            words.append(f"~{guest}")
    return " ".join([*words, *(f"-{guest}" for guest in old if guest not in new)])


def _wider_mounts(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> bool:
    old = {(mount["host"], mount["guest"]): mount for mount in before}
    for mount in after:
        was = old.get((mount["host"], mount["guest"]))
        if was is None or (was["mode"], mount["mode"]) == ("ro", "rw"):
            return True
        if any(mount[flag] and not was[flag] for flag in ("follow_symlink", "risky")):
            return True
    return False


def _change_to(value: object) -> Callable[[object, object], bool]:
    return lambda _before, after: after == value


def _other_store(before: str, after: str) -> Effect:
    same = (before in DISK_BACKENDS) == (after in DISK_BACKENDS)
    return Effect.REBUILD if same else Effect.DATA_LOSING


def _wider_backend(before: str, after: str) -> bool:
    # No capability and no port of the host there; six capabilities and a port on loopback here.
    return before in DISK_BACKENDS and after not in DISK_BACKENDS


def data_bytes(size: str | None) -> int:
    """The bytes of a `data_size` on a backend with a disk."""
    return DEFAULT_DATA_BYTES if size is None else parse_size(size)


def _resize(before: str | None, after: str | None) -> Effect:
    old, new = data_bytes(before), data_bytes(after)
    if old == new:
        return Effect.NOTHING
    return Effect.DATA_LOSING if new < old else Effect.RESTART


FIELDS: dict[str, Field] = {
    "version": Field(Effect.NOTHING),
    "base": Field(Effect.REBUILD),
    "backend": Field(_other_store, _wider_backend),
    "isolation": Field(Effect.RESTART, _change_to("standard")),
    "cpus": Field(Effect.RESTART),
    "ram_mib": Field(Effect.RESTART),
    "network": Field(Effect.RESTART, _change_to("bridge")),
    "passt": Field(Effect.RESTART, _change_to(value=True)),
    "readonly": Field(Effect.RESTART, _change_to(value=False)),
    "timeout_seconds": Field(Effect.LIVE),
    "warm": Field(Effect.LIVE),
    "warmup": Field(Effect.LIVE, describe=_only_name),
    "packages": Field(Effect.REBUILD, describe=_added_and_removed),
    "run": Field(Effect.REBUILD, describe=_only_name),
    "env": Field(Effect.LIVE, describe=_keys),
    "mounts": Field(Effect.RESTART, _wider_mounts, _mounts),
    "blueprint": Field(Effect.REBUILD, describe=_only_name),
    "pkgmgr": Field(Effect.REBUILD),
    # Whether another profile allows more is not told by its path: only back to ours is not wider.
    "seccomp": Field(Effect.RESTART, lambda _before, after: after is not None),
    "data_size": Field(_resize),
    "state": Field(Effect.LIVE),
    "on_drift": Field(Effect.LIVE, _change_to("alert")),
    "protect": Field(Effect.LIVE),
}
"""Every field of a Boxfile."""

NEW_VM = tuple(
    name for name, field in FIELDS.items() if field.effect not in (Effect.NOTHING, Effect.LIVE)
)
"""The fields a running VM cannot be given: another value may mean another VM."""
