"""The shipped examples: each is good here, and says how it is used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.boxfile.loader import read
from reconciler.boxfile.schema import schema_text
from reconciler.errors import BoxError
from reconciler.surfaces import examples
from reconciler.surfaces.cli import app
from tests.surfaces.boxfiling import REPO, Capture

NAMES = (
    "ai-agent",
    "go-build",
    "node-dev",
    "offline",
    "python-dev",
    "tiny-alpine",
    "tiny-busybox",
    "tiny-node",
    "tiny-python",
)


def test_all_are_there_with_a_line_each(capsys: Capture) -> None:
    assert tuple(each.name for each in examples.examples()) == NAMES
    app.main(["new", "--list"])
    lines = capsys.readouterr().out.splitlines()[1:]
    assert tuple(line.split()[0] for line in lines) == NAMES
    app.main(["new", "--list", "-o", "json"])
    told = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in told] == list(NAMES)
    for each in told:
        assert each["summary"].endswith(".")
        assert len(each["summary"]) <= 100


@pytest.mark.parametrize("name", NAMES)
def test_each_makes_a_sandbox_that_validates(here: Path, capsys: Capture, name: str) -> None:
    assert app.main(["new", "x", "--from", name]) == 0
    capsys.readouterr()
    assert app.main(["validate", "desired"]) == 0
    assert capsys.readouterr() == ("desired/x.Boxfile: good\n", "")
    text = (here / "desired/x.Boxfile").read_text()
    assert text.splitlines()[0] == "# yaml-language-server: $schema=.boxfile.schema.json"
    assert "schemas/" not in text
    assert "NAME" not in text.replace("_NAME", "")
    assert "box run x -- " in text or "box exec x " in text


@pytest.mark.parametrize("example", examples.examples(), ids=lambda each: each.name)
def test_each_works_on_what_this_version_has(example: examples.Example) -> None:
    found = read(example.text.encode(), source=example.name)
    assert found.notes == ()
    boxfile = found.boxfile
    assert (boxfile.network, boxfile.data_size, boxfile.version) == ("none", "10G", 1)
    assert "bridge" in example.text or example.name == "offline"
    image = boxfile.base.partition("docker.io/library/")[2]
    assert boxfile.base == "builtin:busybox" or (image and ":" in image)
    assert image == "" or f"podman pull {boxfile.base}" in example.text


def test_agents_are_strict() -> None:
    boxfile = read(examples.example("ai-agent").text.encode(), source="").boxfile
    assert (boxfile.isolation, boxfile.on_drift) == ("strict", "stop")


@pytest.mark.parametrize("example", examples.examples(), ids=lambda each: each.name)
def test_the_repositorys_own_find_the_schema(example: examples.Example) -> None:
    first = example.text.splitlines()[0]
    target = first.removeprefix("# yaml-language-server: $schema=")
    assert target != first
    assert (REPO / "examples" / target).read_text() == schema_text()


@pytest.mark.parametrize(
    ("asked", "meant"),
    [("tinypython", "tiny-python"), ("agent", "ai-agent"), ("go", "go-build")],
)
def test_an_example_that_is_none_is_met_with_the_list(here: Path, asked: str, meant: str) -> None:
    with pytest.raises(BoxError) as caught:
        app.main(["new", "x", "--from", asked])
    assert f"did you mean {meant}?" in str(caught.value)
    for name in NAMES:
        assert name in str(caught.value)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("asked", ["../../etc/passwd", "", "\x1b[31m", "x" * 100_000])
def test_no_example_is_outside_the_folder(here: Path, asked: str) -> None:
    with pytest.raises(BoxError, match="There is no example") as caught:
        app.main(["new", "x", "--from", asked])
    assert "\x1b" not in str(caught.value)
    assert list(here.iterdir()) == []
