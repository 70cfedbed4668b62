from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.images.tar import BadArchive, Header, Kind, components, members, padding, skip_data
from reconciler.images.tarwriter import END, encode
from tests.images.archives import file, layer, raw_member

NAMES = st.binary(min_size=1, max_size=300).filter(lambda name: b"\0" not in name)
NUMBERS = st.integers(min_value=0, max_value=0xFFFFFFFE)


class Memory:
    """A tar source over bytes that counts what was asked of it at once."""

    def __init__(self, data: bytes) -> None:
        self._stream = io.BytesIO(data)
        self.largest_read = 0

    def read(self, size: int) -> bytes:
        self.largest_read = max(self.largest_read, size)
        return self._stream.read(size)

    def skip(self, size: int) -> None:
        if len(self._stream.read(size)) != size:
            raise BadArchive("cut short")


def read_all(data: bytes) -> list[Header]:
    return list(_read(Memory(data)))


def _read(source: Memory) -> Iterator[Header]:
    for header in members(source):
        yield header
        skip_data(source, header)


def pax(*records: bytes, flag: bytes = b"x") -> bytes:
    data = b""
    for record in records:
        length = len(record) + 3
        while len(str(length)) + 2 + len(record) != length:
            length += 1 if len(str(length)) + 2 + len(record) > length else -1
        data += b"%d %s\n" % (length, record)
    return raw_member(b"pax", flag, data=data)


@given(name=NAMES, link=NAMES, uid=NUMBERS, gid=NUMBERS, mode=st.integers(0, 0o7777))
def test_what_is_written_is_what_is_read(
    name: bytes, link: bytes, uid: int, gid: int, mode: int
) -> None:
    header = Header(name, Kind.SYMLINK, mode, uid, gid, mtime=1_700_000_000, link=link)
    assert read_all(encode(header) + END) == [header]


@given(name=NAMES.filter(lambda name: not name.endswith(b"/")), data=st.binary(max_size=2000))
def test_data_comes_after_the_header_in_whole_blocks(name: bytes, data: bytes) -> None:
    xattrs = ((b"user.x", b"\n=\0"), (b"security.capability", b"\x01"))
    header = Header(name, Kind.FILE, size=len(data), xattrs=xattrs)
    source = Memory(encode(header) + data + b"\0" * padding(len(data)) + END)
    reading = members(source)
    assert next(reading) == header
    assert source.read(len(data)) == data
    source.skip(padding(len(data)))
    assert next(reading, None) is None


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_common_dialect_is_read(form: int) -> None:
    stream = io.BytesIO()
    names = ["plain", "dir/" + "n" * 90, "d" * 80 + "/" + "n" * 60]
    with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.uid, member.mode, member.mtime = 3, 1234, 0o4755, 1_600_000_000
            archive.addfile(member, io.BytesIO(b"abc"))
    found = read_all(stream.getvalue())
    assert [header.name.decode() for header in found] == names
    assert {(h.size, h.uid, h.mode, h.mtime) for h in found} == {(3, 1234, 0o4755, 1_600_000_000)}


def test_tarfile_reads_what_is_written() -> None:
    data = layer(file(b"long/" * 40 + b"\xff\xfe", b"data", uid=0xFFFFFF, mode=0o6711))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        (member,) = archive.getmembers()
        assert member.name.encode("utf-8", "surrogateescape") == b"long/" * 40 + b"\xff\xfe"
        assert (member.uid, member.mode) == (0xFFFFFF, 0o6711)
        extracted = archive.extractfile(member)
        assert extracted is not None
        assert extracted.read() == b"data"


def test_an_archive_may_be_empty_or_end_without_its_trailer() -> None:
    assert read_all(b"") == []
    assert read_all(END) == []
    assert len(read_all(layer(file(b"a", b"x")).removesuffix(END))) == 1


def test_a_second_archive_behind_the_end_is_not_read() -> None:
    both = layer(file(b"first")) + layer(file(b"second"))
    assert [header.name for header in read_all(both)] == [b"first"]


def test_an_archive_cut_anywhere_is_refused_or_ends_between_members() -> None:
    whole = layer(file(b"n" * 200, b"x" * 1500), file(b"b", b"y"))
    names = [header.name for header in read_all(whole)]
    for length in range(0, len(whole), 128):
        try:
            found = [header.name for header in read_all(whole[:length])]
        except BadArchive:
            continue
        assert found == names[: len(found)]
        assert length % 512 == 0 or found == names, "half a header was taken for the end"


@pytest.mark.parametrize(
    "size_field",
    [
        b"\xff" * 12,
        b"\x80" + b"\xff" * 11,
        b"-0000000001\0",
        b"not octal!!\0",
        b"77777777777\0".replace(b"7", b"9"),
    ],
    ids=["negative", "huge", "minus", "words", "nines"],
)
def test_a_size_that_makes_no_sense_is_refused(size_field: bytes) -> None:
    with pytest.raises(BadArchive):
        read_all(raw_member(b"a", b"0", size_field) + END)


