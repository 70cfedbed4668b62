from __future__ import annotations

import errno

import pytest

from reconciler.errors import BoxError, Refused, as_box_error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file", "/a"), "/a: No such file"),
        (OSError(errno.ENOSPC, "Full"), "Full\nhint: free some disk space"),
        (OSError("odd"), "OSError: odd"),
        (KeyError("x"), "KeyError: 'x'"),
    ],
)
def test_what_the_kernel_refused_is_told_with_its_file(error: Exception, told: str) -> None:
    assert str(as_box_error(error)) == told


def test_an_error_of_ours_stays_itself() -> None:
    error: BoxError = Refused("no")
    assert as_box_error(error) is error
