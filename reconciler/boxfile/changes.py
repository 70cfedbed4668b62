"""What a change of a Boxfile does to its sandbox, field by field, and whether it widens it. Pure.

Works on Boxfiles and on anything with the same fields as plain values, such as a spec's JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from reconciler.boxfile.packages import manager_of
from reconciler.boxfile.sizes import parse_size

if TYPE_CHECKING:
    from reconciler.boxfile.model import Boxfile

DEFAULT_DATA_BYTES = 8 << 30
DISK_BACKENDS = frozenset({"firecracker", "qemu"})
"""Those whose /data is a disk; on the others it is a folder, which a disk does not become."""


Fields = Mapping[str, Any]


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
    """How changes of a field are judged: by its values, its effect by all fields' values."""

    effect: Effect | Callable[[Fields, Fields], Effect]
    widens: Callable[[Any, Any], bool] = lambda _before, _after: False
    describe: Callable[[str, Any, Any], str] = lambda name, before, after: (
        f"{name} {_word(before)}→{_word(after)}"
    )

    def effect_of(self, old: Fields, new: Fields) -> Effect:
        """The effect of this field's change."""
        return self.effect(old, new) if callable(self.effect) else self.effect


def between(old: Boxfile, new: Boxfile) -> tuple[Change, ...]:
    """How `new` differs from `old`, in the order of the fields."""
    return changes(old.model_dump(), new.model_dump())


def changes(old: Fields, new: Fields) -> tuple[Change, ...]:
    """How `new` differs from `old` in the fields that both have; other keys do not count."""
    found = []
    for name, field in FIELDS.items():
        if name not in old or name not in new or old[name] == new[name]:
            continue
        before, after = old[name], new[name]
        found.append(
            Change(
                name,
                field.effect_of(old, new),
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
            words.append(f"+{guest} (host: {_mount_word(mount)})")
        elif was != mount:
            words.append(f"{guest} (host: {_mount_word(was)}→{_mount_word(mount)})")
    return " ".join([*words, *(f"-{guest}" for guest in old if guest not in new)])


def _mount_word(mount: dict[str, Any]) -> str:
    flags = [name for name in ("follow_symlink", "risky") if mount[name]]
    return ", ".join([f"{mount['host']} {mount['mode']}", *flags])


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


def _other_store(old: Fields, new: Fields) -> Effect:
    same = (old["backend"] in DISK_BACKENDS) == (new["backend"] in DISK_BACKENDS)
    return Effect.REBUILD if same else Effect.DATA_LOSING


def _other_manager(old: Fields, new: Fields) -> Effect:
    """Only packages ask for a manager, and the base may have told the same one."""
    managers = [_manager(fields) for fields in (old, new)]
    return Effect.NOTHING if managers[0] == managers[1] else Effect.REBUILD


def _manager(fields: Fields) -> str | None:
    if not fields["packages"]:
        return None
    return fields["pkgmgr"] or manager_of(fields["base"])


def _wider_backend(before: str, after: str) -> bool:
    # No capability and no port of the host there; six capabilities and a port on loopback here.
    return before in DISK_BACKENDS and after not in DISK_BACKENDS


def data_bytes(size: str | None) -> int:
    """The bytes of a `data_size` on a backend with a disk."""
    return DEFAULT_DATA_BYTES if size is None else parse_size(size)


def _resize(old: Fields, new: Fields) -> Effect:
    if new["backend"] not in DISK_BACKENDS:
        return Effect.LIVE  # a folder, which box measures
    before, after = data_bytes(old["data_size"]), data_bytes(new["data_size"])
    if before == after:
        return Effect.NOTHING
    return Effect.DATA_LOSING if after < before else Effect.RESTART


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
    "pkgmgr": Field(_other_manager),
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
