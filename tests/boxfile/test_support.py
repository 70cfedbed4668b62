from __future__ import annotations

import pytest

from reconciler.boxfile.loader import load, read
from reconciler.boxfile.model import Boxfile
from reconciler.boxfile.support import AVAILABLE, LACKS, absence
from tests.boxfile.loading import problems_of

BACKENDS = ["qemu", "firecracker", "krun", "podman"]
# A line for each field that some backend lacks.
ASKING = {
    "network": "network: bridge\n",
    "passt": "passt: true\n",
    "warm": "warm: 1\n",
    "warmup": "warmup: [id]\n",
    "mounts": "mounts: [{host: /a, guest: /x}]\n",
    "seccomp": "seccomp: x.json\n",
    "on_drift": "on_drift: freeze\n",
}
NOT_ASKING = {
    "network": "network: none\n",
    "passt": "passt: false\n",
    "warm": "warm: 0\n",
    "warmup": "warmup: []\n",
    "mounts": "mounts: []\n",
    "seccomp": "",
    "on_drift": "on_drift: stop\n",
}


def file_for(backend: str, lines: dict[str, str]) -> bytes:
    return (f"base: alpine\nbackend: {backend}\n" + "".join(lines.values())).encode()


def test_every_backend_has_its_list() -> None:
    assert list(LACKS) == BACKENDS
    for backend in BACKENDS:
        assert {lack.field for lack in LACKS[backend]} <= ASKING.keys()


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_backend_lacks_is_refused_and_nothing_else(backend: str) -> None:
    load(file_for(backend, NOT_ASKING), source="x")
    for field, line in ASKING.items():
        data = file_for(backend, {**NOT_ASKING, field: line})
        lack = next((lack for lack in LACKS[backend] if lack.field == field), None)
        if lack is None:
            load(data, source="x")
        else:
            (problem,) = problems_of(data)
            assert (problem.path, problem.message) == (field, lack.message)
            # At the value, which is on one of the lines after the first two.
            assert problem.line > 2


def test_what_is_the_default_is_refused_too() -> None:
    (problem,) = problems_of(b"base: alpine\n")
    assert problem.path == "network"
    assert problem.message.startswith("is bridge when left out, and qemu has no bridge yet")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backend_to_come_is_a_note(backend: str) -> None:
    loaded = read(file_for(backend, NOT_ASKING), source="x")
    said = absence(Boxfile(base="alpine", backend=backend, network="none"))  # type: ignore[arg-type]
    assert [note.message for note in loaded.notes] == ([said] if said else [])
    assert (said is None) == (backend in AVAILABLE)
