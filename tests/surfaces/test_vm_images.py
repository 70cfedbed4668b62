"""Root images of a real distribution in a sandbox."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.linux.process import find_program
from tests.live import DATA, SMALL, Live

pytestmark = [
    pytest.mark.vm,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(find_program("mmdebstrap") is None, reason="needs mmdebstrap"),
]


def test_a_debians_python_runs(vms: Live, debian: Path) -> None:
    # Relative to the Boxfile, as in a folder that is kept in git.
    os.link(debian, vms.folder / "debian.tar")
    base = SMALL.replace("builtin:busybox", "oci-archive:debian.tar")
    vms.declare("deb", base + DATA)
    script = "import os, sys; print(sys.version_info[0], os.getuid(), os.environ['PATH'])"
    done = vms.box("run", "deb", "--", "python3", "-c", script)
    assert done.stdout == b"3 0 /usr/bin:/bin\n"
    done = vms.box("run", "deb", "--", "stat", "-c", "%a %u:%g", "/bin/su", "/etc/shadow")
    assert done.stdout == b"4755 0:0\n640 0:42\n"
