"""How long commands in VMs take, beside what they are made of and beside podman; see README.md.

Run as `.venv/bin/python bench/commands.py [ROUNDS]`, as root or as an ordinary user.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from bench.plain_container import PlainContainer, plain_container
from reconciler.engine import contact, records
from reconciler.engine.contact import Contact
from reconciler.engine.home import open_home
from reconciler.guest import channel, protocol

_REPO = Path(__file__).resolve().parent.parent
_BOX = _REPO / "box"
_ROUNDS = 15
_SECONDS = 300
_AT_ONCE = 8
_BOXFILE = """\
version: 1
base: builtin:busybox
isolation: strict
network: none
cpus: 1
ram_mib: 256
data_size: 64M
"""
_WARM = "state: built\nwarm: 2\n"

Samples = dict[str, list[float]]

_PYTHON = "python3 -c pass"
_INNER = "in-process exec"
_RAW = "raw write and read of an EXEC"
_EXEC = "box exec web -- true"
_PODMAN = "podman exec plain true"
_RUN_DATA = "box run warm -- true"
_RUN = "box run --no-data warm -- true"
_IMPORTS = "imports of the exec path"
_PLAIN_IMPORTS = "import json, socket"


def main() -> int:
    """Measure, print the table and the verdicts; always 0."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else _ROUNDS
    with _private_home() as home, plain_container() as container:
        samples = _measure(rounds, _ways(home, container))
        _print_table(samples)
        _print_ratios(samples)
        _print_imports(rounds)
        _print_throughput(home)
    return 0


def _ways(home: Path, container: PlainContainer | None) -> dict[str, Callable[[], float]]:
    web = contact.running(home, "web")
    plain = [] if container is None else [(_PODMAN, lambda: _timed(container.exec_argv("true")))]
    run_data, run = lambda: _warm_run(home), lambda: _warm_run(home, "--no-data")
    # Nothing that runs in `web` comes right after something else that does: emulated, the second
    # one takes half the time of the first.
    return dict(
        [
            (_RAW, lambda: _raw_exec(web)),
            (_PYTHON, lambda: _timed([sys.executable, "-c", "pass"])),
            (_INNER, lambda: _inner_exec(web)),
            *plain,
            (_EXEC, lambda: _timed([_BOX, "exec", "web", "--", "true"])),
            (_RUN, run),
            (_RUN_DATA, run_data),
        ]
    )


def _measure(rounds: int, ways: dict[str, Callable[[], float]]) -> Samples:
    samples: Samples = {what: [] for what in ways}
    for number in range(rounds):
        for what, way in ways.items():
            samples[what].append(way())
        print(f"round {number + 1}", end="\r", file=sys.stderr, flush=True)
    return samples


def _timed(argv: list[str | Path]) -> float:
    began = time.perf_counter()
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
    )
    took = time.perf_counter() - began
    if done.returncode != 0:
        raise SystemExit(f"{argv} failed:\n{done.stderr.decode(errors='replace')}")
    return took


def _inner_exec(web: Contact) -> float:
    """What `box exec` does once it is loaded: take a port, prove the token, run, hear the end."""
    began = time.perf_counter()
    with channel.claim_port(web.directory) as sock, channel.Session(sock, web.token) as session:
        end = session.exec(["true"], {}, stdin=None, stdout=1, stderr=2)
    took = time.perf_counter() - began
    assert protocol.exit_status(end) == 0
    return took


def _raw_exec(web: Contact) -> float:
    """The same bytes written at once to the same port, and read until the guest's EXIT is there."""
    nonce = os.urandom(protocol.NONCE_SIZE)
    request = (
        web.token
        + nonce
        + protocol.encode_exec(protocol.Exec(["true"], {}))
        + protocol.encode_frame(protocol.STDIN_EOF)
    )
    exit_header = bytes([protocol.EXIT, 0, 0, 0, 12, 0, 0, 0])
    with channel.claim_port(web.directory, range(1)) as sock:
        sock.settimeout(_SECONDS)
        began = time.perf_counter()
        sock.sendall(request)
        heard = b""
        while exit_header not in heard:
            heard += sock.recv(1 << 16)
        return time.perf_counter() - began


def _warm_run(home: Path, *options: str) -> float:
    _until_filled(home)
    return _timed([_BOX, "run", *options, "warm", "--", "true"])


def _until_filled(home: Path) -> None:
    """Wait until the pool is full and nobody is at work on it."""
    deadline = time.monotonic() + _SECONDS
    while sum(vm.kind == records.WARM and vm.ready for vm in records.vm_records(home, "warm")) < 2:
        if time.monotonic() > deadline:
            raise SystemExit("the pool was not filled")
        time.sleep(0.05)
    time.sleep(0.3)


