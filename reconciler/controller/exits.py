"""The end of a VMM is seen at once: a thread waits on the pidfds of all running ones."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable

from reconciler.linux.identity import ProcessIdentity, open_process


class Exits:
    """Calls `ended` with a sandbox's name when the process watched for it ends, each time once.

    Holds one descriptor a process; a name whose process cannot be watched is left to the resync.
    """

    def __init__(self, ended: Callable[[str], None]) -> None:
        self._ended = ended
        self._lock = threading.Lock()
        self._watched: dict[str, tuple[ProcessIdentity, int]] = {}
        self._poll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll.register(self._wake, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="exits", daemon=True)
        self._stopping = False

    def start(self) -> None:
        """Start waiting."""
        self._thread.start()

    def stop(self) -> None:
        """Stop waiting and let go of all processes, which live on."""
        self._stopping = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        with self._lock:
            for _, pidfd in self._watched.values():
                os.close(pidfd)
            self._watched.clear()
        self._poll.close()
        os.close(self._wake)

    def watch(self, name: str, identity: ProcessIdentity | None) -> None:
        """Watch this process for `name` instead of the one before; None watches none."""
        with self._lock:
            before = self._watched.get(name)
            if self._stopping or (before is not None and before[0] == identity):
                return
            self._drop(name)
            if identity is None:
                return
            pidfd = _pidfd_of(identity)
            if pidfd is not None:
                self._watched[name] = (identity, pidfd)
                self._poll.register(pidfd, select.EPOLLIN)
        if pidfd is None:
            self._ended(name)

    def _drop(self, name: str) -> None:
        before = self._watched.pop(name, None)
        if before is not None:
            self._poll.unregister(before[1])
            os.close(before[1])

    def _run(self) -> None:
        while not self._stopping:
            ready = {fd for fd, _ in self._poll.poll()}
            with self._lock:
                ended = [name for name, (_, pidfd) in self._watched.items() if pidfd in ready]
                for name in ended:
                    self._drop(name)
            for name in ended:
                self._ended(name)


def _pidfd_of(identity: ProcessIdentity) -> int | None:
    """A pidfd of our own; None when the process is gone."""
    with contextlib.suppress(OSError), open_process(identity) as process:
        if process is not None:
            return os.dup(process.pidfd)
    return None
