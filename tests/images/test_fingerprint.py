from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from reconciler.errors import BoxError
from reconciler.images.busybox import find_busybox
from reconciler.images.fingerprint import file_digest, file_digests, library_closure
from reconciler.linux.files import read_json, write_json
from reconciler.linux.process import CommandFailed


def settle(path: Path) -> None:
    """Wait until a change to `path` is sure to get another time stamp."""
    while time.time_ns() - path.stat().st_ctime_ns < 30_000_000:
        time.sleep(0.005)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_digest_is_the_sha256_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"data")
    assert file_digest(tmp_path, tmp_path / "f") == sha256(b"data")


def test_a_known_file_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"data")
    settle(path)
    file_digest(tmp_path, path)
    cache = read_json(tmp_path / "digests.json")
    write_json(tmp_path / "digests.json", dict.fromkeys(cache, "from the cache"))
    assert file_digest(tmp_path, path) == "from the cache"


def test_every_change_is_noticed_even_with_size_and_mtime_put_back(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one")
    settle(path)
    before = path.stat()
    assert file_digest(tmp_path, path) == sha256(b"one")
    path.write_bytes(b"two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file_digest(tmp_path, path) == sha256(b"two")


def test_changes_in_quick_succession_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for number in range(200):
        data = b"%03d" % number
        with path.open("r+b" if path.exists() else "wb") as stream:
            stream.write(data)
        assert file_digest(tmp_path, path) == sha256(data)


def test_a_file_that_just_changed_is_not_taken_for_known(tmp_path: Path) -> None:
    # Where the kernel's clock is coarse another change would leave the same time stamp.
    for number in range(100):  # a busy machine may need a moment too long, but not every time
        path = tmp_path / str(number)
        path.write_bytes(b"data")
        file_digest(tmp_path, path)
        cache = tmp_path / "digests.json"
        if not cache.exists() or len(read_json(cache)) <= number:
            return
    pytest.fail("every fresh file was remembered")


def test_a_broken_cache_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"data")
    settle(path)
    (tmp_path / "digests.json").write_bytes(b"{broken")
    assert file_digest(tmp_path, path) == sha256(b"data")
    assert list(read_json(tmp_path / "digests.json").values()) == [sha256(b"data")]


def test_the_cache_does_not_grow_for_ever(tmp_path: Path) -> None:
    write_json(tmp_path / "digests.json", {str(n): "old" for n in range(2000)})
    path = tmp_path / "f"
    path.write_bytes(b"data")
    settle(path)
    file_digest(tmp_path, path)
    assert len(read_json(tmp_path / "digests.json")) <= 512


def test_many_files_at_once(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(20)]
    for path in paths:
        path.write_text(path.name)
    assert file_digests(tmp_path, paths) == {path: sha256(path.name.encode()) for path in paths}


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(BoxError, match="regular file"):
            file_digest(tmp_path, path)
    with pytest.raises(FileNotFoundError, match="absent"):
        file_digest(tmp_path, tmp_path / "absent")


def test_a_programs_libraries_are_those_it_maps() -> None:
    sleeping = Path("/bin/sleep")
    closure = {path.resolve() for path in library_closure(sleeping)}
    assert any("libc.so" in path.name for path in closure)
    assert any("ld-linux" in path.name for path in closure)
    assert all(path.is_file() for path in closure)


def test_a_static_program_has_no_libraries() -> None:
    assert library_closure(find_busybox()) == ()


def test_libraries_of_plugins_are_among_them() -> None:
    (plugin,) = [path for path in library_closure(Path("/bin/ls")) if "libselinux" in path.name]
    alone = library_closure(Path("/bin/sleep"))
    assert set(library_closure(Path("/bin/sleep"), [plugin])) > set(alone)


def test_a_plugin_that_does_not_load_is_told(tmp_path: Path) -> None:
    (tmp_path / "plugin.so").write_bytes(b"not a library")
    with pytest.raises(CommandFailed, match="ld-linux"):
        library_closure(Path("/bin/sleep"), [tmp_path / "plugin.so"])
