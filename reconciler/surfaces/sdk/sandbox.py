"""One sandbox, by its name: commands in it, files in it, and whether it is up."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING

from reconciler.boxfile.names import check_name
from reconciler.errors import Frozen, NotRunning, Refused
from reconciler.surfaces.sdk import given

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import BinaryIO

    from reconciler.engine.contact import Contact
    from reconciler.engine.once import Machine
    from reconciler.engine.spec import Spec
    from reconciler.surfaces.sdk.process import Process
    from reconciler.surfaces.sdk.result import Result
    from reconciler.surfaces.standing import Converged

OUTPUT_LIMIT_BYTES = 16 << 20
FILE_LIMIT_BYTES = 64 << 20
_LONGEST_WAIT_SECONDS = 86_400


class Sandbox:
    """A sandbox that is declared: `name` is its Boxfile's, `home` another BOX_HOME (absolute).

    Nothing is opened and nothing kept: each call finds the sandbox anew, as `box` does, so one
    object serves any number of threads, and a Boxfile that changes is seen. A sandbox that `box`
    does not know yet is looked for in BOX_DESIRED, else in ./desired.

    As a context manager it brings the sandbox up, and takes it down again only if it was not up
    before. Where several blocks share one object, the last that ends takes it down.

    What commands have in common: `argv` is a list of words, no shell; `env` is added to the
    Boxfile's; `cwd`, `user` ("name", "uid", "name:group") and `timeout` (seconds; 0: none) are the
    sandbox's own unless given. `stdin` is bytes, or something with a descriptor, which is read
    from where that stands; none is an empty input. `limit_bytes` is what is kept of each stream.
    """

    def __init__(self, name: str, home: str | os.PathLike[str] | None = None) -> None:
        self.name = check_name(name)
        self._given_home = None if home is None else pathlib.Path(home)
        self._brought_up: list[int | None] = []

    def __repr__(self) -> str:
        return f"Sandbox({self.name!r})"

    def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | given.Open | None = None,
        env: Mapping[str, str] | None = None,
        cwd: given.Path | None = None,
        user: str | None = None,
        timeout: float | None = None,
        limit_bytes: int = OUTPUT_LIMIT_BYTES,
    ) -> Result:
        """Run a command in the VM that is up.

        Raises NotRunning, Busy when all channels stay taken for a minute, GuestFailed, Refused.
        """
        from reconciler.surfaces.sdk import carrying

        command = given.command(argv, env, cwd, user, timeout)
        given.checked_limit(limit_bytes)
        with carrying.told():
            return carrying.carry_out(*self._running(), "exec", command, stdin, limit_bytes)

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | given.Open | None = None,
        env: Mapping[str, str] | None = None,
        cwd: given.Path | None = None,
        user: str | None = None,
        timeout: float | None = None,
        limit_bytes: int = OUTPUT_LIMIT_BYTES,
        with_data: bool = True,
        wait_seconds: float | None = None,
    ) -> Result:
        """Run a command in a fresh VM, or a waiting one, gone when this returns or raises.

        /data is one VM's at a time: `wait_seconds` (up to a day) waits for it, `with_data` False
        runs without it. Raises DataHeld, NotFound, InvalidBoxfile, NotConfined, Missing where the
        host lacks something, and what `exec` raises.
        """
        from reconciler.engine import once, space
        from reconciler.surfaces.sdk import carrying

        command = given.command(argv, env, cwd, user, timeout)
        given.checked_limit(limit_bytes)
        _check_wait(wait_seconds, with_data=with_data)
        with carrying.told():
            home = self._home()
            machine = once.Machine(home, self.name)
            try:
                try:
                    vm = machine.start(
                        self._declared,
                        with_data=with_data,
                        wait_seconds=wait_seconds,
                        progress=_unheard,
                    )
                    with space.watched(home, _unheard_of, only=vm.vm):
                        return carrying.carry_out(home, vm, "run", command, stdin, limit_bytes)
                finally:
                    _end(home, self.name, machine)
            finally:
                # An interrupt may have hit that very call; twice is once.
                machine.end()

    def stream(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | given.Open | None = None,
        env: Mapping[str, str] | None = None,
        cwd: given.Path | None = None,
        user: str | None = None,
        timeout: float | None = None,
    ) -> Process:
        """Run a command in the VM that is up and read its output as it comes.

        with box.stream(["make"]) as process:
            for stream, data in process: ...
        """
        from reconciler.surfaces.sdk.process import Process

        return Process(self._running, given.command(argv, env, cwd, user, timeout), stdin)

    def read_file(
        self,
        path: given.Path,
        *,
        limit_bytes: int = FILE_LIMIT_BYTES,
        user: str | None = None,
        timeout: float | None = None,
    ) -> bytes:
        """Return what a regular file of the VM that is up holds; a link is followed.

        Raises NotFound, NotAFile, TooLarge, FileRefused, TimedOut, GuestFailed when the guest sends
        something else than one whole file; NotRunning.
        """
        data = bytearray()
        self._take(path, data.extend, limit_bytes, user, timeout)
        return bytes(data)

    def read_file_into(
        self,
        path: given.Path,
        file: BinaryIO,
        *,
        limit_bytes: int = FILE_LIMIT_BYTES,
        user: str | None = None,
        timeout: float | None = None,
    ) -> int:
        """Write what a file holds to an open file of ours, in pieces; return how many bytes.

        Raises as `read_file` does; after TimedOut and GuestFailed some may be written.
        """
        return self._take(path, file.write, limit_bytes, user, timeout)

    def write_file(
        self,
        path: given.Path,
        data: bytes | given.Readable,
        mode: int = 0o644,
        *,
        limit_bytes: int | None = None,
        user: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Make a file in the VM that is up, of bytes or of what an open file holds from here on.

        It belongs to `user`; its folder has to be there. What was there is replaced, but a folder
        is not. Not at once: while this runs, and when it fails, there may be no file or part of
        one; write to another name and move that where it matters. Raises TooLarge, NotFound,
        NotAFile, FileRefused, TimedOut, GuestFailed, NotRunning, and what the open file raises.
        """
        from reconciler.engine.archives import onefile

        if mode & ~0o777:
            raise Refused(f"A file's mode is 0 to 0o777, not {mode:#o}.")
        limit_ms = given.timeout_ms(timeout)
        with given.measured(data, limit_bytes) as (source, size):
            onefile.give(
                *self._running(), given.path(path), source,
                size=size, mode=mode, user=user, timeout_ms=limit_ms,
            )  # fmt: skip

    def is_up(self) -> bool:
        """Whether it has a VM that commands can run in now. Raises Refused without its proof."""
        try:
            self._running()
        except (Frozen, NotRunning):
            return False
        return True

    def up(self) -> bool:
        """Bring it up; False when it was. A changed Boxfile is applied, as `box up` does.

        Raises NotFound, InvalidBoxfile, NotConfined and others; Refused when it was stopped for a
        difference in its confinement, which only `box up` gets over: that is for a person. So is a
        frozen one: Frozen.
        """
        return self._converge("running").started

    def down(self) -> bool:
        """Stop it in order; False when it was not up. /data is kept.

        Raises Frozen when it is frozen: to end that is for a person, with `box down`.
        """
        from reconciler.surfaces import standing

        standing.refuse_frozen(self._home(), self.name)
        return self._converge("stopped").stopped

    def __enter__(self) -> Sandbox:
        """Bring it up."""
        done = self._converge("running")
        self._brought_up.append(done.incarnation if done.started else None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take it down if it is still what this object brought up."""
        ours = self._brought_up.pop()
        if ours is None:
            return
        try:
            now = self._running()[1].incarnation
        except (Frozen, NotRunning):
            # Frozen, it stays to be looked at.
            return
        if now == ours:
            self.down()

    def _take(
        self,
        path: given.Path,
        put: Callable[[bytes], object],
        limit_bytes: int,
        user: str | None,
        timeout: float | None,
    ) -> int:
        from reconciler.engine.archives import onefile

        given.checked_limit(limit_bytes)
        limit_ms = given.timeout_ms(timeout)
        return onefile.take(
            *self._running(), given.path(path), put,
            limit_bytes=limit_bytes, user=user, timeout_ms=limit_ms,
        )  # fmt: skip

    def _home(self) -> pathlib.Path:
        from reconciler.engine import home, place

        chosen = self._given_home
        place_ = place.home_place() if chosen is None else place.checked(str(chosen))
        return home.private_home(pathlib.Path(place_))

    def _declared(self) -> Spec:
        from reconciler.surfaces import declared

        return declared.sandbox(self._home(), self.name)[0]

    def _running(self) -> tuple[pathlib.Path, Contact]:
        from reconciler.engine import contact

        home = self._home()
        return home, contact.running(home, self.name)

    def _converge(self, state: str) -> Converged:
        from reconciler.surfaces import standing
        from reconciler.surfaces.sdk import carrying

        with carrying.told():
            return standing.converge(self._home(), self.name, state, _unheard)


def _check_wait(seconds: float | None, *, with_data: bool) -> None:
    if seconds is not None and not (with_data and 0 < seconds <= _LONGEST_WAIT_SECONDS):
        raise Refused("wait_seconds is more than 0, at most a day, and waits for /data.")


def _end(home: pathlib.Path, name: str, machine: Machine) -> None:
    if machine.end():
        from reconciler.engine.refilling import refill_beside

        refill_beside(home, name)


def _unheard(_text: str) -> None:
    """The progress of a start, which nobody watches."""


def _unheard_of(_name: str, _text: str) -> None:
    """The same of room on the host."""
