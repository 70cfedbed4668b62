"""A thousand Boxfiles, loaded and scanned, against PyYAML's C loader on the same bytes.

Run as `.venv/bin/python bench/boxfiles.py [ROUNDS]`; it needs no guest and no root.

Loading is `reconciler.boxfile.loader.load`: bytes to a validated Boxfile. The yardstick is
`yaml.load(bytes, Loader=yaml.CSafeLoader)`, which parses and makes Python values of them. Both are
imported before the clock runs, both get every file once a round, in turn. Times are CPU time.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import yaml

from reconciler.boxfile.loader import load
from reconciler.controller.entry import SETTLE_SECONDS
from reconciler.controller.folder import Entry, Folder, Scan

COUNT = 1000
MOST_TIMES_YAML = 6.0
_ROUNDS = 9
_SHIPPED = Path(__file__).resolve().parent.parent / "desired"

_AGENT = """\
# Workplace of agent {n}.
version: 1
base: docker.io/library/debian:12
isolation: strict
network: none
cpus: {cpus}
ram_mib: 4096
timeout_seconds: 3600
packages: [git, ripgrep, python3, python3-venv, curl, ca-certificates, build-essential, jq]
run:
  - pip3 install --break-system-packages requests=={n}
  - ln -s /usr/bin/python3 /usr/local/bin/python
env:
  LANG: C.UTF-8
  EDITOR: vi
  AGENT: "{n}"
  GREETING: "it's agent {n} in $HOME, grüß dich"
blueprint:
  users:
    - name: agent
      shell: /bin/bash
      sudo: true
  write_files:
    - path: /etc/motd
      content: |
        Work in /data.
        The rest is thrown away.
    - path: /usr/local/bin/hello
      mode: "0755"
      content: |
        #!/bin/sh
        echo hello from {n}
  runcmd:
    - chown agent /srv
data_size: 20G
on_drift: stop
protect: true
"""
_SHARING = """\
base: registry.example:5000/team/web-{n}:v1@sha256:{digest}
backend: krun
cpus: {cpus}
ram_mib: 2048
warm: 2
warmup:
  - python3 -c 'import numpy'
pkgmgr: apt
packages:
  - git=1:2.39.5-0+deb12u2
  - libc6:arm64
env:
{env}
mounts:
{mounts}
seccomp: profiles/vmm.json
data_size: 64G
on_drift: freeze
"""


def main() -> int:
    """Measure, print the tables and the verdicts; always 0."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else _ROUNDS
    shapes = _shapes()
    thousand = [text for texts in shapes.values() for text in texts]
    print(f"{len(thousand)} Boxfiles, {sum(map(len, thousand)) // 1024} KiB, {rounds} rounds")
    print(f"\n{'':12}{'files':>7}{'bytes':>9}{'ratio':>9}{'least':>9}{'most':>9}")
    largest = [_largest(n).encode() for n in range(3)]
    for name, texts in {**shapes, "largest": largest, "all": thousand}.items():
        ratios = _ratios(texts, rounds)
        size = sum(map(len, texts)) // len(texts)
        row = f"{median(ratios):9.2f}{min(ratios):9.2f}{max(ratios):9.2f}"
        print(f"{name:12}{len(texts):7}{size:9}{row}")
    verdict = "PASS" if median(ratios) <= MOST_TIMES_YAML else "over"
    print(f"\n{verdict}  {median(ratios):.2f}x of at most {MOST_TIMES_YAML:.2f}x  load / yaml.load")
    _scan(thousand)
    return 0


def _shapes() -> dict[str, list[bytes]]:
    """Different Boxfiles of each shape, a thousand in all."""
    makers: dict[str, Callable[[int], str]] = {
        path.stem: partial("{}# {}\n".format, path.read_text())
        for path in sorted(_SHIPPED.glob("*.Boxfile"))
    }
    makers["agent"] = lambda n: _AGENT.format(n=n, cpus=n % 16 + 1)
    makers["sharing"] = _sharing
    each, rest = divmod(COUNT, len(makers))
    counts = [each + (number < rest) for number in range(len(makers))]
    return {
        name: [make(n).encode() for n in range(count)]
        for (name, make), count in zip(makers.items(), counts, strict=True)
    }


def _sharing(n: int) -> str:
    env = "\n".join(f'  VARIABLE_{i}: "value {i} of {n}, $HOME"' for i in range(20))
    mounts = "\n".join(
        f"  - host: ~/projects/{n}/{i}\n    guest: /work/{i}\n    mode: {'rw' if i else 'ro'}"
        for i in range(8)
    )
    return _SHARING.format(n=n, cpus=n % 16 + 1, digest=f"{n:064x}", env=env, mounts=mounts)


def _largest(n: int) -> str:
    """As much as there may be of most things; not one of the thousand."""
    fields = {
        "packages": "\n".join(f"  - package-{i}" for i in range(512)),
        "run": "\n".join(f"  - echo {n} {i} >> /etc/numbers" for i in range(512)),
        "env": "\n".join(f"  VARIABLE_{i}: value {i}" for i in range(1500)),
        "mounts": "\n".join(f"  - {{host: ~/{n}/{i}, guest: /work/{i}}}" for i in range(64)),
        "blueprint": "  write_files:\n"
        + "\n".join(f"    - path: /srv/{i}\n      content: text {i} of {n}" for i in range(512)),
    }
    lines = "\n".join(f"{field}:\n{value}" for field, value in fields.items())
    return f"base: debian\nbackend: krun\n{lines}\n"


def _ratios(texts: list[bytes], rounds: int) -> list[float]:
    """What loading all texts took, in terms of what yaml took, once a round."""
    found = []
    for _ in range(rounds):
        began = time.process_time()
        for text in texts:
            yaml.load(text, Loader=yaml.CSafeLoader)
        between = time.process_time()
        for text in texts:
            load(text, source="web.Boxfile")
        found.append((time.process_time() - between) / (between - began))
    return found


def _scan(texts: list[bytes]) -> None:
    """Scan a folder of them, then once more: what did not change is not read again."""
    with tempfile.TemporaryDirectory(prefix="box-bench.") as scratch:
        for number, text in enumerate(texts):
            (Path(scratch) / f"web-{number}.Boxfile").write_bytes(text)
        # Until they rest, they count as being written.
        time.sleep(2 * SETTLE_SECONDS)
        folder = Folder(Path(scratch))
        first, first_seconds = _timed(folder)
        second, second_seconds = _timed(folder)
        # Another time of change and the same text: the way of a file that was touched.
        os.utime(Path(scratch) / "web-0.Boxfile")
        time.sleep(2 * SETTLE_SECONDS)
        third, _ = _timed(folder)
    print(f"\nscan of {len(first.entries)} unchanged files")
    print(f"parsed again             {_parsed_again(first, second)} (after one touch: ", end="")
    print(f"{_parsed_again(second, third)})")
    print(f"second scan / first      {second_seconds / first_seconds:.3f}")


def _timed(folder: Folder) -> tuple[Scan, float]:
    began = time.process_time()
    scan = folder.scan()
    return scan, time.process_time() - began


def _parsed_again(before: Scan, after: Scan) -> int:
    """How many entries were parsed anew: what was kept is the same object.

    Mounts are judged in every scan, which makes a new state of the same parsed text.
    """
    pairs = zip(before.entries, after.entries, strict=True)
    return sum(one.state is not other.state and not _kept(one, other) for one, other in pairs)


def _kept(one: Entry, other: Entry) -> bool:
    text = getattr(one.state, "loaded", None)
    return text is not None and text is getattr(other.state, "loaded", None)


if __name__ == "__main__":
    sys.exit(main())
