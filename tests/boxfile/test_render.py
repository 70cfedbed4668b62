from __future__ import annotations

from hypothesis import given

from reconciler.boxfile.loader import load
from reconciler.boxfile.model import Boxfile
from reconciler.boxfile.render import render
from tests.boxfile.strategies import BOXFILES


@given(BOXFILES)
def test_what_is_rendered_loads_to_the_same(boxfile: Boxfile) -> None:
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