@pytest.mark.parametrize("flag", [b"L", b"K", b"x", b"g"])
def test_a_header_that_announces_gigabytes_is_refused_before_reading_it(flag: bytes) -> None:
    source = Memory(raw_member(b"a", flag, b"\x80" + (4 << 30).to_bytes(11, "big")) + END)
    with pytest.raises(BadArchive, match="too long"):
        list(members(source))
    assert source.largest_read <= 512


@pytest.mark.parametrize("flag", [b"S", b"M", b"V", b"D", b"7", b"\xff", b"X"])
def test_a_type_that_is_not_known_is_refused(flag: bytes) -> None:
    with pytest.raises(BadArchive, match="unknown type"):
        read_all(raw_member(b"a", flag) + END)


@pytest.mark.parametrize(
    "records",
    [
        (b"GNU.sparse.major=1", b"GNU.sparse.minor=0"),
        (b"GNU.sparse.size=1099511627776",),
        (b"size=-1",),
        (b"size=99999999999999999999999",),
        (b"size=1e9",),
        (b"uid=4294967295",),
        (b"path=a\0b",),
        (b"path=",),
        (b"linkpath=" + b"x" * 5000,),
    ],
    ids=lambda records: records[0][:24].decode("latin-1").replace("\0", "0"),
)
def test_a_pax_header_that_lies_is_refused(records: tuple[bytes, ...]) -> None:
    with pytest.raises(BadArchive):
        read_all(pax(*records) + raw_member(b"a", b"0") + END)


@pytest.mark.parametrize(
    "data",
    [b"5 a=", b"99 a=b\n", b"0 a=b\n", b"-6 a=b\n", b"6 a-b\n\n", b"5 =b\n", b"junk", b"7 a=b\nx"],
)
def test_a_broken_pax_header_is_refused(data: bytes) -> None:
    with pytest.raises(BadArchive, match="pax"):
        read_all(raw_member(b"p", b"x", data=data) + raw_member(b"a", b"0") + END)


def test_a_global_pax_header_says_nothing_about_members() -> None:
    data = pax(b"path=evil", b"uid=7", flag=b"g") + raw_member(b"good", b"0") + END
    (header,) = read_all(data)
    assert (header.name, header.uid) == (b"good", 0)


def test_an_extended_header_without_its_member_is_refused() -> None:
    with pytest.raises(BadArchive, match="within a member"):
        read_all(pax(b"path=x") + END)


def test_a_broken_checksum_is_refused() -> None:
    data = bytearray(layer(file(b"a")))
    data[0] ^= 1
    with pytest.raises(BadArchive, match="broken header"):
        read_all(bytes(data))


def test_what_is_no_tar_at_all_is_refused() -> None:
    with pytest.raises(BadArchive, match="tar"):
        read_all(b"PK\x03\x04" + bytes(range(256)) * 20)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (b"./a//b/./c/", (b"a", b"b", b"c")),
        (b"./", ()),
        (b"..a/b..", (b"..a", b"b..")),
        (b"-rf\n\x1b[31m", (b"-rf\n\x1b[31m",)),
        (b"\xff\xfe/\xc3", (b"\xff\xfe", b"\xc3")),
    ],
)
def test_names_are_taken_apart(name: bytes, parts: tuple[bytes, ...]) -> None:
    assert components(name) == parts


@pytest.mark.parametrize(
    "name",
    [b"/etc/x", b"//etc/x", b"../x", b"a/../../x", b"a/..", b"..", b"./..//x", b"n" * 256],
)
def test_names_that_lead_out_or_are_too_long_are_refused(name: bytes) -> None:
    with pytest.raises(BadArchive):
        components(name)


@given(st.binary(max_size=3000))
def test_noise_is_refused_and_never_crashes(noise: bytes) -> None:
    try:
        read_all(noise)
    except BadArchive:
        return


@given(st.integers(0, 511), st.integers(0, 255))
def test_a_flipped_byte_in_a_header_is_noticed(position: int, value: int) -> None:
    data = bytearray(layer(file(b"name", uid=5)))
    old = data[position]
    data[position] = value
    try:
        headers = read_all(bytes(data))
    except BadArchive:
        assert old != value
    else:
        # The checksum does not count its own six digits' padding.
        assert headers == read_all(layer(file(b"name", uid=5)))


def test_headers_before_one_member_are_bounded() -> None:
    """They are kept until it comes, and may be a MiB each."""
    extension = encode(Header(b"n" * 200, Kind.FILE))[:1024]
    source = Memory(extension * 16 + encode(Header(b"f", Kind.FILE)))
    assert [header.name for header in members(source)] == [b"n" * 200]
    with pytest.raises(BadArchive, match="too many headers"):
        list(members(Memory(extension * 17 + encode(Header(b"f", Kind.FILE)))))
