"""A running command, whose output is read as it comes."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Literal

from reconciler.errors import Refused
from reconciler.surfaces.sdk import given

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType

    from reconciler.engine.contact import Contact
    from reconciler.surfaces.sdk.moving import Moving
    from reconciler.surfaces.sdk.result import Result

_LAST_SIGNAL = 64

Stream = Literal["stdout", "stderr"]


class Process:
    """A command in a sandbox, to be used in a `with` block, which starts it.

    Iterating gives pairs of "stdout" or "stderr" and some bytes, never none, as they come: each
    stream in its order. While nobody iterates, the command can write what the way holds, about half
    a MiB of each stream, and then waits. The end of the block ends the command, with all that it
    started, if that has not ended by itself; so does an exception in it.

    One thread iterates; `send_signal` may be called from any.
    """

    def __init__(
        self,
        vm: Callable[[], tuple[Path, Contact]],
        command: given.Command,
        stdin: bytes | given.Open | None,
    ) -> None:
        self._vm = vm
        self._command = command
        self._stdin = stdin
        self._stack = contextlib.ExitStack()
        self._moving: Moving | None = None
        self._result: Result | None = None

    def __enter__(self) -> Process:
        """Start it. Raises NotRunning, Busy, GuestFailed."""
        from reconciler.engine import command_log, contact
        from reconciler.guest import channel
        from reconciler.surfaces.sdk.moving import Moving

        if self._moving is not None:
            raise Refused("A process is started once.", hint="ask for another one")
        home, vm = self._vm()
        with contextlib.ExitStack() as stack:
            stdin = stack.enter_context(given.descriptor(self._stdin))
            stack.enter_context(contact.answering(vm))
            sock = stack.enter_context(channel.claim_port(vm.directory))
            session = stack.enter_context(channel.Session(sock, vm.token))
            request = self._command.request(vm)
            noted = command_log.noted(home, vm, "exec", request)
            self._moving = Moving(sock, session, noted, request, stdin)
            stack.callback(self._moving.close)
            self._moving.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it if it runs; nothing of it is left here."""
        self._stack.close()

    def __iter__(self) -> Iterator[tuple[Stream, bytes]]:
        """Give its output until that ends. Raises GuestFailed when the guest goes away."""
        moving = self._running()
        yield from moving.pieces()
        self._result = moving.result()

    def wait(self) -> Result:
        """Drop what output is left, and return how it ended."""
        if self._result is None:
            for _ in self:
                pass
        return self.result

    @property
    def result(self) -> Result:
        """How it ended, once its output was read to its end: without that, but with its totals."""
        if self._result is None:
            raise Refused("The command has not ended.", hint="read all its output, or wait()")
        return self._result

    def send_signal(self, signo: int | str) -> None:
        """Send a signal ("TERM", "SIGTERM", 15) to its process group; none once it has ended."""
        self._running().signal(_number(signo))

    def _running(self) -> Moving:
        if self._moving is None:
            raise Refused("The command was not started.", hint="with box.stream([...]) as process:")
        return self._moving


def _number(signo: int | str) -> int:
    if isinstance(signo, str):
        name = signo.upper()
        try:
            signo = signal.Signals[name if name.startswith("SIG") else f"SIG{name}"]
        except KeyError as error:
            raise Refused(f"There is no signal {signo!a}.") from error
    if not 1 <= signo <= _LAST_SIGNAL:
        raise Refused(f"There is no signal {signo}.")
    return int(signo)
