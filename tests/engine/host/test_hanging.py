"""Programs that hang: each costs its time once, is told while waited for, and ends with us."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.backends import runtime
from tests.engine.host.reports import REPO, REPORT, in_a_mount_namespace, line_of, of_doctors

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("ids")]


def hanging(tmp_path: Path, answers: str = "") -> Path:
    """A program that hangs but for `answers`, and notes each call in `calls` beside it."""
    program = tmp_path / "hanging"
    note = f'echo "${{0##*/}} $1" >> {tmp_path}/calls'
    program.write_text(f"#!/bin/sh\n{note}\n{answers}\nexec sleep 3600\n")
    program.chmod(0o755)
    return program


def hanging_elf(tmp_path: Path) -> Path:
    """The same as QEMU has to be, whose libraries are looked for."""
    source = f"""
        #include <stdio.h>
        #include <unistd.h>
        int main(int count, char **words) {{
            FILE *calls = fopen("{tmp_path}/calls", "a");
            if (calls == NULL || fprintf(calls, "qemu %s\\n", count > 1 ? words[1] : "") < 0 ||
                fclose(calls) != 0)
                return 1;
            for (;;)
                pause();
        }}
    """
    program = tmp_path / "elf"
    command = ["gcc", "-xc", "-", "-o", str(program)]
    subprocess.run(command, input=source, text=True, check=True, timeout=60)
    return program


def test_programs_that_hang_cost_their_time_once_and_are_told(home: Path, tmp_path: Path) -> None:
    real = runtime.find_runtime().path
    qemu = Path(shutil.which(f"qemu-system-{os.uname().machine}") or "")
    shell = (
        f"mount --bind {hanging(tmp_path)} {real} && mount --bind {hanging_elf(tmp_path)} {qemu}"
    )
    said = in_a_mount_namespace(shell, REPORT, home)
    for check_id, path, words in (
        ("runtime", real, "--version"),
        ("qemu", qemu, "-machine help"),
    ):
        line = line_of(said, check_id)
        assert line.startswith(f"{check_id} failed {path} hung: it was ended after 10 seconds")
        assert f"fix: install your distribution's own {path.name} again" in line
        assert line.endswith(f"strace -f {path} {words}")
    for check_id in ("container.strict", f"version.{real.name}"):
        wanted = f"{check_id} not_applicable not tried: {real} hung"
        assert line_of(said, check_id).startswith(wanted)
    assert line_of(said, "version.qemu").startswith("version.qemu not_applicable not tried")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sorted(calls) == sorted([f"{real.name} --version", "qemu -machine"])


def test_a_runtime_that_hangs_with_a_container_starts_no_guest(home: Path, tmp_path: Path) -> None:
    answers = '[ "$1" = --version ] && echo runc version 1.1.5 && exit'
    real = runtime.find_runtime().path
    shell = f"mount --bind {hanging(tmp_path, answers)} {real}"
    said = in_a_mount_namespace(shell, REPORT, home)
    line = line_of(said, "container.strict")
    assert line.startswith(f"container.strict failed {real} hung: it was ended after 20 seconds")
    assert line.endswith(f"fix: install your distribution's own {real.name} again")
    wanted = f"accelerator.strict not_applicable not tried: {real} hung"
    assert line_of(said, "accelerator.strict").startswith(wanted)
    assert of_doctors(home) == []


def test_waiting_is_told_and_ends_with_ctrl_c(home: Path, tmp_path: Path) -> None:
    real = runtime.find_runtime().path
    shell = f"mount --make-rprivate / && mount --bind {hanging(tmp_path)} {real}"
    command = f'{shell} && exec {sys.executable} -m reconciler doctor "$@"'
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", command],
        cwd=REPO,
        env={**os.environ, "BOX_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stderr is not None
        told = f"doctor: runtime: waiting for {real}, 10 seconds at most\n"
        assert told in iter(child.stderr.readline, "")
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
    assert of_doctors(home) == []
    assert not [each for each in Path("/proc").glob("[0-9]*/cmdline") if holds(each, str(real))]


def holds(cmdline: Path, word: str) -> bool:
    """Whether a process that is still there is the hanging program."""
    try:
        return cmdline.read_bytes() == f"/bin/sh\0{word}\0--version\0".encode()
    except OSError:
        return False
