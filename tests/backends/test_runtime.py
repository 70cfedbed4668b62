from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from reconciler.backends import runtime


def test_under_systemd_the_cgroup_is_named_its_way() -> None:
    systemd = runtime.Runtime(Path("/usr/bin/crun"), systemd=True)
    plain = replace(systemd, systemd=False)
    slice_ = "system" if os.getuid() == 0 else "user"
    assert runtime.oci_cgroups_path(systemd, "g") == f"{slice_}.slice:box:g"
    assert runtime.cgroup_path(systemd, "g").endswith("/box-g.scope")
    assert runtime.oci_cgroups_path(plain, "g") == runtime.cgroup_path(plain, "g")
    assert runtime.environment(plain) == {}
    assert runtime.launcher_prefix(plain) == ()
    assert runtime.launcher_prefix(replace(systemd, path=Path("/usr/sbin/runc"))) == ()
