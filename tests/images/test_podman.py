from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from reconciler.errors import Missing
from reconciler.images.rootfs import build_image, built_image
from reconciler.linux.process import find_program
from tests.images.archives import file, layer

pytestmark = [
    pytest.mark.skipif(find_program("podman") is None, reason="needs podman"),
    pytest.mark.root,
]

NAME = "localhost/box-test-image:1"


@pytest.fixture
def storage(box_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return podman's storage, a new one that nobody else uses and that goes with `box_home`."""
    config = box_home / "storage.conf"
    root, run = box_home / "storage", box_home / "run"
    config.write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{root}"\nrunroot = "{run}"\n')
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(config))
    return root


def podman(*arguments: str, data: bytes = b"") -> None:
    subprocess.run(["podman", *arguments], check=True, input=data, stdout=subprocess.DEVNULL)


def import_image(text: bytes) -> None:
    change = "--change=ENV A=1"
    podman("import", "--quiet", change, "-", NAME, data=layer(file(b"etc/motd", text, uid=7)))


@pytest.mark.slow
def test_an_image_of_podmans_is_built_and_then_pinned(storage: Path, box_home: Path) -> None:
    import_image(b"one")
    first = build_image(box_home, NAME, lambda message: None)
    assert "A=1" in first.config.env
    assert build_image(box_home, NAME, pytest.fail) == first
    import_image(b"two")
    assert built_image(box_home, NAME) == first, "a start takes what the last build gave"
    second = build_image(box_home, NAME, lambda message: None)
    assert second.digest != first.digest
    assert built_image(box_home, NAME) == second
    assert storage.exists()
    podman("rmi", "--all", "--force")
    assert built_image(box_home, NAME) == second, "a start needs no podman"
    assert list((box_home / "tmp").glob("*/")) == []


def test_an_image_that_podman_does_not_have_is_told(storage: Path, box_home: Path) -> None:
    with pytest.raises(Missing, match="no image localhost/absent") as caught:
        build_image(box_home, "localhost/absent:1", lambda message: None)
    assert caught.value.hint == "podman pull localhost/absent:1"
    assert storage.is_dir(), "another storage was asked"
