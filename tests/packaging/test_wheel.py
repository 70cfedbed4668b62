"""The wheel as a user gets it: built from a clone, installed into an empty environment, used."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ARCH = platform.machine()
AGENT = f"reconciler/guest/agent/box-agent-{ARCH}"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command with an empty environment but PATH and HOME; return what it printed."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "BOX_HOME": str(cwd / "box")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Build the wheel of a copy of the checkout, isolated: with what pyproject.toml asks for."""
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns(
        ".git", ".venv*", ".*_cache", "__pycache__", "box-agent-*", "tests"
    )
    shutil.copytree(ROOT, folder / "source", ignore=ignored)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, folder / "source", cwd=folder)
    (built,) = folder.glob("*.whl")
    yield built
    shutil.rmtree(folder)


def test_the_wheel_is_one_of_this_machine(wheel: Path) -> None:
    assert wheel.name.startswith("box_reconciler-")
    assert "-py3-none-manylinux_2_17_" in wheel.name
    assert ARCH in wheel.name


def test_the_wheel_carries_the_agent_the_security_files_and_the_examples(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        agent = archive.read(AGENT)
        mode = archive.getinfo(AGENT).external_attr >> 16
    assert agent.startswith(b"\x7fELF")
    assert mode & 0o111 == 0o111
    for source, inside in [
        ("security", "_security"),
        ("examples", "_examples"),
        ("schemas", "_schemas"),
    ]:
        files = {path.relative_to(ROOT / source) for path in (ROOT / source).rglob("*.*")}
        assert files
        assert {f"reconciler/{inside}/{path}" for path in files if path.suffix} <= names
    assert any(name.startswith("reconciler/_security/seccomp/") for name in names)
    assert "reconciler/py.typed" in names
    assert not any(name.startswith("tests/") for name in names)


def test_the_agent_inside_is_static(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        binary = Path(archive.extract(AGENT, tmp_path))
    # A dynamic binary names its loader in a PT_INTERP program header (elf(5)).
    data = binary.read_bytes()
    offset, size, count = (int.from_bytes(data[at : at + n], "little") for at, n in HEADER_FIELDS)
    types = {
        int.from_bytes(data[offset + i * size : offset + i * size + 4], "little")
        for i in range(count)
    }
    assert PT_LOAD in types
    assert PT_INTERP not in types


# e_phoff, e_phentsize and e_phnum of a 64-bit ELF header: place and size in bytes.
HEADER_FIELDS = ((0x20, 8), (0x36, 2), (0x38, 2))
PT_LOAD, PT_INTERP = 1, 3


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Install the wheel into an empty environment; yield its box."""
    folder = tmp_path_factory.mktemp("installed")
    run("/usr/bin/python3", "-m", "venv", "venv", cwd=folder)
    pip = (folder / "venv/bin/python", "-m", "pip", "install", "--quiet")
    run(*pip, "--constraint", ROOT / "constraints.txt", wheel, cwd=folder)
    yield folder / "venv/bin/box"
    shutil.rmtree(folder)


def test_the_wheel_installed_into_an_empty_environment_runs(
    wheel: Path, installed: Path, tmp_path: Path
) -> None:
    version = wheel.name.split("-")[1]
    assert version in run(installed, "--version", cwd=tmp_path)


def test_an_installed_box_has_the_examples_and_the_schema(installed: Path, tmp_path: Path) -> None:
    names = [path.stem for path in (ROOT / "examples").glob("*.Boxfile")]
    assert names
    run(installed, "new", "plain", cwd=tmp_path)
    for name in names:
        run(installed, "new", name, "--from", name, cwd=tmp_path)
    said = run(installed, "validate", "desired", cwd=tmp_path)
    assert said.splitlines() == [
        f"desired/{name}.Boxfile: good" for name in sorted([*names, "plain"])
    ]
    schema = (ROOT / "schemas/boxfile.schema.json").read_text()
    assert run(installed, "schema", cwd=tmp_path) == schema
    assert (tmp_path / "desired/.boxfile.schema.json").read_text() == schema
    assert "2048" in run(installed, "explain", "ram_mib", cwd=tmp_path)
