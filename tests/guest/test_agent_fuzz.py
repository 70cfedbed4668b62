"""The agent's reading path under a fuzzer: the same inputs in every run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

FUZZ = Path(__file__).parent / "fuzz"
AGENT = Path(__file__).parents[2] / "reconciler/guest/agent"
# About ten seconds; `sh tests/guest/fuzz/run SECONDS` is for more.
RUNS = 4000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),  # a busy host takes ten times as long as a quiet one
    pytest.mark.skipif(shutil.which("clang") is None, reason="needs clang and its libFuzzer"),
]


def fuzz(directory: Path, agent: Path, runs: int) -> subprocess.CompletedProcess[str]:
    inputs = directory / "inputs"
    inputs.mkdir()
    built = subprocess.run(
        ["sh", FUZZ / "build", directory / "fuzz", agent], capture_output=True, text=True
    )
    if "libclang_rt" in built.stderr:
        pytest.skip("needs clang's libFuzzer (Debian: libclang-rt-dev)")
    assert built.returncode == 0, built.stderr
    subprocess.run(["sh", FUZZ / "seeds", inputs], check=True)
    options = ["-seed=1", f"-runs={runs}", "-max_len=512", "-len_control=0", "-detect_leaks=0"]
    return subprocess.run(
        [directory / "fuzz", *options, f"-artifact_prefix={directory}/", inputs],
        capture_output=True,
        text=True,
    )


def test_nothing_that_a_client_or_a_command_does_breaks_the_agent(tmp_path: Path) -> None:
    done = fuzz(tmp_path, AGENT, RUNS)
    assert done.returncode == 0, done.stderr[-10_000:]
    assert f"Done {RUNS} runs" in done.stderr


def test_an_agent_that_reads_one_byte_too_far_is_found(tmp_path: Path) -> None:
    """Else the fuzzer might be one that finds nothing."""
    agent = tmp_path / "agent"
    shutil.copytree(AGENT, agent, ignore=shutil.ignore_patterns("box-agent-*"))
    source = agent / "claim.c"
    right, wrong = "hostname_length != size", "hostname_length < size"
    text = source.read_text()
    assert right in text
    source.write_text(text.replace(right, wrong))
    # Which inputs are tried next depends on addresses a little; it ends at the first that finds it.
    done = fuzz(tmp_path, agent, 10 * RUNS)
    assert done.returncode != 0
    assert "AddressSanitizer" in done.stderr
