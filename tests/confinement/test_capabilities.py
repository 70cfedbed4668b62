from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.confinement import capabilities


def test_bits_are_those_of_the_kernel() -> None:
    assert capabilities.mask(["CAP_CHOWN"]) == 1
    assert capabilities.mask(["CAP_SYS_ADMIN"]) == 1 << 21
    assert capabilities.mask(["CAP_CHECKPOINT_RESTORE", "CAP_NET_RAW"]) == 1 << 40 | 1 << 13
    assert capabilities.mask([]) == 0


def test_the_list_is_as_long_as_this_kernels() -> None:
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    assert len(capabilities.NAMES) - 1 <= last or len(capabilities.NAMES) == 41


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="CAP_EVERYTHING"):
        capabilities.mask(["CAP_EVERYTHING"])


def test_description_names_bits_that_are_newer_than_we_are() -> None:
    assert capabilities.describe(0) == "none"
    assert capabilities.describe(1 << 21 | 1 << 60) == "CAP_SYS_ADMIN, bit 60"
    assert capabilities.describe(capabilities.mask(capabilities.NAMES)).count("CAP_") == 41
