"""How long box takes to start VMs, beside the same VMs started by hand; see README.md.

Run as `.venv/bin/python bench/start.py [ROUNDS]`, as root or as an ordinary user.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from bench.rawvm import Hand
from reconciler.data import disk
from reconciler.engine import accelerator
from reconciler.engine.home import open_home
from reconciler.engine.parts import Parts, ensure_parts
from reconciler.engine.spec import Spec
from reconciler.surfaces import declared
from reconciler.vmm.qemu import Machine

_BOX = Path(__file__).resolve().parent.parent / "box"
_NAME = "web"
_ROUNDS = 7
_SECONDS = 300
_BOXFILE = """\
version: 1
base: builtin:busybox
isolation: strict
network: none
cpus: 1
ram_mib: 256
data_size: 64M
"""

Samples = dict[str, list[float]]

_RUN = "box run web -- true"
_RESTORE = "raw restore, claim, true, quit"
_UP = "box up web, no snapshot"
_BOOT = "raw cold boot until READY"
_TARGETS = ((_RUN, _RESTORE, 2.5), (_RUN, _BOOT, 0.35), (_UP, _BOOT, 1.25))


def main() -> int:
    """Measure, print the table and the verdicts; always 0."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else _ROUNDS
    with _private_home() as (home, spec):
        parts = ensure_parts(home, spec, _ignore)
        # The only one in this home: that of the VM that was brought up just now.
        meta = next((home / "snapshots").glob("*/meta.json"))
        machine = Machine(**json.loads(meta.read_bytes())["machine"])
        kvm = machine.accelerator == accelerator.KVM
        why = "" if kvm else f" ({accelerator.reason(home, spec.isolation)})"
        print(f"accelerator {machine.accelerator}{why}, {parts.runtime.name}, UID {os.getuid()}")
        print(
            f"kernel {parts.kernel.release}, {spec.ram_mib} MiB, {spec.cpus} CPU, {rounds} rounds"
        )
        hand = _by_hand(home, spec, parts, machine)
        _report(_measure(rounds, hand, meta.with_name("state")))
    return 0


def _measure(rounds: int, hand: Hand, state: Path) -> Samples:
    """Run all four, one after the other, `rounds` times."""
    samples: Samples = {what: [] for what in (_RESTORE, _RUN, _BOOT, _UP)}

    def cold_up() -> float:
        state.unlink()
        took = _timed_box("up", _NAME)
        _timed_box("down", _NAME)
        return took

    ways: dict[str, Callable[[], float]] = {
        _RESTORE: lambda: hand.restore(state),
        _RUN: lambda: _timed_box("run", _NAME, "--", "true"),
        _BOOT: hand.boot,
        _UP: cold_up,
    }
    for number in range(rounds):
        for what, way in ways.items():
            samples[what].append(way())
        print(f"round {number + 1}", end="\r", file=sys.stderr, flush=True)
    return samples


def _report(samples: Samples) -> None:
    print(f"\n{'':34}{'median':>9}{'min':>9}{'max':>9}  seconds")
    for what, times in samples.items():
        print(f"{what:34}{median(times):9.3f}{min(times):9.3f}{max(times):9.3f}")
    print()
    for ours, raw, most in _TARGETS:
        ratio = median(samples[ours]) / median(samples[raw])
        least = min(samples[ours]) / min(samples[raw])
        verdict = "PASS" if ratio <= most else "over"
        print(f"{verdict}  {ratio:.2f}x of at most {most:.2f}x  {ours} / {raw}")
        print(f"      {least:.2f}x of the minima: on a busy host, less by chance")


@contextlib.contextmanager
def _private_home() -> Iterator[tuple[Path, Spec]]:
    """A home and a declared sandbox `web`, built once; all of it is gone afterwards."""
    top = Path(tempfile.mkdtemp(prefix="box-bench."))
    os.environ["BOX_HOME"] = str(top / "home")
    os.environ["BOX_DESIRED"] = str(top / "desired")
    (top / "desired").mkdir()
    (top / "desired" / f"{_NAME}.Boxfile").write_text(_BOXFILE)
    try:
        _timed_box("up", _NAME)
        _timed_box("down", _NAME)
        home = open_home()
        yield home, declared.sandbox(home, _NAME)[0]
    finally:
        _box("down", _NAME)
        shutil.rmtree(top)


def _by_hand(home: Path, spec: Spec, parts: Parts, machine: Machine) -> Hand:
    directory = home.parent / "raw"
    directory.mkdir(mode=0o700)
    data = directory / "data.img"
    disk.ensure_disk(data, spec.data_bytes)
    hand = Hand(parts, machine, directory, data)
    hand.prepare()
    return hand


def _timed_box(*arguments: str) -> float:
    began = time.monotonic()
    done = _box(*arguments)
    took = time.monotonic() - began
    if done.returncode != 0:
        raise SystemExit(f"box {' '.join(arguments)} failed:\n{done.stderr.decode()}")
    return took


def _box(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [_BOX, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_SECONDS,
        check=False,
    )


def _ignore(_text: str) -> None:
    return


if __name__ == "__main__":
    sys.exit(main())
