"""An OCI runtime that weakens the spec by one thing and then is the real one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reconciler.backends.runtime import Runtime

_REPO = Path(__file__).parents[2]
_SCRIPT = """#!/usr/bin/python3 -IB
import json, os, sys
sys.path.insert(0, {repo!r})
from tests.probe import weaker_specs
config = sys.argv[sys.argv.index("--bundle") + 1] + "/config.json"
with open(config) as file:
    spec = json.load(file)
weaker_specs.{name}(spec, *{arguments!r})
with open(config, "w") as file:
    json.dump(spec, file)
# Only the root of the user namespace can make mount points in the jail's root.
unmapped = [{{"hostID": -1}}]
uids, gids = (spec["linux"].get(kind, unmapped) for kind in ("uidMappings", "gidMappings"))
os.chown(os.path.dirname(config) + "/rootfs", uids[0]["hostID"], gids[0]["hostID"])
os.execv({real!r}, [{real!r}, *sys.argv[1:]])
"""


def runtime_with(real: Runtime, weaken: str, folder: Path, *arguments: int) -> Runtime:
    """The runtime that does `weaken`, a function of `weaker_specs`; its program is in `folder`."""
    program = folder / real.name
    text = _SCRIPT.format(repo=str(_REPO), name=weaken, arguments=arguments, real=str(real.path))
    program.write_text(text)
    program.chmod(0o755)
    return replace(real, path=program)
