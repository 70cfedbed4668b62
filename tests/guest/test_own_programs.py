"""The agent's own programs: what they send, what they take, and what they refuse."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import stat
import tarfile
import threading
from pathlib import Path

import pytest

from reconciler.guest import protocol
from reconciler.guest.channel import Session
from reconciler.guest.protocol import OWN, Exec, Exit, Limit, Size
from tests.guest.test_agent import echo_works, next_frame, start_raw
from tests.guest.test_transfer import file_of
from tests.live import until

LONG = "n" * 200


def own(
    session: Session,
    *argv: str,
    stdin: bytes | None = None,
    user: str = "",
    cwd: str = "",
    rlimits: list[Limit] | None = None,
) -> tuple[int, bytes, str]:
    out, err = bytearray(), bytearray()
    with file_of(stdin or b"") as fd:
        request = Exec(argv, {}, user=user, cwd=cwd, kind=OWN, rlimits=rlimits or [])
        end = session.carry_out(
            request,
            stdin=None if stdin is None else fd,
            stdout=out.extend,
            stderr=err.extend,
        )
    assert end.signo == 0
    return end.code, bytes(out), err.decode()


def read(archive: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {member.name: member for member in tar}


def content(archive: bytes, name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        file = tar.extractfile(name)
        assert file is not None
        return file.read()


def make(*members: tuple[str, str, bytes | str, int], end: bool = True) -> bytes:
    """Make an archive of (type, name, data or link, mode)."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for kind, name, data, mode in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.mtime = kind.encode(), mode, 1_000_000_000
            if isinstance(data, bytes):
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
            else:
                info.linkname = data
                tar.addfile(info)
        whole = tar.offset
    return stream.getvalue() if end else stream.getvalue()[:whole]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    top = tmp_path / "top"
    (top / "sub" / LONG).mkdir(parents=True)
    (top / "sub" / LONG / "deep").write_bytes(b"x" * 1000)
    (top / "exe").write_bytes(b"")
    (top / "exe").chmod(0o4751)
    (top / "link").symlink_to("/etc/passwd")
    (top / "long-link").symlink_to("l" * 300)
    (top / "sub").chmod(0o750)
    os.mkfifo(top / "fifo")
    os.utime(top / "exe", (0, 1_234_567_890))
    return top


def test_a_directory_is_sent_whole(session: Session, tree: Path) -> None:
    code, archive, said = own(session, "send", f"{tree}/")
    found = read(archive)
    assert code == 0
    assert said == f"box: {tree}/fifo: left out, it is neither a file, a directory nor a link\n"
    assert found.keys() == {"top", "top/sub", f"top/sub/{LONG}", f"top/sub/{LONG}/deep", "top/exe",
                            "top/link", "top/long-link"}  # fmt: skip
    assert (found["top/exe"].mode, found["top/exe"].mtime) == (0o751, 1_234_567_890)
    assert found["top/sub"].mode == 0o750
    assert found["top/link"].linkname == "/etc/passwd"
    assert found["top/long-link"].linkname == "l" * 300
    assert content(archive, f"top/sub/{LONG}/deep") == b"x" * 1000
    assert archive.endswith(bytes(1024))


def test_a_link_is_followed_where_it_was_named(session: Session, tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"data")
    (tmp_path / "link").symlink_to("real")
    code, archive, _ = own(session, "send", "link", cwd=str(tmp_path))
    assert code == 0
    assert content(archive, "link") == b"data"
    assert read(archive)["link"].isreg()


@pytest.mark.parametrize(("suffix", "top"), [("", "a"), ("/..", "."), ("/.", "."), ("//", "a")])
def test_the_last_part_names_it(session: Session, tmp_path: Path, suffix: str, top: str) -> None:
    (tmp_path / "a").mkdir()
    _, archive, _ = own(session, "send", f"{tmp_path}/a{suffix}")
    assert next(iter(read(archive))) == top


@pytest.mark.parametrize("path", ["/no/such", "", "/dev/null", "p" * 5000])
def test_what_cannot_be_sent_is_told(session: Session, path: str) -> None:
    code, archive, said = own(session, "send", path)
    assert (code, archive) == (1, b"")
    assert said.startswith("box: ")


@pytest.mark.root
def test_it_is_the_user_who_reads(session: Session) -> None:
    code, archive, said = own(session, "send", "/etc/shadow", user="nobody")
    assert (code, archive, said) == (1, b"", "box: /etc/shadow: Permission denied\n")


def test_a_large_file_has_its_size_in_full(session: Session, tmp_path: Path) -> None:
    """More than 8 GiB, of which only the beginning is looked at."""
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 34)

    class Enough(Exception):
        pass

    seen = bytearray()

    def take(data: bytes) -> None:
        seen.extend(data)
        if len(seen) > 4096:
            raise Enough

    request = Exec(["send", f"{tmp_path}/huge"], {}, kind=OWN)
    with pytest.raises(Enough):
        session.carry_out(request, stdin=None, stdout=take, stderr=2)
    header = tarfile.TarFile(fileobj=io.BytesIO(bytes(seen))).next()
    assert header is not None
    assert header.size == 1 << 34


