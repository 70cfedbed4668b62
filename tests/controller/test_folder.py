"""The scan: what counts as a Boxfile, and what may lie in a folder without stopping anything."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.controller.entry import SETTLE_SECONDS, Declared, Faulty, FileState, Unsettled
from reconciler.controller.folder import Folder, Scan
from tests.controller.sleepers import GOOD, put, settle


def scan_of(folder: Path) -> Scan:
    """A scan of files that have come to rest."""
    time.sleep(0.1)
    return Folder(folder).scan()


def states(scan: Scan) -> dict[str, FileState]:
    return {entry.name: entry.state for entry in scan.entries}


@contextmanager
def nobody() -> Iterator[None]:
    """Be a user who may not read everything, as root may."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def fault(scan: Scan, name: str) -> str:
    state = states(scan)[name]
    assert isinstance(state, Faulty), state
    return state.reason


class TestNames:
    """C7, C8, C9: which files are Boxfiles."""

    def test_both_forms(self, folder: Path) -> None:
        put(folder / "web.Boxfile")
        put(folder / "db" / "Boxfile")
        scan = scan_of(folder)
        assert [(e.name, e.path) for e in scan.entries] == [
            ("db", folder / "db" / "Boxfile"),
            ("web", folder / "web.Boxfile"),
        ]
        assert all(isinstance(state, Declared) for state in states(scan).values())
        assert scan.complete

    @pytest.mark.parametrize(
        "other", [".web.Boxfile", "web.Boxfile~", ".web.Boxfile.swp", "4913", "notes.txt"]
    )
    def test_editors_files_are_nothing(self, folder: Path, other: str) -> None:
        (folder / other).write_text(GOOD)
        scan = scan_of(folder)
        assert scan.entries == ()
        assert scan.ignored == ()

    @pytest.mark.parametrize("other", ["web.Boxfile.bak", "Boxfile", "web.boxfile", "Boxfile.old"])
    def test_what_looks_like_one_is_named(self, folder: Path, other: str) -> None:
        (folder / other).write_text(GOOD)
        scan = scan_of(folder)
        assert scan.entries == ()
        assert scan.ignored == (other,)

    @pytest.mark.parametrize("name", ["Web", "-web", "controller", "a" * 64, "web.v2", "a b"])
    def test_a_name_that_cannot_be_is_a_fault_of_that_file(self, folder: Path, name: str) -> None:
        put(folder / f"{name}.Boxfile")
        put(folder / "ok.Boxfile")
        scan = scan_of(folder)
        assert fault(scan, name) == "InvalidName"
        assert isinstance(states(scan)["ok"], Declared)

    def test_a_name_that_is_not_utf8(self, folder: Path) -> None:
        with (folder / os.fsdecode(b"\xff\xfe.Boxfile")).open("w") as file:
            file.write(GOOD)
        put(folder / "ok.Boxfile")
        scan = scan_of(folder)
        assert scan.complete
        assert fault(scan, "\\udcff\\udcfe") == "InvalidName"
        assert isinstance(states(scan)["ok"], Declared)

    def test_control_characters_in_a_name_do_not_reach_a_terminal(self, folder: Path) -> None:
        put(folder / "\x1b[31m.Boxfile")
        (entry,) = scan_of(folder).entries
        assert entry.name == "\\x1b[31m"


def bytes_read() -> int:
    """How much this process has read in its life."""
    return int(Path("/proc/self/io").read_text().split()[1])


