"""Build hook: compiles the guest agent and makes the wheel one of the agent's machine."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Read by the installed program; a checkout reads them where they stand.
DATA = {
    "security": "reconciler/_security",
    "examples": "reconciler/_examples",
    "schemas": "reconciler/_schemas",
}
# The agent is static, so nothing but the machine ties the wheel to a C library.
PLATFORMS = ("manylinux_2_17_{arch}", "manylinux2014_{arch}", "musllinux_1_1_{arch}")


class AgentBuildHook(BuildHookInterface):  # type: ignore[type-arg]  # generic only by its config
    """Adds `reconciler/guest/agent/box-agent-<arch>` and the data folders to a wheel.

    BOX_WHEEL_ARCH (x86_64 or aarch64) names the machine to build for; unset: this one.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the agent; an editable install gets none (`box` builds its own when needed)."""
        if version == "editable":
            return
        arch = os.environ.get("BOX_WHEEL_ARCH") or platform.machine()
        self._target = tempfile.TemporaryDirectory(prefix="box-agent-")
        agent = Path(self._target.name) / f"box-agent-{arch}"
        # The hook runs in an environment where the project is not installed.
        sys.path.insert(0, self.root)
        from reconciler.guest.build import build_agent

        build_agent(agent.parent, arch)
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + ".".join(name.format(arch=arch) for name in PLATFORMS)
        build_data["force_include"][str(agent)] = f"reconciler/guest/agent/{agent.name}"
        for source, inside in DATA.items():
            build_data["force_include"][str(Path(self.root) / source)] = inside

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Drop the temporary folder once the wheel is written."""
        if version != "editable":
            self._target.cleanup()
