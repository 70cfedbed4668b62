"""The workflows can only be run elsewhere; what can be known of them here."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

REPO = Path(__file__).parents[2]
WORKFLOWS = sorted((REPO / ".github/workflows").glob("*.yml"))
PINNED = re.compile(r"[\w-]+/[\w./-]+@[0-9a-f]{40}")
# What hosted runners have besides what is looked for here.
OF_THE_RUNNER = frozenset({"sudo", "udevadm"})


def jobs_of(path: Path) -> dict[str, Any]:
    value = yaml.load(path.read_text(), Loader=yaml.BaseLoader)  # noqa: S506 - makes only text
    jobs = value["jobs"]
    assert isinstance(jobs, dict)
    return jobs


def steps_of(path: Path) -> list[dict[str, Any]]:
    return [step for job in jobs_of(path).values() for step in job["steps"]]


def commands_of(path: Path) -> list[list[str]]:
    """The words of each command that the steps run."""
    found = []
    for step in steps_of(path):
        for line in step.get("run", "").splitlines():
            found += [shlex.split(each) for each in re.split(r"\|\||&&|\|", line)]
    return found


def missing(words: list[str]) -> list[str]:
    """Of one command, the program or the files of the checkout that are not there."""
    program = words[1] if words[0] == "sudo" else words[0]
    files = [word for word in words if word.startswith(("./", "security/", "tests/", ".ci/"))]
    absent = [word for word in files if not (REPO / word).exists()]
    if "/" not in program and program not in OF_THE_RUNNER and shutil.which(program) is None:
        absent.append(program)
    return absent


def test_there_are_workflows() -> None:
    assert {path.name for path in WORKFLOWS} >= {"escape.yml", "security.yml"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read(path: Path) -> None:
    value = yaml.load(path.read_text(), Loader=yaml.BaseLoader)  # noqa: S506 - makes only text
    assert value["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in value["on"]
    assert "secrets." not in path.read_text()
    for job in jobs_of(path).values():
        assert "permissions" not in job
        assert int(job["timeout-minutes"]) <= 120


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_code_of_others_is_pinned_and_gets_no_credentials(path: Path) -> None:
    used = [step for step in steps_of(path) if "uses" in step]
    assert used
    for step in used:
        assert PINNED.fullmatch(step["uses"]), step["uses"]
        assert step["with"]["persist-credentials"] == "false"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_value_of_an_event_becomes_shell(path: Path) -> None:
    assert [step["run"] for step in steps_of(path) if "${{" in step.get("run", "")] == []


def test_a_machine_of_our_own_never_runs_a_pull_request() -> None:
    for path in WORKFLOWS:
        value = yaml.load(path.read_text(), Loader=yaml.BaseLoader)  # noqa: S506 - makes only text
        if any("self-hosted" in job["runs-on"] for job in jobs_of(path).values()):
            assert set(value["on"]) <= {"schedule", "workflow_dispatch"}, path.name


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_calls_is_there(path: Path) -> None:
    commands = commands_of(path)
    assert ["./box", "quickstart", "--yes"] in commands
    assert [words for words in commands if missing(words)] == []


def test_a_command_that_is_not_there_is_seen() -> None:
    assert missing(["sh", "security/no-such.sh", "./box"]) == ["security/no-such.sh"]
    assert missing(["no-such-program"]) == ["no-such-program"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_step_is_shell(path: Path) -> None:
    for step in steps_of(path):
        done = subprocess.run(
            ["sh", "-n", "-c", step.get("run", ":")], capture_output=True, timeout=10, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
