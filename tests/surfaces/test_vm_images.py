"""Root images of a real distribution in a sandbox."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.linux.process import find_program
from tests.live import DATA, SMALL, Live

pytestmark = [pytest.mark.vm, pytest.mark.root, pytest.mark.slow]

BUILT = (
    SMALL
    + DATA
    + """
run:
  - echo "as $(id -u) <<EOF" > /built
blueprint:
  users:
    - name: agent
  write_files:
    - path: /etc/my motd
      content: "h\u00e4l'lo\\n\\t$X\\n"
      mode: "0640"
  runcmd:
    - chown agent '/etc/my motd'
"""
)


def test_what_a_boxfile_builds_is_in_its_machine(vms: Live, podman_storage: Path) -> None:
    for name in ("CONTAINERS_STORAGE_CONF", "CONTAINERS_CONF"):
        vms.extra[name] = os.environ[name]
    try:
        vms.declare("made", BUILT)
        script = "cat /built '/etc/my motd'; stat -c '%U %a' '/etc/my motd'; id"
        done = vms.box("run", "made", "--user", "agent", "--", "sh", "-c", script)
        assert done.stdout.decode() == (
            "as 0 <<EOF\nh\u00e4l'lo\n\t$X\nagent 640\n"
            "uid=1000(agent) gid=1000(agent) groups=1000(agent)\n"
        )
        assert b"runcmd[0]" in done.stderr
        again = vms.box("run", "made", "--", "cat", "/built")
        assert again.stdout == b"as 0 <<EOF\n"
        assert again.stderr == b""
        vms.declare("made", BUILT + "packages: [git]\n")
        refused = vms.box("run", "made", "--", "true", status=125)
        assert b"builtin:busybox has no package manager" in refused.stderr
        vms.declare("made", BUILT.replace("chown agent", "chown nobody-here"))
        failed = vms.box("run", "made", "--", "true", status=125)
        assert b"runcmd[0]" in failed.stderr
        assert b"nobody-here" in failed.stderr
    finally:
        vms.extra.clear()


@pytest.mark.skipif(find_program("mmdebstrap") is None, reason="needs mmdebstrap")
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
