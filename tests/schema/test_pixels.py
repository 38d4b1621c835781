"""No external picture costs more than the limits allow, whatever its bytes are."""

import contextlib
import io
import struct
import time
import tracemalloc
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vtune.errors import DataError
from vtune.runs.plan.self_test import bombs
from vtune.schema import pixels
from vtune.schema.decode import UNDECODABLE
from vtune.schema.heads import MOST_MARKERS, NoHead, read_head
from vtune.schema.pixels import Refused, check_head, decode, decode_picture, decode_reduced, size_of

COLOURS = Image.linear_gradient("L").resize((60, 40)).convert("RGB")
KINDS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


VARIANTS = {
    "progressive": encoded(COLOURS, "JPEG", progressive=True),
    "lossless": encoded(COLOURS, "WEBP", lossless=True),
    "see-through": encoded(COLOURS.convert("RGBA"), "WEBP"),
    "animated": encoded(COLOURS, "WEBP", save_all=True, append_images=[COLOURS.rotate(9)]),
    "two frames": encoded(COLOURS, "GIF", save_all=True, append_images=[COLOURS.rotate(9)]),
    "two pictures": encoded(COLOURS, "MPO", save_all=True, append_images=[COLOURS.rotate(9)]),
    "grey and alpha": encoded(COLOURS.convert("LA"), "PNG"),
    **{kind: encoded(COLOURS, kind) for kind in KINDS},
}


@given(kind=st.sampled_from(KINDS), width=st.integers(1, 300), height=st.integers(1, 300))
@settings(max_examples=60, deadline=None)
def test_a_parsed_header_matches_pillow(kind: str, width: int, height: int) -> None:
    content = encoded(Image.new("RGB", (width, height)), kind)
    head = read_head(content)
    with Image.open(io.BytesIO(content)) as picture:
        assert (head.kind, head.width, head.height) == (picture.format, *picture.size)
    assert head.scans == 1


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_every_variant_of_a_format_is_read(name: str) -> None:
    head = read_head(VARIANTS[name])
    assert (head.width, head.height) == COLOURS.size == size_of(VARIANTS[name])
    assert decode(VARIANTS[name]).tobytes() == Image.open(io.BytesIO(VARIANTS[name])).convert("RGB").tobytes()


def test_a_progressive_jpeg_is_recognised_by_its_scans() -> None:
    assert read_head(VARIANTS["progressive"]).scans == 10


@pytest.mark.parametrize(
    "marker",
    [b"\xff\xe0\x00\x02", b"\xff\xd0", b"\xff\x00", b"\xff\xff\xff\x01"],
    ids=["empty segments", "restarts", "no markers", "fill"],
)
def test_a_jpeg_with_too_many_markers_before_its_pixels_is_refused(marker: bytes) -> None:
    plain = VARIANTS["JPEG"]
    assert read_head(plain[:2] + marker * 50 + plain[2:]) == read_head(plain)
    with pytest.raises(NoHead):
        read_head(plain[:2] + marker * MOST_MARKERS + plain[2:])


def test_thumbnail_scans_do_not_count_and_hide_no_others() -> None:
    thumbnail = b"\xff\xd8" + b"\xff\xda" * 50 + b"\xff\xd9"
    segment = b"\xff\xe1" + struct.pack(">H", 2 + len(thumbnail)) + thumbnail
    content = VARIANTS["progressive"][:2] + segment + VARIANTS["progressive"][2:]
    assert read_head(content).scans == 10
    assert size_of(content) == COLOURS.size


@pytest.mark.parametrize("name", sorted(bombs()))
def test_a_decompression_bomb_is_refused_before_decoding(name: str) -> None:
    content = bombs()[name]
    assert len(content) < 700_000
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(DataError, match="a picture cannot be decoded: it ") as error:
        decode_picture(content, where="row 7")
    took, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took < 0.5
    assert peak < 5e6
    assert (error.value.where, bool(error.value.fix)) == ("row 7", True)