class TestKinds:
    """C1, C2, C3, C5, B18: what is no readable file of a sensible size."""

    def test_a_fifo_does_not_block(self, folder: Path) -> None:
        os.mkfifo(folder / "pipe.Boxfile")
        assert fault(Folder(folder).scan(), "pipe") == "NotRegular"

    def test_a_directory_called_like_a_file(self, folder: Path) -> None:
        (folder / "d.Boxfile").mkdir()
        assert fault(scan_of(folder), "d") == "NotRegular"

    def test_a_socket(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(folder)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind("s.Boxfile")
            assert fault(scan_of(folder), "s") == "NotRegular"

    def test_a_link_to_a_device(self, folder: Path) -> None:
        (folder / "z.Boxfile").symlink_to("/dev/zero")
        assert fault(scan_of(folder), "z") == "NotRegular"

    def test_links_that_loop_or_lead_nowhere_are_there_but_unreadable(self, folder: Path) -> None:
        (folder / "l.Boxfile").symlink_to("l.Boxfile")
        (folder / "gone.Boxfile").symlink_to("nowhere")
        (folder / "sub").symlink_to(".")
        scan = scan_of(folder)
        assert fault(scan, "l") == "Unreadable"
        assert fault(scan, "gone") == "Unreadable"
        assert scan.names == {"l", "gone"}

    def test_a_huge_sparse_file_is_not_read(self, folder: Path) -> None:
        with (folder / "h.Boxfile").open("wb") as file:
            file.truncate(2 << 30)
        before = bytes_read()
        assert fault(scan_of(folder), "h") == "TooLarge"
        assert bytes_read() - before < 1 << 20

    def test_mounts_are_judged_anew_and_nothing_is_parsed_again(self, folder: Path) -> None:
        source = folder.parent / "shared"
        text = f"base: alpine\nbackend: krun\nmounts: [{{host: {source}, guest: /w}}]\n"
        (folder / "k.Boxfile").write_text(text)
        time.sleep(0.1)
        scanner = Folder(folder)
        first = states(scanner.scan())["k"]
        assert isinstance(first, Faulty)
        assert first.reason == "MountRefused"
        source.mkdir()
        second = states(scanner.scan())["k"]
        assert isinstance(second, Faulty)
        assert second.reason == "BackendUnavailable"
        assert second.loaded is first.loaded is not None

    def test_a_link_out_of_the_folder_is_not_read(self, folder: Path) -> None:
        outside = folder.parent / "outside"
        outside.mkdir()
        (outside / "x").write_text("base: builtin:busybox\nnetwork: none\n")
        (folder / "k.Boxfile").symlink_to("../outside/x")
        time.sleep(0.1)
        scanner = Folder(folder)
        assert fault(scanner.scan(), "k") == "OutsideFolder"
        # Not remembered: the same file can come into the folder without being touched.
        outside.rename(folder / "inside")
        (folder / "k.Boxfile").unlink()
        (folder / "k.Boxfile").symlink_to("inside/x")
        assert isinstance(states(scanner.scan())["k"], Declared)

    def test_what_may_not_be_read_is_there(self, open_folder: Path) -> None:
        put(open_folder / "web.Boxfile").chmod(0)
        (open_folder / "sub").mkdir(mode=0)
        with nobody():
            scan = scan_of(open_folder)
        assert scan.complete
        assert fault(scan, "web") == "Unreadable"
        assert fault(scan, "sub") == "Unreadable"


class TestContents:
    """B1, B3, B4: a bad file says so, and only of itself."""

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", "EmptySpec"),
            ("# nothing\n", "EmptySpec"),
            ("---\n", "EmptySpec"),
            ("null\n", "EmptySpec"),
            ("- a\n", "InvalidSpec"),
            ("{", "InvalidSpec"),
            ("base: a\0b\n", "InvalidSpec"),
            ("[" * 100_000, "InvalidSpec"),
        ],
    )
    def test_bad_texts(self, folder: Path, text: str, reason: str) -> None:
        put(folder / "bad.Boxfile", text)
        put(folder / "ok.Boxfile")
        scan = scan_of(folder)
        assert fault(scan, "bad") == reason
        assert isinstance(states(scan)["ok"], Declared)

    def test_problems_have_their_place(self, folder: Path) -> None:
        path = put(folder / "bad.Boxfile", GOOD + "cpu: 2\n")
        state = states(scan_of(folder))["bad"]
        assert isinstance(state, Faulty)
        (problem,) = state.problems
        assert (problem.file, problem.line, problem.column) == (str(path), 3, 1)

    def test_a_relative_archive_counts_from_its_file(self, folder: Path) -> None:
        put(folder / "web" / "Boxfile", "base: oci-archive:x.tar\nnetwork: none\n")
        state = states(scan_of(folder))["web"]
        assert isinstance(state, Declared)
        assert state.spec.base == f"oci-archive:{folder}/web/x.tar"


