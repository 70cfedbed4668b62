from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.errors import Missing
from reconciler.guest.build import agent_version, build_agent, find_agent, host_architecture


@pytest.mark.slow
def test_the_agent_is_static_and_knows_its_sources(tmp_path: Path) -> None:
    binary = build_agent(tmp_path)
    data = binary.read_bytes()
    assert binary.name == f"box-agent-{host_architecture()}"
    assert agent_version().encode() in data
    assert b"ld-musl" not in data
    assert os.access(binary, os.X_OK)
    assert list(tmp_path.iterdir()) == [binary]


@pytest.mark.slow
def test_the_same_sources_make_the_same_binary(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    assert build_agent(first).read_bytes() == build_agent(second).read_bytes()


def test_an_agent_that_is_there_is_not_built_again() -> None:
    before = find_agent().stat()
    assert find_agent().stat().st_ino == before.st_ino


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Missing):
        build_agent(tmp_path, "s390x")
    assert list(tmp_path.iterdir()) == []