@pytest.mark.parametrize(
    ("width", "height", "why"),
    [
        (0, 5, "no pixels"),
        (pixels.MAX_SIDE + 1, 2000, "a side has"),
        (2001, 1, "more than 2000 times"),
        (1, 2001, "more than 2000 times"),
        (8193, 8192, "pixels, more than"),
    ],
)
def test_each_limit_has_its_own_reason(width: int, height: int, why: str) -> None:
    with pytest.raises(Refused, match=why):
        pixels.check_size(width, height)


@pytest.mark.parametrize(
    ("width", "height"), [(1, 1), (2000, 1), (8192, 8192), (pixels.MAX_SIDE, 17), (7680, 4320)]
)
def test_a_picture_within_the_limits_passes(width: int, height: int) -> None:
    pixels.check_size(width, height)


def test_scans_are_weighted_by_the_pixels_they_cover() -> None:
    few, many = bombs()["a JPEG of 2000 scans"], _with_scans((64, 64), 60)
    with pytest.raises(Refused, match="2006 scans"):
        check_head(few)
    assert check_head(many).scans == 66
    with pytest.raises(Refused, match="66 scans"):
        check_head(_with_scans((4500, 4500), 60))


def _with_scans(size: tuple[int, int], more: int) -> bytes:
    content = encoded(Image.new("L", size), "JPEG", progressive=True)
    last = content[content.rindex(b"\xff\xc4", 0, content.rindex(b"\xff\xda")) : -2]
    return content[:-2] + last * more + content[-2:]


def test_a_run_length_bmp_is_unpacked_only_if_small() -> None:
    def packed(side: int) -> bytes:
        palette = bytes(1024)
        return (
            struct.pack("<2sIHHI", b"BM", 0, 0, 0, 54 + len(palette))
            + struct.pack("<IiiHHIIiiII", 40, side, side, 1, 8, 1, 0, 0, 0, 256, 0)
            + palette
            + (b"\x04\x00" * (side // 4) + b"\0\0") * side
        )

    assert decode(packed(64)).size == (64, 64)
    with pytest.raises(Refused, match="run lengths"):
        decode(packed(1100))


def test_a_contradicting_second_header_is_detected() -> None:
    content = encoded(Image.new("L", (8, 8)), "PNG")
    data = b"IHDR" + struct.pack(">II", 30_000, 30_000) + content[24:29]
    second = struct.pack(">I", 13) + data + struct.pack(">I", zlib.crc32(data))
    with pytest.raises(Refused):
        decode(content[:33] + second + content[33:])


@pytest.mark.parametrize(
    ("kind", "why"),
    [("TIFF", "it is TIFF, and")] + [(kind, "not a picture") for kind in ("PPM", "ICO", "TGA")],
)
def test_other_formats_are_refused(kind: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        decode(encoded(COLOURS, kind))


def test_a_reduced_jpeg_is_decoded_no_larger_than_needed() -> None:
    content = encoded(Image.new("RGB", (1600, 1200), "red"), "JPEG")
    assert decode_reduced(content, 100).size == (200, 150)
    with pytest.raises(DataError, match="damaged"):
        decode_reduced(encoded(COLOURS, "PNG")[:-40], 100)


@given(
    name=st.sampled_from(sorted(VARIANTS)),
    changes=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=8),
    cut=st.none() | st.integers(0, 2000),
)
@settings(max_examples=200, deadline=None)
def test_a_damaged_picture_is_only_ever_refused(
    name: str, changes: list[tuple[int, int]], cut: int | None
) -> None:
    content = bytearray(VARIANTS[name])
    for at, value in changes:
        content[at % len(content)] = value
    # Any other exception must fail the test.
    with contextlib.suppress(Refused):
        assert min(decode(bytes(content[:cut])).size) > 0


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_bytes_without_a_header_are_recognised(content: bytes) -> None:
    for start in (b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"BM", b"RIFF0000WEBPVP8 "):
        try:
            read_head(start + content)
        except NoHead:
            continue


def test_all_exceptions_of_pillow_are_covered() -> None:
    assert OSError in UNDECODABLE
    assert Image.DecompressionBombError in UNDECODABLE