class TestSettling:
    """A2: a file that is being written is not believed."""

    def test_a_fresh_file_is_unsettled_and_then_good(self, folder: Path) -> None:
        path = folder / "web.Boxfile"
        reader = Folder(folder)
        path.write_text(GOOD)
        assert isinstance(states(reader.scan())["web"], Unsettled)
        settle(path)
        assert isinstance(states(reader.scan())["web"], Declared)

    def test_a_file_that_never_rests_is_never_believed(self, folder: Path) -> None:
        path = folder / "web.Boxfile"
        stop = threading.Event()

        def write() -> None:
            with path.open("w") as file:
                file.write(GOOD)
                while not stop.is_set():
                    file.write("#\n")
                    file.flush()
                    stop.wait(0.005)

        path.touch()
        writer = threading.Thread(target=write)
        writer.start()
        unsettled = 0
        try:
            while unsettled < 30:
                written = path.stat().st_mtime
                if isinstance(states(Folder(folder).scan())["web"], Unsettled):
                    unsettled += 1
                else:
                    # A busy host held up who writes, or us.
                    assert time.time() - written >= SETTLE_SECONDS
                time.sleep(0.01)
        finally:
            stop.set()
            writer.join()

    def test_a_clock_ahead_of_ours_does_not_keep_a_file_unsettled(self, folder: Path) -> None:
        path = put(folder / "web.Boxfile")
        in_a_year = time.time() + 3e7
        os.utime(path, (in_a_year, in_a_year))
        assert isinstance(states(scan_of(folder))["web"], Declared)


class TestLinks:
    """A3: a folder of links whose target is swapped in one step."""

    def test_the_swap_is_a_new_content(self, folder: Path) -> None:
        for number, cpus in ((1, 1), (2, 3)):
            put(folder / f"..{number}" / "ok.Boxfile", f"{GOOD}cpus: {cpus}\n")
        (folder / "..data").symlink_to("..1")
        (folder / "ok.Boxfile").symlink_to("..data/ok.Boxfile")
        time.sleep(0.1)
        reader = Folder(folder)
        first = states(reader.scan())
        (folder / "t").symlink_to("..2")
        (folder / "t").replace(folder / "..data")
        second = states(reader.scan())
        assert isinstance(first["ok"], Declared)
        assert isinstance(second["ok"], Declared)
        assert (first["ok"].spec.cpus, second["ok"].spec.cpus) == (1, 3)


class TestFolder:
    """A7, D1: what is at the path at all."""

    def test_a_missing_folder_is_an_incomplete_scan(self, folder: Path) -> None:
        scan = Folder(folder / "none").scan()
        assert not scan.complete
        assert scan.identity is None

    def test_a_file_is_no_folder(self, folder: Path) -> None:
        path = put(folder / "web.Boxfile")
        assert not Folder(path).scan().complete
        assert Folder(path).identity() is None

    def test_another_folder_at_the_path_has_another_identity(self, folder: Path) -> None:
        watched = Folder(folder)
        before = watched.identity()
        folder.rename(folder.with_name("old"))
        folder.mkdir()
        assert watched.identity() != before
        assert watched.scan().identity == watched.identity()

    def test_an_unchanged_file_is_not_parsed_again(self, folder: Path) -> None:
        put(folder / "web.Boxfile")
        time.sleep(0.1)
        watched = Folder(folder)
        first = watched.scan().entries[0].state
        assert watched.scan().entries[0].state is first
        put(folder / "web.Boxfile")
        time.sleep(0.1)
        assert watched.scan().entries[0].state is not first
