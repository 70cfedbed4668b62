"""Load each file of the arguments in a process of its own; print what it took, one line a file.

A program, so that a kill inside libyaml's binding takes no test along: `NAME CPU_SECONDS MIB`, or
`NAME failed` when it was killed or the loader failed inside. The memory is what the process grew
by at its largest.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from reconciler.boxfile.loader import load
from reconciler.boxfile.problems import InvalidBoxfile


def took(data: bytes) -> tuple[float, float]:
    """CPU seconds and MiB of one load."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    try:
        load(data, source="x")
    except InvalidBoxfile as error:
        # What is shown of it counts too.
        if "box itself failed" in str(error):
            os._exit(1)
    after = resource.getrusage(resource.RUSAGE_SELF)
    user = after.ru_utime - before.ru_utime
    system = after.ru_stime - before.ru_stime
    return user + system, (after.ru_maxrss - before.ru_maxrss) / 1024


def main() -> None:
    """Measure all, one after the other."""
    for name in sys.argv[1:]:
        data = Path(name).read_bytes()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            seconds, mib = took(data)
            sys.stdout.write(f"{name} {seconds:.3f} {mib:.1f}\n")
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status != 0:
            sys.stdout.write(f"{name} failed\n")


if __name__ == "__main__":
    main()
