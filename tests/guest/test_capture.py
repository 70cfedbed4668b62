from __future__ import annotations

import base64
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.guest.capture import HEAD_BYTES, TAIL_BYTES, Capture, Gap, Kept


def fed(*pieces: bytes, head: int = 4, tail: int = 4) -> Capture:
    capture = Capture(head, tail)
    for piece in pieces:
        capture(piece)
    return capture


@given(st.lists(st.binary(max_size=12), max_size=12), st.integers(0, 9), st.integers(0, 9))
def test_it_is_the_beginning_and_the_end_however_the_stream_is_cut(
    pieces: list[bytes], head: int, tail: int
) -> None:
    whole = b"".join(pieces)
    capture = fed(*pieces, head=head, tail=tail)
    assert capture.total == len(whole)
    if len(whole) <= head + tail:
        assert (capture.data, capture.gap) == (whole, None)
    else:
        assert capture.data == whole[:head] + whole[len(whole) - tail :]
        assert capture.gap == Gap(head, len(whole) - head - tail)


@given(st.text(max_size=40), st.integers(0, 9), st.integers(0, 9))
def test_text_is_cut_between_characters(text: str, head: int, tail: int) -> None:
    whole = text.encode()
    kept = fed(whole, head=head, tail=tail).kept()
    assert kept.encoding == "utf-8"
    if kept.gap is None:
        assert kept.text == text
        return
    assert head - 3 <= kept.gap.offset <= head
    assert kept.gap.length <= len(whole) - head - tail + 6
    end = kept.gap.offset + kept.gap.length
    assert kept.text.encode() == whole[: kept.gap.offset] + whole[end:]


@pytest.mark.parametrize("data", [b"\xff", b"a\xc3", b"\x80" * 9, b"\xffbcdefghi", b"abcdefgh\xff"])
def test_what_is_not_utf_8_is_base64_of_exactly_what_was_kept(data: bytes) -> None:
    capture = fed(data)
    kept = capture.kept()
    assert kept == Kept(base64.b64encode(capture.data).decode(), "base64", capture.gap)


def test_controls_and_nul_are_text() -> None:
    assert fed(b"\0\x1b[", head=9).kept() == Kept("\0\x1b[", "utf-8", None)


def test_memory_is_bounded_however_much_comes() -> None:
    piece = b"x" * 65536
    capture = Capture()
    tracemalloc.start()
    try:
        for _ in range(2048):
            capture(piece)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert capture.total == 128 << 20
    assert peak < 2 * HEAD_BYTES + 5 * TAIL_BYTES
