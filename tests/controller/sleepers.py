"""An engine whose VMs are `sleep` processes: real records, real processes, no guest."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from reconciler.confinement.facts import Fact
from reconciler.engine import records, traces
from reconciler.engine.home import open_home
from reconciler.engine.observe import Observation
from reconciler.engine.outcome import Done, Outcome
from reconciler.engine.plan import Action, ActionKind, plan
from reconciler.engine.records import STANDING, SandboxRecord, VmRecord
from reconciler.engine.spec import Spec
from reconciler.linux.identity import identify, open_process

GOOD = "base: builtin:busybox\nnetwork: none\n"
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Ran:
    """One pass that was asked for."""

    name: str
    spec: Spec | None
    source: Path | None
    at: float


class Sleepers:
    """Keeps one `sleep` a running sandbox. Remembers nothing but what a test wants to know.

    `outcomes` are handed out instead of a pass, per name, first one first; `holding` keeps passes
    of a name from ending until its event is set; `differs` has what is read of a running one.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.passes: list[Ran] = []
        self.done: list[Action] = []
        self.outcomes: defaultdict[str, list[Outcome]] = defaultdict(list)
        self.holding: dict[str, threading.Event] = {}
        self.begun: list[str] = []
        self.differs: dict[str, tuple[Fact, ...]] = {}
        self.unbuilt: set[str] = set()
        self.children: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    def names(self) -> tuple[str, ...]:
        return records.sandbox_names(self.home)

    def record(self, name: str) -> SandboxRecord | None:
        return records.sandbox_record(self.home, name)

    def observe(self, name: str) -> Observation:
        self.reap()
        vm = records.vm_record(self.home, name)
        running = False
        if vm is not None and vm.identity is not None:
            with open_process(vm.identity) as process:
                running = process is not None
        facts = self.differs.get(name, ()) if running else ()
        built = name not in self.unbuilt
        return Observation(name, self.record(name), vm, running, built, facts=facts)

    def plan(self, spec: Spec | None, seen: Observation) -> tuple[Action, ...]:
        return plan(spec, seen)

    def run_pass(
        self,
        name: str,
        spec: Spec | None,
        *,
        source: Path | None,
        folder: str | None,
        progress: Callable[[str], None],
    ) -> Outcome:
        with self._lock:
            self.passes.append(Ran(name, spec, source, time.monotonic()))
        if self.outcomes[name]:
            return self.outcomes[name].pop(0)
        seen = self.observe(name)
        actions = plan(spec, seen)
        for action in actions:
            self._apply(action, seen, spec, source, folder, progress)
        if spec is not None and source is not None:
            self._keep(name, spec, source, folder)
        return Done(actions)

    def _apply(
        self,
        action: Action,
        seen: Observation,
        spec: Spec | None,
        source: Path | None,
        folder: str | None,
        progress: Callable[[str], None],
    ) -> None:
        with self._lock:
            self.begun.append(f"{action.kind} {seen.name}")
        if seen.name in self.holding:
            while not self.holding[seen.name].wait(0.02):
                progress("still at it")
        match action.kind:
            case ActionKind.UPDATE if spec and source:
                self._keep(seen.name, spec, source, folder)
            case ActionKind.START | ActionKind.REPLACE if spec:
                self._stop(seen)
                self._start(spec)
            case ActionKind.STOP:
                self._stop(seen)
            case ActionKind.DESTROY:
                self._stop(seen)
                shutil.rmtree(self.home / "sandboxes" / seen.name)
            case _:
                pass
        with self._lock:
            self.done.append(action)

    def _keep(self, name: str, spec: Spec, source: Path, folder: str | None) -> None:
        record = SandboxRecord(name, spec, str(source), records.stamp(source), folder, 1)
        if record != self.record(name):
            records.keep_sandbox(self.home, record)

    def _start(self, spec: Spec) -> None:
        child = subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
        self.children.append(child)
        # Until it has executed the program, its identity is another one's.
        until(lambda: Path(f"/proc/{child.pid}/exe").readlink().name == "sleep")
        group = traces.group_of(self.home, spec.name)
        vm = VmRecord(spec.name, spec.name, STANDING, 1, group, spec, "ab" * 32)
        records.keep_vm(self.home, replace(vm, identity=identify(child.pid)))

    def _stop(self, seen: Observation) -> None:
        if seen.vm is not None:
            if seen.vm.identity is not None:
                with open_process(seen.vm.identity) as process:
                    if process is not None:
                        process.signal(signal.SIGKILL)
                        process.wait(_PATIENCE_SECONDS)
            records.forget_vm(self.home, seen.vm.vm)

    def reap(self) -> None:
        """Collect sleeps that have ended; a zombie is not running anyway."""
        for child in list(self.children):
            child.poll()

    def pid(self, name: str) -> int | None:
        """The PID of a sandbox's running sleep."""
        seen = self.observe(name)
        return seen.vm.identity.pid if seen.running and seen.vm and seen.vm.identity else None

    def kinds(self, name: str) -> list[str]:
        """The kinds of all that was done to one sandbox, in order."""
        return [str(action.kind) for action in self.done if action.sandbox == name]

    def count(self, name: str) -> int:
        """How many passes a name got."""
        return sum(1 for ran in self.passes if ran.name == name)


@contextmanager
def sleepers() -> Iterator[Sleepers]:
    """An engine on the BOX_HOME of the environment; its processes end with the block."""
    engine = Sleepers(open_home())
    try:
        yield engine
    finally:
        for held in engine.holding.values():
            held.set()
        for child in engine.children:
            child.kill()
            child.wait()


def put(path: Path, text: str = GOOD) -> Path:
    """Write a Boxfile as an editor does that saves by renaming; it is settled at once."""
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    temporary.replace(path)
    return path


def until(condition: Callable[[], object], what: str = "it") -> None:
    """Wait until a condition holds; fail after a minute."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.01)


def settle(path: Path) -> None:
    """Wait until a file is old enough to be believed."""
    until(lambda: time.time() - path.stat().st_ctime > 0.1, "settling")
