"""The qemu backend: QEMU's microvm machine in our jail, software emulation where KVM fails."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reconciler.backends import jail
from reconciler.backends.jail import Jail
from reconciler.backends.runtime import Runtime, cgroup_path
from reconciler.backends.vmm_files import VmmFiles
from reconciler.codes import Code
from reconciler.confinement.policy import MIB, BindMount, Isolation, Policy, Slot, policy_for
from reconciler.errors import BoxError
from reconciler.guest import channel, protocol
from reconciler.guest.transfer import ChannelClosed
from reconciler.linux import sockets
from reconciler.linux.identity import ProcessIdentity
from reconciler.vmm import control, qemu
from reconciler.vmm.qemu import Machine
from reconciler.vmm.qmp import Qmp, QmpError

_FIRMWARE = "/firmware"
# Of this name: busybox's and uutils' env are env by what they are called.
_ENV = "/env"
_FILES = qemu.Files(kernel="/kernel", initrd="/initrd", root="/root.img")
_FIRST_FD = 3
_CONTROL_SECONDS = 30.0
_CONSOLE_TAIL = 2000


class VmmFailed(BoxError):
    """The VM did not come up, or broke off."""

    code = Code.VM_FAILED


@dataclass(frozen=True)
class Launch:
    """All that one VM is started from. `group` names its cgroup, `directory` holds its sockets."""

    home: Path
    runtime: Runtime
    files: VmmFiles
    name: str
    group: str
    directory: Path
    machine: Machine
    kernel: Path
    initrd: Path
    image: Path
    isolation: Isolation
    slot: Slot | None
    disk: Path
    snapshot: Path

    def policy(self) -> Policy:
        """What the VMM is held to."""
        ours = (
            BindMount(str(self.kernel), _FILES.kernel),
            BindMount(str(self.initrd), _FILES.initrd),
            BindMount(str(self.image), _FILES.root),
            BindMount(str(self.files.env), _ENV),
        )
        firmware = tuple(BindMount(str(p), f"{_FIRMWARE}/{p.name}") for p in self.files.firmware)
        same = (self.files.binary, *self.files.libraries, *self.files.plugins)
        programs = tuple(BindMount(str(path), str(path)) for path in same)
        return policy_for(
            backend="qemu",
            isolation=self.isolation,
            ram_mib=self.machine.ram_mib,
            cpus=self.machine.cpus,
            own_uid=os.getuid(),
            own_gid=os.getgid(),
            slot=self.slot,
            cgroup=cgroup_path(self.runtime, self.group),
            binds=(*ours, *firmware, *programs),
            devices=("/dev/kvm",) if self.machine.accelerator == "kvm" else (),
            open_files=(str(self.disk), str(self.snapshot)),
            largest_file_bytes=max(self.machine.data_bytes, 2 * self.machine.ram_mib * MIB),
        )

    def jail(self) -> Jail:
        """The jail the VMM runs in."""
        return Jail(self.home, self.runtime, self.name, self.group, self.policy())


class Vm:
    """A VM that is being brought up: not claimed yet, known to nobody but its maker."""

    def __init__(self, launch: Launch, qmp: Qmp, stack: contextlib.ExitStack) -> None:
        self.launch = launch
        self._qmp = qmp
        self._stack = stack
        self._session: channel.Session | None = None

    def ready(self, timeout_seconds: float) -> protocol.Ready:
        """Wait for the guest's agent, which says what kernel it runs on."""
        ports = channel.claim_port(self.launch.directory, range(1))
        sock = self._stack.enter_context(ports)
        self._session = self._stack.enter_context(
            channel.Session(sock, protocol.UNCLAIMED_TOKEN, timeout_seconds)
        )
        return self._session.ready

    def save(self, target: int, *, timeout_seconds: float) -> None:
        """Pause, and write the whole state to the open file `target`; goes on with `resume`."""
        control.save(self._qmp, target, timeout_seconds=timeout_seconds)

    def restore(self, source: int, *, timeout_seconds: float) -> None:
        """Load the state in the open file `source`; goes on with `resume`."""
        control.restore(self._qmp, source, timeout_seconds=timeout_seconds)

    def attach(self, disk: int) -> None:
        """Put the open disk image behind /data's device."""
        control.attach_data(self._qmp, disk)

    def resume(self) -> None:
        """Let the guest's CPUs run."""
        self._qmp.execute("cont")

    def claim(self, claim: protocol.Claim) -> None:
        """Give the VM its token, randomness, clock and name; it mounts /data if told to."""
        if self._session is None:
            raise VmmFailed("The VM was claimed before its agent was there.")
        self._session.claim(claim)

    def console(self) -> str:
        """The end of what the guest printed on its console, safe to show."""
        try:
            text = control.console(self._qmp)[-_CONSOLE_TAIL:].decode("ascii", "backslashreplace")
        except QmpError:
            return ""
        return "".join(c if c.isprintable() or c == "\n" else "?" for c in text).strip()


@contextlib.contextmanager
def start(
    launch: Launch, *, incoming: bool, meanwhile: Callable[[], None]
) -> Iterator[tuple[Vm, ProcessIdentity]]:
    """Start a VMM in its jail. After the block the VM lives on; if the block raises, it is gone.

    With `incoming` it waits for `restore`, else the guest boots at once. `launch.directory` exists
    and is private. `meanwhile` is called while the OCI runtime works. Raises VmmFailed with what
    VMM and guest said.
    """
    with contextlib.ExitStack() as stack:
        listeners = [
            sockets.listen_private(launch.directory, name) for name in _socket_names(launch)
        ]
        for listener in listeners:
            stack.callback(listener.close)
        descriptors = qemu.Descriptors(
            qmp=_FIRST_FD, ports=range(_FIRST_FD + 1, _FIRST_FD + 1 + launch.machine.ports)
        )
        argv = qemu.command_line(
            str(launch.files.binary),
            launch.machine,
            _FILES,
            descriptors,
            firmware=_FIRMWARE,
            incoming=incoming,
        )
        fds = [listener.fileno() for listener in listeners]
        # It becomes the VMM, in the same process: by the time that speaks, nothing is left of it.
        emptied = [_ENV, "-i", *argv]
        started = stack.enter_context(jail.start(launch.jail(), emptied, pass_fds=fds))
        # Ours go, so that a VMM that dies is an end of file for whoever connected.
        for listener in listeners:
            listener.close()
        vm: Vm | None = None
        try:
            control = sockets.connect_private(launch.directory, "qmp", timeout_seconds=5)
            stack.enter_context(control)
            meanwhile()
            started.wait()
            vm = Vm(launch, Qmp(control, timeout_seconds=_CONTROL_SECONDS), stack)
            yield vm, started.identity()
        except (QmpError, ChannelClosed, channel.NoAnswer) as error:
            said = (started.complaint(), str(error), vm.console() if vm else "")
            raise VmmFailed(
                "The VM did not come up.", details="\n".join(filter(None, said))
            ) from error


def _socket_names(launch: Launch) -> list[str]:
    return ["qmp", *(f"p{number}" for number in range(launch.machine.ports))]