def _print_table(samples: Samples) -> None:
    print(f"\n{'':34}{'median':>9}{'min':>9}{'max':>9}  seconds")
    for what, times in samples.items():
        print(f"{what:34}{median(times):9.4f}{min(times):9.4f}{max(times):9.4f}")
    print()


def _print_ratios(samples: Samples) -> None:
    def ratio(of: Callable[[list[float]], float]) -> float:
        return of(samples[_EXEC]) / (3 * of(samples[_PYTHON]) + of(samples[_INNER]))

    _verdict(ratio(median), ratio(min), 1.0, f"{_EXEC} / (3 x {_PYTHON} + {_INNER})")
    for ours, other, most in (
        (_INNER, _RAW, 2.0),
        (_EXEC, _PODMAN, 0.6),
        (_RUN, _EXEC, 2.0),
        (_RUN_DATA, _EXEC, 2.0),
    ):
        if other not in samples:
            print(f"skip  {ours} / {other}: there is no podman that works here")
            continue
        middle = median(samples[ours]) / median(samples[other])
        _verdict(middle, min(samples[ours]) / min(samples[other]), most, f"{ours} / {other}")


def _verdict(middle: float, least: float, most: float, what: str) -> None:
    print(f"{'PASS' if middle <= most else 'over'}  {middle:.2f}x of at most {most:.2f}x  {what}")
    print(f"      {least:.2f}x of the minima: on a busy host, less by chance")


def _print_imports(rounds: int) -> None:
    """Time above a bare interpreter, whole processes, in turn."""
    codes = {
        "": "pass",
        _PLAIN_IMPORTS: "import json, socket",
        _IMPORTS: f"import sys; sys.path.insert(0, {str(_REPO)!r})\n"
        "import reconciler.surfaces.cli.main, reconciler.surfaces.cli.vm",
    }
    found: Samples = {what: [] for what in codes}
    for _ in range(rounds):
        for what, code in codes.items():
            found[what].append(_timed([sys.executable, "-I", "-c", code]))
    bare = median(found[""])
    ours, plain = (median(found[what]) - bare for what in (_IMPORTS, _PLAIN_IMPORTS))
    passed = "PASS" if ours < 0.040 else "over"
    print(f"{passed}  {ours * 1000:.0f} ms of at most 40 ms above a bare interpreter  {_IMPORTS}")
    print(f"      {ours / plain:.2f}x of {_PLAIN_IMPORTS}")


def _print_throughput(home: Path) -> None:
    """Fresh VMs one at a time, and eight at once; twice, in turn."""
    argv = [_BOX, "run", "--no-data", "cold", "--", "true"]
    one: list[float] = []
    many: list[float] = []
    for _ in range(3):
        one.append(sum(_timed(argv) for _ in range(_AT_ONCE)))
        many.append(_timed_together(argv))
    ratio = median(one) / median(many)
    passed = "PASS" if ratio >= 1.6 else "less"
    print(f"{passed}  {ratio:.2f}x of at least 1.60x  throughput of {_AT_ONCE} at once / in turn")
    print(f"      {max(one) / min(many):.2f}x at best, {min(one) / max(many):.2f}x at worst")
    records.vm_names(home)


def _timed_together(argv: list[str | Path]) -> float:
    began = time.perf_counter()
    running = [
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(_AT_ONCE)
    ]
    statuses = [each.wait(_SECONDS) for each in running]
    took = time.perf_counter() - began
    if any(statuses):
        raise SystemExit(f"{argv}: {statuses}")
    return took


@contextlib.contextmanager
def _private_home() -> Iterator[Path]:
    """A home: `web` is up, `warm` has VMs that wait, `cold` is built. Gone afterwards."""
    top = Path(tempfile.mkdtemp(prefix="box-bench."))
    os.environ["BOX_HOME"] = str(top / "home")
    os.environ["BOX_DESIRED"] = str(top / "desired")
    desired = top / "desired"
    desired.mkdir()
    (desired / "web.Boxfile").write_text(_BOXFILE)
    (desired / "warm.Boxfile").write_text(_BOXFILE + _WARM)
    (desired / "cold.Boxfile").write_text(_BOXFILE + "state: built\n")
    try:
        _timed([_BOX, "sync", desired])
        yield open_home()
    finally:
        for name in ("web", "warm", "cold"):
            subprocess.run(
                [_BOX, "down", name], stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
        shutil.rmtree(top)


if __name__ == "__main__":
    sys.exit(main())