def test_what_was_sent_is_received(session: Session, tree: Path, tmp_path: Path) -> None:
    _, archive, _ = own(session, "send", str(tree))
    copy = tmp_path / "copy"
    assert own(session, "receive", str(copy), stdin=archive) == (0, b"", "")
    _, again, _ = own(session, "send", str(copy))
    ours, theirs = read(again), read(archive)
    assert {name.replace("copy", "top", 1) for name in ours} == theirs.keys()
    for name, member in ours.items():
        other = theirs[name.replace("copy", "top", 1)]
        assert (member.type, member.mode, member.mtime, member.size, member.linkname) == (
            other.type,
            other.mode,
            other.mtime,
            other.size,
            other.linkname,
        )


def test_modes_that_keep_out_their_own_user_are_set_last(session: Session, tmp_path: Path) -> None:
    archive = make(
        ("5", "a", "", 0o500), ("5", "a/b", "", 0o000), ("0", "a/b/f", b"x", 0o400),
        ("0", "a/g", b"y", 0o6755), ("5", "c", "", 0o1777),
    )  # fmt: skip
    assert own(session, "receive", str(tmp_path), stdin=archive)[0] == 0
    found = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob("*")}
    modes = {name: stat.S_IMODE(path.lstat().st_mode) for name, path in found.items()}
    assert modes == {"a": 0o500, "a/b": 0o000, "a/b/f": 0o400, "a/g": 0o755, "c": 0o777}
    assert {int(path.lstat().st_mtime) for path in found.values()} == {1_000_000_000}


def test_into_a_directory_or_under_a_name(session: Session, tmp_path: Path) -> None:
    one = make(("0", "f", b"1", 0o644))
    assert own(session, "receive", str(tmp_path), stdin=one)[0] == 0
    assert own(session, "receive", f"{tmp_path}/g", stdin=one)[0] == 0
    assert own(session, "receive", "h", stdin=one, cwd=str(tmp_path))[0] == 0
    assert {path.name for path in tmp_path.iterdir()} == {"f", "g", "h"}
    code, _, said = own(session, "receive", f"{tmp_path}/no/", stdin=one)
    assert (code, said) == (1, f"box: {tmp_path}/no/: No such file or directory\n")


def test_files_and_links_give_way_and_directories_are_joined(
    session: Session, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"kept")
    into = tmp_path / "into"
    (into / "d").mkdir(parents=True)
    (into / "d" / "old").write_bytes(b"old")
    (into / "d").chmod(0o700)
    (into / "link").symlink_to(outside)
    (into / "file").write_bytes(b"long content")
    archive = make(
        ("5", "d", "", 0o755), ("0", "d/new", b"new", 0o600), ("0", "link", b"own", 0o600),
        ("0", "file", b"short", 0o600), ("1", "hard", "d/new", 0o600),
    )  # fmt: skip
    assert own(session, "receive", str(into), stdin=archive) == (0, b"", "")
    assert outside.read_bytes() == b"kept"
    assert (into / "link").read_bytes() == b"own"
    assert not (into / "link").is_symlink()
    assert (into / "file").read_bytes() == b"short"
    assert (into / "d" / "old").read_bytes() == b"old"
    assert stat.S_IMODE((into / "d").stat().st_mode) == 0o700
    assert (into / "hard").samefile(into / "d" / "new")


REFUSED = {
    "absolute": make(("0", "/etc/x", b"", 0o644)),
    "climbs": make(("0", "a/../../x", b"", 0o644)),
    "is dots": make(("5", "..", "", 0o755)),
    "through a link of its own": make(("2", "l", "/tmp", 0), ("0", "l/x", b"", 0o644)),
    "through a link that was there": make(("0", "there/x", b"", 0o644)),
    "a directory over a link": make(("5", "there", "", 0o755)),
    "hard link outside": make(("1", "h", "../secret", 0)),
    "hard link absolute": make(("1", "h", "/etc/passwd", 0)),
    "hard link through a link": make(("1", "h", "there/secret", 0)),
    "hard link to nothing": make(("1", "h", "no", 0)),
    "a file over a directory": make(("5", "d", "", 0o755), ("0", "d", b"", 0o644)),
    "through a file": make(("0", "f", b"", 0o644), ("0", "f/x", b"", 0o644)),
    "device": make(("3", "null", "", 0o644)),
    "fifo": make(("6", "p", "", 0o644)),
    "a part too long": make(("0", "p" * 256, b"", 0o644)),
    "too deep": make(("0", "d/" * 300 + "f", b"", 0o644)),
    "name too long": make(("0", "d/" * 4000 + "f", b"", 0o644)),
    "cut in a header": make(("0", "f", b"x", 0o644))[:700],
    "cut in the data": make(("0", "f", b"x" * 2000, 0o644))[:1500],
    "cut before its end": make(("0", "f", b"x", 0o644), end=False),
    "empty": b"",
    "noise": os.urandom(4096),
    "broken sum": b"g" + make(("0", "f", b"x", 0o644))[1:],
}


