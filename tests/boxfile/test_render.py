from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from reconciler.boxfile.loader import load
from reconciler.boxfile.model import Blueprint, Boxfile, Mount, User, WriteFile
from reconciler.boxfile.render import render
from tests.boxfile.corpus import EXAMPLES, GOOD
from tests.boxfile.strategies import BOXFILES


@pytest.mark.slow
@given(BOXFILES)
def test_what_is_rendered_loads_to_the_same(boxfile: Boxfile) -> None:
    assert load(render(boxfile).encode(), source="x") == boxfile


@given(BOXFILES)
@pytest.mark.slow
def test_rendering_depends_on_nothing_but_the_boxfile(boxfile: Boxfile) -> None:
    text = render(boxfile)
    assert render(load(text.encode(), source="x")) == text


@pytest.mark.parametrize("path", [*GOOD, *EXAMPLES], ids=lambda path: path.name)
def test_the_good_corpus_survives_rendering(path: Path) -> None:
    boxfile = load(path.read_bytes(), source=path.name)
    assert load(render(boxfile).encode(), source="x") == boxfile


def test_defaults_are_left_out() -> None:
    boxfile = Boxfile(
        base="builtin:busybox", network="none", ram_mib=512, env={"A": "no", "B": "b"}
    )
    assert render(boxfile) == (
        "version: 1\n"
        "base: builtin:busybox\n"
        "isolation: standard\n"
        "ram_mib: 512\n"
        "network: none\n"
        "env:\n"
        '  A: "no"\n'
        "  B: b\n"
    )


def test_what_is_inside_is_indented() -> None:
    blueprint = Blueprint(
        users=[User(name="agent", sudo=True)],
        write_files=[WriteFile(path="/etc/motd", content="a\n\tbé\u00a0\n")],
    )
    boxfile = Boxfile(
        base="alpine",
        backend="krun",
        packages=["git", "git=1"],
        mounts=[Mount(host="~/a", guest="/a", mode="rw"), Mount(host="/b", guest="/b")],
        blueprint=blueprint,
        on_drift="stop",
    )
    assert render(boxfile) == (
        "version: 1\n"
        "base: alpine\n"
        "backend: krun\n"
        "isolation: standard\n"
        "network: bridge\n"
        "packages:\n"
        "  - git\n"
        '  - "git=1"\n'
        "mounts:\n"
        '  - host: "~/a"\n'
        "    guest: /a\n"
        "    mode: rw\n"
        "  - host: /b\n"
        "    guest: /b\n"
        "blueprint:\n"
        "  users:\n"
        "    - name: agent\n"
        "      sudo: true\n"
        "  write_files:\n"
        "    - path: /etc/motd\n"
        '      content: "a\\n\\tbé\\U000000a0\\n"\n'
        "on_drift: stop\n"
    )
