"""What reading a VMM back costs, beside only reading the same files; see README.md.

Run as `.venv/bin/python bench/readback.py [ROUNDS [SANDBOXES]]`, as root or as an ordinary user.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

from bench import standin
from bench.standin import StandIn
from reconciler.confinement import judging, noting
from reconciler.confinement.reading import Noted
from reconciler.engine.home import open_home
from reconciler.linux import cgroups, host_side, identity, neighbours, procfs, reading, tracing

_ROUNDS = 30
_SANDBOXES = 20
_PASSES = 5
_THREADS = 20
_IDLE_THREADS = 4
_FULL = 50
_PERIOD_SECONDS = 10.0
_FIRST, _AGAIN, _CORE = 4.0, 2.0, 0.02

Work = Callable[[], object]


def main() -> int:
    """Measure, print the table and the verdicts; always 0."""
    given = [int(each) for each in sys.argv[1:]]
    rounds, count = (*given, *(_ROUNDS, _SANDBOXES)[len(given) :])
    with _stand_ins(count) as found:
        _one(found[0], rounds)
        _many(found[1:])
    return 0


@contextlib.contextmanager
def _stand_ins(count: int) -> Iterator[list[StandIn]]:
    with tempfile.TemporaryDirectory(prefix="box-bench-", dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        home = Path(directory, "home")
        os.environ["BOX_HOME"] = str(home)
        program = standin.build(Path(directory))
        threads = [_THREADS, *[_IDLE_THREADS] * count]
        with standin.running(open_home(), program, threads) as found:
            yield found


def _one(one: StandIn, rounds: int) -> None:
    # All first ones before this process reads for itself: theirs have nothing to remember.
    noted = noting.from_json(json.loads(_in_child(lambda: json.dumps(_noted(one)))))
    samples: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, work in (
            ("files of a first reading", lambda: _first_files(one)),
            ("first reading, judged", lambda: _noted(one)),
        ):
            samples.setdefault(name, []).append(float(_in_child(partial(_cpu, work))))
    _check(one, noted)
    for _ in range(rounds):
        for name, work in (
            ("files of a re-reading", lambda: _files(one)),
            ("re-reading, judged", lambda: _judge(one, noted)),
            ("filters of a first reading", lambda: _filters(one)),
        ):
            samples.setdefault(name, []).append(_cpu(work))
    print(f"{_THREADS} threads, {len(one.policy.binds)} files mounted, {rounds} rounds")
    print(f"{'CPU time in ms':28} {'median':>8} {'least':>8} {'most':>8}")
    for name, values in samples.items():
        low, high = min(values) * 1000, max(values) * 1000
        print(f"{name:28} {median(values) * 1000:8.2f} {low:8.2f} {high:8.2f}")
    plain, first, plain_again, again, _ = (median(each) for each in samples.values())
    print()
    _verdict("first reading / its files", first / plain, _FIRST)
    _verdict("re-reading / its files", again / plain_again, _AGAIN)


def _many(found: list[StandIn]) -> None:
    """Re-read all of them, as a controller does every period, each beside all others."""
    known = {str(number): each.who for number, each in enumerate(found)}
    noted = [noting.note(_read(each)) for each in found]
    samples = []
    for _ in range(_PASSES + 1):
        begun = time.process_time()
        around = neighbours.read_neighbours(known)
        for number, (each, start) in enumerate(zip(found, noted, strict=True)):
            others = {name: other for name, other in around.items() if name != str(number)}
            read = reading.read_process(each.who, each.policy, noted=start, neighbours=others)
            judging.judge(each.policy, read)
        samples.append(time.process_time() - begun)
    whole = median(samples[1:])
    share = whole / len(found) * _FULL / _PERIOD_SECONDS
    each_ms = whole / len(found) * 1000
    print(
        f"\n{len(found)} of {_IDLE_THREADS} threads, re-read in turn: {each_ms:.2f} ms of CPU each"
    )
    _verdict(f"{_FULL} of them every {_PERIOD_SECONDS:.0f} s, of one core", share, _CORE)


def _verdict(what: str, have: float, most: float) -> None:
    print(f"{what}: {have:.3f}, at most {most}: {'yes' if have <= most else 'NO'}")


def _check(one: StandIn, noted: Noted) -> None:
    failed = [fact for fact in _judge(one, noted) if fact.failed]
    if failed:
        raise RuntimeError(f"the stand-in is not confined: {failed}")


def _noted(one: StandIn) -> dict[str, object]:
    """As at a start: read, noted and judged."""
    read = _read(one)
    noted = noting.note(read)
    judging.judge(one.policy, replace(read, noted=noted))
    return noting.to_json(noted)


def _read(one: StandIn) -> reading.Reading:
    return reading.read_process(one.who, one.policy)


def _judge(one: StandIn, noted: Noted) -> tuple[judging.Fact, ...]:
    read = reading.read_process(one.who, one.policy, noted=noted)
    return judging.judge(one.policy, read)


def _cpu(work: Work) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def _in_child(work: Work) -> str:
    """What `work` gives, as text, in a process of its own."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        procfs.parse_mountinfo.cache_clear()  # ours, which starting the stand-ins has parsed
        os.write(writer, str(work()).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    text = os.read(reader, 1 << 16).decode()
    os.close(reader)
    return text


def _filters(one: StandIn) -> None:
    with identity.open_process(one.who) as process:
        assert process is not None
        tracing.read_programs(
            process.directory, [int(t) for t in _listed(process.directory, "task")]
        )


def _first_files(one: StandIn) -> None:
    _filters(one)
    _files(one)


def _files(one: StandIn) -> None:
    """Read what a reading reads, each file as often, and look at nothing."""
    with identity.open_process(one.who) as process:
        assert process is not None
        layout = one.layout
        held = process.directory
        tids = _listed(held, "task")
        for tid in tids:
            _thread(held, tid)
        _listed(held, "task")
        for name in ("stat", "uid_map", "gid_map", "net/dev", "limits", "oom_score_adj"):
            process.read(name)
        process.read("mountinfo")
        process.read("maps")
        for fd in _listed(held, "fdinfo"):
            process.read(f"fdinfo/{fd}")
            os.readlink(f"fd/{fd}", dir_fd=held)
        for link in ("root", "cwd", "exe"):
            _place(link, held)
        root = os.open("root", os.O_PATH, dir_fd=held)
        for path in one.policy.masked_paths:
            with contextlib.suppress(FileNotFoundError):
                os.stat(path.lstrip("/"), dir_fd=root, follow_symlinks=False)
        for bind in one.policy.binds:
            os.stat(bind.target.lstrip("/"), dir_fd=root, follow_symlinks=False)
        os.close(root)
        _limits(one, layout)
        process.unchanged()
    _host(one)


def _thread(held: int, tid: str) -> None:
    fd = os.open(f"task/{tid}", os.O_DIRECTORY, dir_fd=held)
    for name in ("status", "cgroup"):
        identity.read_at(fd, name)
    for link in ("root", "cwd", *(f"ns/{kind}" for kind in host_side.KINDS)):
        os.stat(link, dir_fd=fd)
    with contextlib.suppress(OSError):
        identity.read_at(fd, "attr/current")
    os.close(fd)


def _limits(one: StandIn, layout: cgroups.Layout) -> None:
    for _ in range(2):
        for directory in layout.directories(one.policy.cgroup):
            with contextlib.suppress(FileNotFoundError):
                identity.read_at(-1, str(directory / "cgroup.procs"))
    names = (
        "pids.max",
        "memory.limit_in_bytes",
        "memory.memsw.limit_in_bytes",
        "memory.max",
        "memory.oom_control",
        "devices.list",
    )
    for directory in layout.directories(one.policy.cgroup):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                identity.read_at(-1, str(directory / name))
                identity.read_at(-1, str(directory.parent / name))


def _host(one: StandIn) -> None:
    for _ in range(2):
        identity.read_at(-1, "/proc/self/mountinfo")
    for kind in host_side.KINDS:
        Path(f"/proc/self/ns/{kind}").stat()
    for bind in one.policy.binds:
        _place(bind.source, None)
    for path in (*one.policy.masked_paths, *one.policy.read_only_paths):
        os.path.lexists(path)


def _place(path: str, held: int | None) -> None:
    fd = os.open(path, os.O_PATH, dir_fd=held)
    identity.read_at(-1, f"/proc/self/fdinfo/{fd}")
    os.readlink(f"/proc/self/fd/{fd}", dir_fd=held)
    os.close(fd)


def _listed(held: int, name: str) -> list[str]:
    fd = os.open(name, os.O_DIRECTORY, dir_fd=held)
    try:
        with os.scandir(fd) as entries:
            return [entry.name for entry in entries]
    finally:
        os.close(fd)


if __name__ == "__main__":
    sys.exit(main())
