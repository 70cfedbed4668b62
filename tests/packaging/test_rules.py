"""Rules of this repository that no linter knows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_nothing_is_patched() -> None:
    patched = re.compile(r"(monkeypatch|environment)\.(setattr|setitem)\(")
    sources = [path for folder in ["reconciler", "tests"] for path in (ROOT / folder).rglob("*.py")]
    assert sources
    assert not [path for path in sources if patched.search(path.read_text())]


def test_the_lock_pins_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    pinned = {
        line.split("==")[0].lower()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    }
    assert {re.split("[<>=]", name)[0].lower() for name in wanted} <= pinned


def test_every_runtime_dependency_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    modules = {"pyyaml": "yaml"}
    code = "\n".join(path.read_text() for path in (ROOT / "reconciler").rglob("*.py"))
    for requirement in project["dependencies"]:
        name = re.split("[<>=]", requirement)[0].lower()
        assert re.search(rf"^\s*(import|from) {modules.get(name, name)}\b", code, re.MULTILINE)
