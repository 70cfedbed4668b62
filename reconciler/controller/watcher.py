"""Wake-ups from the file system: a hint that something in the folder may have changed.

Supervised, because watchfiles ends for good on a name that is not UTF-8, on a removed folder and
where inotify's limits are reached. While it is not up, the loop scans more often: see `degraded`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from watchfiles import watch

from reconciler.errors import BoxError
from reconciler.linux.procfs import parse_mountinfo

_DEBOUNCE_MS = 150
_STEP_MS = 20
_UP_MS = 250
_FIRST_RETRY_SECONDS = 0.5
_LONGEST_RETRY_SECONDS = 30.0
# On these a change made by another machine, or below the mount, makes no event.
_SILENT = ("nfs", "cifs", "smb", "9p", "fuse", "overlay", "virtiofs", "vboxsf", "ceph")


class Watcher:
    """Watches a folder and some folders in it, not recursively; calls `woken` on any event."""

    def __init__(self, woken: Callable[[], None]) -> None:
        self._woken = woken
        self._paths: tuple[Path, ...] = ()
        self._generation: object = None
        self._stop: threading.Event | None = None
        self.degraded: str | None = "not started"
        """Why events cannot be relied on; None when they can."""

    def watch(self, folder: Path, subfolders: tuple[Path, ...], identity: object) -> None:
        """Watch these from now on; `identity` tells one directory at the path from the next."""
        paths = (folder, *subfolders)
        if (paths, identity) == (self._paths, self._generation):
            return
        self.stop()
        if identity is None:
            self.degraded = f"{folder} is not there"
            return
        self._paths, self._generation = paths, identity
        self._stop = threading.Event()
        threading.Thread(
            target=self._supervise, args=(paths, self._stop), name="watcher", daemon=True
        ).start()

    def stop(self) -> None:
        """Stop watching."""
        if self._stop is not None:
            self._stop.set()
        self._stop, self._paths, self._generation = None, (), None

    def _supervise(self, paths: tuple[Path, ...], stop: threading.Event) -> None:
        retry_seconds = _FIRST_RETRY_SECONDS
        silent = _silent_file_system(paths[0])
        while not stop.is_set():
            self.degraded = silent
            try:
                self._listen(paths, stop)
                why = "the watch ended"
            except Exception as error:  # noqa: BLE001  # watchfiles raises its own and several OSErrors
                why = str(error)
            if stop.is_set():
                return
            self.degraded = why
            self._woken()
            stop.wait(retry_seconds)
            retry_seconds = min(retry_seconds * 2, _LONGEST_RETRY_SECONDS)

    def _listen(self, paths: tuple[Path, ...], stop: threading.Event) -> None:
        changes = watch(
            *paths,
            watch_filter=None,
            debounce=_DEBOUNCE_MS,
            step=_STEP_MS,
            # Only so that the first answer says that the watch is up: what changed before that made
            # no event. It counts on the wall clock, which may jump, so nothing else hangs on it.
            rust_timeout=_UP_MS,
            yield_on_timeout=True,
            stop_event=stop,
            raise_interrupt=False,
            recursive=False,
            force_polling=False,
            # True would hide every error of a path, not only this one.
            ignore_permission_denied=False,
        )
        up = False
        for found in changes:
            if not up or any(_matters(paths[0], Path(path)) for _, path in found):
                self._woken()
            up = True


def _matters(folder: Path, path: Path) -> bool:
    """Whether an event may mean a Boxfile: git and editors make many that do not."""
    try:
        first = path.relative_to(folder).parts[:1]
    except ValueError:
        return True
    return first != (".git",)


def _silent_file_system(folder: Path) -> str | None:
    """Why no events may come from where `folder` is; None when they do come."""
    try:
        mounts = parse_mountinfo(Path("/proc/self/mountinfo").read_bytes())
    except (OSError, BoxError):
        return None
    covering = [mount for mount in mounts if folder.is_relative_to(mount.target)]
    if not covering:
        return None
    # The last of those with the longest path is on top.
    fstype = max(enumerate(covering), key=lambda each: (len(each[1].target), each[0]))[1].fstype
    return f"{fstype} may not tell of changes" if fstype.startswith(_SILENT) else None
