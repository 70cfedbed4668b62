"""A VM started by hand: the same QEMU, arguments, kernel, disks and state as box's, and no jail."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reconciler.engine.parts import Parts
from reconciler.guest import channel, protocol
from reconciler.linux import process, sockets
from reconciler.vmm import qemu
from reconciler.vmm.qmp import Qmp

_SECONDS = 120.0
_FIRST_FD = 3


@dataclass(frozen=True)
class Hand:
    """What a VM by hand is started from; `directory` is private and holds nothing but its files."""

    parts: Parts
    machine: qemu.Machine
    directory: Path
    disk: Path

    def prepare(self) -> None:
        """Put the firmware into one directory, as the jail has it."""
        firmware = self.directory / "firmware"
        firmware.mkdir(mode=0o700)
        for path in self.parts.files.firmware:
            shutil.copy(path, firmware)

    def boot(self) -> float:
        """Seconds from the start of QEMU until the guest's agent says READY."""
        with self._started(incoming=False) as (began, _, _), self._session():
            return time.monotonic() - began

    def restore(self, state: Path) -> float:
        """Seconds from the start of QEMU until `true` has run in the guest and QEMU has quit."""
        with (
            self._started(incoming=True) as (began, control, ended),
            _opened(state, os.O_RDONLY) as source,
            _opened(self.disk, os.O_RDWR) as disk,
        ):
            qmp = Qmp(control, timeout_seconds=_SECONDS)
            control.restore(qmp, source, timeout_seconds=_SECONDS)
            control.attach_data(qmp, disk)
            qmp.execute("cont")
            with self._session() as session:
                session.claim(_claim())
                end = session.exec(["true"], {}, stdin=None, stdout=1, stderr=2)
            if protocol.exit_status(end) != 0:
                raise RuntimeError(end)
            qmp.execute("quit")
            ended()
            return time.monotonic() - began

    @contextlib.contextmanager
    def _session(self) -> Iterator[channel.Session]:
        with (
            channel.claim_port(self.directory, range(1)) as sock,
            channel.Session(sock, protocol.UNCLAIMED_TOKEN, _SECONDS) as session,
        ):
            yield session

    @contextlib.contextmanager
    def _started(
        self, *, incoming: bool
    ) -> Iterator[tuple[float, socket.socket, Callable[[], object]]]:
        names = ["qmp", *(f"p{number}" for number in range(self.machine.ports))]
        with contextlib.ExitStack() as stack:
            listeners = [sockets.listen_private(self.directory, name) for name in names]
            for name, listener in zip(names, listeners, strict=True):
                stack.callback((self.directory / name).unlink)
                stack.callback(listener.close)
            began = time.monotonic()
            fds = [listener.fileno() for listener in listeners]
            child = stack.enter_context(process.start(self._argv(fds, incoming), pass_fds=fds))
            control = sockets.connect_private(self.directory, "qmp", timeout_seconds=_SECONDS)
            stack.enter_context(control)
            # No timeout: with one, Popen sleeps between its looks.
            yield began, control, child.wait

    def _argv(self, fds: list[int], incoming: bool) -> list[str]:  # noqa: FBT001 - qemu's own word
        paths = qemu.Files(
            kernel=str(self.parts.kernel.path),
            initrd=str(self.parts.initrd),
            root=str(self.parts.image.path),
        )
        return qemu.command_line(
            str(self.parts.files.binary),
            self.machine,
            paths,
            qemu.Descriptors(qmp=fds[0], ports=fds[1:]),
            firmware=str(self.directory / "firmware"),
            incoming=incoming,
        )


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _claim() -> protocol.Claim:
    return protocol.Claim(
        token=secrets.token_bytes(protocol.TOKEN_SIZE),
        entropy=secrets.token_bytes(protocol.ENTROPY_SIZE),
        realtime_ns=time.time_ns(),
        machine_id=secrets.token_bytes(protocol.MACHINE_ID_SIZE),
        hostname="web",
        mount_data=True,
    )
