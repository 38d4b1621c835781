"""Compressed bodies that arrive in pieces, of several members or without their end."""

import gzip
import random
import zlib

import pytest

from tests.tools.web_server import without_header
from vtune.tools.unpacking import Unpacker

TEXT = random.Random(0).randbytes(3000).hex().encode()
PARTS = [TEXT[start : start + 500] for start in range(0, len(TEXT), 500)]


def unpacked(data: bytes, *, step: int = 2**16, most: int = 2**20) -> tuple[bytes, bool]:
    unpacker = Unpacker(most)
    for start in range(0, len(data), step):
        unpacker.feed(data[start : start + step])
    return bytes(unpacker.data), unpacker.complete


@pytest.mark.parametrize("step", [1, 7, 2**16])
def test_every_form_of_compression_is_unpacked(step: int) -> None:
    members = b"".join(map(gzip.compress, PARTS))
    for packed in (gzip.compress(TEXT), members, zlib.compress(TEXT), without_header(TEXT)):
        assert unpacked(packed, step=step) == (TEXT, True)


@pytest.mark.parametrize("step", [1, 7, 2**16])
@pytest.mark.parametrize("after", [b"\0" * 9, b"\x1f", b"<!-- cached -->" * 9, b"\x1f\x1f\x8b"])
def test_what_follows_the_last_member_is_ignored(after: bytes, step: int) -> None:
    assert unpacked(gzip.compress(TEXT) + after, step=step) == (TEXT, True)


def test_a_body_without_its_end_is_incomplete() -> None:
    whole = gzip.compress(TEXT)
    for data in (whole[:-1], whole + whole[:40], zlib.compress(TEXT)[:-1], without_header(TEXT)[:-1]):
        assert not unpacked(data)[1]


def test_nothing_unpacks_to_nothing() -> None:
    assert unpacked(b"") == (b"", True)


def test_unpacking_stops_at_the_limit_however_many_members_there_are() -> None:
    for data in (gzip.compress(bytes(10**6)), gzip.compress(bytes(90)) * 1000):
        assert len(unpacked(data, most=1000)[0]) == 1001


def test_a_body_of_empty_members_takes_no_quadratic_time() -> None:
    copied = 0
    unpacker = Unpacker(1000)
    inner = unpacker._unpacked

    def counted(piece: bytes) -> bytes:
        nonlocal copied
        copied += len(piece)
        return inner(piece)

    unpacker._unpacked = counted  # type: ignore[method-assign]
    data = gzip.compress(b"") * 20_000
    unpacker.feed(data)
    assert copied < 200 * len(data)