@pytest.mark.parametrize("archive", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(session: Session, tmp_path: Path, archive: bytes) -> None:
    (tmp_path / "secret").write_bytes(b"")
    into = tmp_path / "into"
    into.mkdir()
    (into / "there").symlink_to("..")
    code, _, said = own(session, "receive", str(into), stdin=archive)
    assert code == 1
    assert said.startswith("box: ")
    assert said.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"secret", "into"}
    assert (into / "there").is_symlink()
    assert (tmp_path / "secret").stat().st_nlink == 1


def test_two_things_have_not_one_name(session: Session, tmp_path: Path) -> None:
    archive = make(("0", "a", b"", 0o644), ("0", "b", b"", 0o644))
    code, _, said = own(session, "receive", f"{tmp_path}/x", stdin=archive)
    assert (code, said) == (1, "box: b: it is beside what the archive began with\n")
    archive = make(("5", ".", "", 0o755), ("0", "b", b"", 0o644))
    assert own(session, "receive", f"{tmp_path}/y", stdin=archive)[0] == 1


def test_long_names_fit_behind_a_longer_first_one(session: Session, tmp_path: Path) -> None:
    name = "a/" + "/".join(["d" * 240] * 16)
    archive = make(("0", name, b"x", 0o644))
    code, _, said = own(session, "receive", f"{tmp_path}/{'w' * 255}", stdin=archive)
    assert (code, said) == (0, "")


@pytest.mark.root
def test_it_is_the_user_s(session: Session, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    # Below /tmp, however deep that is.
    for parent in tmp_path.parents[:-2]:
        parent.chmod(0o755)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    archive = make(("5", "d", "", 0o755), ("0", "d/f", b"x", 0o644))
    assert own(session, "receive", f"{tmp_path}/open", stdin=archive, user="nobody")[0] == 0
    found = (tmp_path / "open/d/f").stat()
    assert (found.st_uid, found.st_gid) == (65534, 65534)
    code, _, said = own(session, "receive", str(tmp_path), stdin=archive, user="nobody")
    assert code == 1
    assert "Permission denied" in said


def test_limits_hold(session: Session, tmp_path: Path) -> None:
    archive = make(("0", "f", b"x" * 5000, 0o644))
    limits = [Limit(1, 1024, 1024)]  # the size of a file
    request = Exec(["receive", str(tmp_path)], {}, kind=OWN, rlimits=limits)
    with file_of(archive) as fd:
        end = session.carry_out(request, stdin=fd, stdout=1, stderr=2)
    assert end == Exit(-1, 25, timed_out=False)


@pytest.mark.parametrize("argv", [["sendd", "/"], ["send"], ["send", "a", "b"], ["", "/"]])
def test_there_are_two_programs(session: Session, argv: list[str]) -> None:
    code, _, said = own(session, *argv)
    assert (code, said) == (127, f"box: {argv[0]}: the agent has no such program\n")


@pytest.mark.parametrize("flags", [1 | 4, 2 | 4])
def test_other_flags_do_not_go_with_them(claimed: socket.socket, token: bytes, flags: int) -> None:
    decoder = start_raw(claimed, token)
    size = Size(1, 1) if flags & 1 else None
    claimed.sendall(protocol.encode_exec(Exec(["send", "/"], {}, kind=flags, tty=size)))
    assert next_frame(claimed, decoder).type == protocol.ERROR
    assert echo_works(claimed, token)


def receivers(place: Path) -> list[list[int]]:
    """The descriptors of each process of the agent's that has `place` open, to unpack into it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        # Processes come and go meanwhile, of other tests too.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if (entry / "comm").read_bytes() != b"receive\n":
                continue
            files = {int(path.name): path.readlink() for path in (entry / "fd").iterdir()}
            if place in files.values():
                found.append(sorted(files))
    return found


def test_it_has_no_file_of_the_agent_s(session: Session, tmp_path: Path) -> None:
    """It waits for its input meanwhile."""
    reading, writing = os.pipe()
    try:
        request = Exec(["receive", str(tmp_path)], {}, kind=OWN)
        found: list[list[int]] = []

        def look() -> None:
            try:
                until(lambda: receivers(tmp_path))
                found.extend(receivers(tmp_path))
            finally:
                os.close(writing)

        looking = threading.Thread(target=look)
        looking.start()
        session.carry_out(request, stdin=reading, stdout=1, stderr=1)
        looking.join()
    finally:
        os.close(reading)
    # The last one is the directory it unpacks into.
    assert found == [[0, 1, 2, 3]]
