"""The last part of the file system that /data lies on: who would fill it stands still.

Disks are sparse, and may promise more than there is. Below the mark a VM whose disk has grown is
frozen before the host has nothing left, and goes on once there is room again. Where nearly nothing
is left, all with /data are: what one writes next would fail, and a guest whose writes fail takes
its /data for broken, and writes no more to it. What looks has to be running: the controller looks
after every VM of its home, `run` after its own. Where none does, a pass lets go on.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.engine import home as homes
from reconciler.errors import BoxError, Busy

if TYPE_CHECKING:
    from reconciler.engine.records import VmRecord

_MIB = 1 << 20
_MOST_KEPT = 1 << 30
# Of what is kept, the part where all stand still.
_LAST_PART = 4
# What the page cache of a fast host takes from one writer in a second.
_FASTEST = 4 << 30
_TICK_NS = 50_000_000
_QUICKEST_SECONDS, _SLOWEST_SECONDS = 0.02, 2.0

Told = Callable[[str, str], object]


class NoSpace(Busy):
    """The file system of /data is nearly full, so that nothing that writes to it is started."""


def mark(total: int) -> int:
    """How many bytes of a file system of `total` bytes no guest gets: a tenth, at most 1 GiB."""
    return min(total // 10, _MOST_KEPT)


def is_short(home: Path) -> bool:
    """Whether a VM that writes now would be frozen for it."""
    free, total = _room(home)
    return free < mark(total)


def check(home: Path) -> None:
    """Raise NoSpace when a VM that starts now would be frozen for what it writes."""
    free, total = _room(home)
    if free < mark(total):
        import shlex

        raise NoSpace(
            f"The file system of {home} is nearly full: {free // _MIB} MiB are free, and the last "
            f"{mark(total) // _MIB} are kept from guests.",
            hint=f"free some: du -sh {shlex.quote(str(home))}/*; a command without /data still "
            "runs: box run --no-data",
        )


def let_go_on(home: Path, name: str) -> bool:
    """Let a sandbox's standing VM go on that was paused, if there is room: who looked has ended.

    Raises OSError, Busy.
    """
    from reconciler.engine import contact

    if contact.frozen_for(home / "run" / name) != contact.NO_SPACE:
        return False
    free, total = _room(home)
    return _is_room(free, total) and _resume(home, name, free) is not None


class Watch:
    """Freezes the VMs that fill the last part, and lets them go on when there is room.

    `only` is the one VM to look after, "" for all. `told` gets each thing that was done: the name
    of a sandbox and a line.
    """

    def __init__(self, home: Path, told: Told, *, only: str = "") -> None:
        self._home = home
        self._told = told
        self._only = only
        self._blocks: dict[str, int] = {}
        self._known: Sequence[VmRecord] = ()
        self._read_at = 0

    def run(self, stop: threading.Event) -> None:
        """Look until `stop` is set; what goes wrong in one look is tried again in the next."""
        while True:
            try:
                seconds = self.look()
            except (OSError, BoxError):
                seconds = _SLOWEST_SECONDS
            if stop.wait(seconds):
                return

    def look(self) -> float:
        """Look once, and do what is to be done; how soon to look again, in seconds.

        As soon as the fastest writer could have used what is above the mark, or half of what is
        left. Raises OSError when there is nothing to look at.
        """
        free, total = _room(self._home)
        kept = mark(total)
        if free < kept:
            self._freeze(free, kept)
        else:
            self._blocks.clear()
            if _is_room(free, total):
                self._let_go_on(free)
        seconds = max(free - kept, free // 2) / _FASTEST
        return min(max(seconds, _QUICKEST_SECONDS), _SLOWEST_SECONDS)

    def _freeze(self, free: int, kept: int) -> None:
        from reconciler.engine import freezing, journal

        for vm, grown in self._growing(spare=free >= kept // _LAST_PART):
            does = f"grew by {grown} bytes" if grown else "cannot grow"
            why = (
                f"its /data {does} with {free // _MIB} MiB free on the file system, "
                f"of which {kept // _MIB} are kept from guests"
            )
            # One that does not stand still in time stays told to, and one that cannot be noted is
            # tried again in the next look; the next one may be the one that counts.
            with contextlib.suppress(BoxError, OSError):
                if freezing.pause(self._home, vm, why):
                    self._told(vm.sandbox, f"paused until there is room: {why}")
                    message = f"VM {vm.vm}: {why}"
                    journal.record(self._home, vm.sandbox, "Warning", "Paused", message)

    def _growing(self, *, spare: bool) -> list[tuple[VmRecord, int]]:
        """The VMs whose disks have grown since the last look, by how many bytes; most first.

        All of them, unless those that have not grown are to be spared, or stand still already.
        """
        from reconciler.engine import contact

        grown, seen = [], {}
        for vm in self._writers():
            with contextlib.suppress(FileNotFoundError):
                blocks = homes.disk_of(self._home, vm.sandbox).stat().st_blocks
                seen[vm.vm] = blocks
                before = self._blocks.get(vm.vm, blocks)
                at_rest = spare or contact.is_frozen(vm.directory(self._home))
                if blocks > before or not at_rest:
                    grown.append((vm, (blocks - before) * 512))
        self._blocks = seen
        return sorted(grown, key=lambda each: -each[1])

    def _writers(self) -> Sequence[VmRecord]:
        """The VMs with /data, read anew whenever a record was written: looks are close together."""
        from reconciler.engine import records

        changed = (self._home / "run").stat().st_mtime_ns
        if changed != self._read_at:
            self._known = tuple(
                vm
                for vm in records.vm_records(self._home)
                if vm.with_data and vm.identity and self._only in ("", vm.vm)
            )
            # What is written in the same tick of the file system's clock would not show.
            settled = time.time_ns() - changed > _TICK_NS
            self._read_at = changed if settled else 0
        return self._known

    def _let_go_on(self, free: int) -> None:
        from reconciler.engine import contact

        for note in (self._home / "run").glob(f"{self._only or '*'}/{contact.FROZEN}"):
            with contextlib.suppress(BoxError, FileNotFoundError):
                name = _resume(self._home, note.parent.name, free)
                if name is not None:
                    self._told(name, "goes on: there is room again")


@contextlib.contextmanager
def watched(home: Path, told: Told, *, only: str = "") -> Iterator[None]:
    """Have a thread look until the end of the block."""
    stop = threading.Event()
    watch = Watch(home, told, only=only)
    thread = threading.Thread(target=watch.run, args=(stop,), name="box-space", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _resume(home: Path, vm_name: str, free: int) -> str | None:
    """Let one VM go on that was paused; the name of its sandbox, None when it was not paused."""
    from reconciler.engine import freezing, journal, records

    vm = records.vm_record(home, vm_name)
    if vm is None or not freezing.resume(home, vm):
        return None
    message = f"VM {vm.vm}: {free // _MIB} MiB are free"
    journal.record(home, vm.sandbox, "Normal", "Resumed", message)
    return vm.sandbox


def _is_room(free: int, total: int) -> bool:
    """Whether one may go on; not at the mark itself, where it would be frozen again at once."""
    kept = mark(total)
    return free >= kept + kept // 2


def _room(home: Path) -> tuple[int, int]:
    """The bytes that are free for an ordinary user, and all of them, where the disks are."""
    found = os.statvfs(home / "sandboxes")
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
