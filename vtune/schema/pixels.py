"""The one way from encoded bytes to pixels: limits that a foreign picture must pass before it is decoded.

Bytes from outside are rows of data sets, thumbnails from searches, requests to services, and above all the
output of a policy's code. A file of a few kilobytes can contain a picture that costs gigabytes or minutes:
one pixel wide and millions long, coded in thousands of passes, or packed so that only slow code can decode
it.
"""

import io

from PIL import Image

from vtune.errors import DataError
from vtune.schema.decode import UNDECODABLE, eight_bits, opaque
from vtune.schema.heads import Head, NoHead, other_kind, read_head

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
"""The only decoders that are ever tried. Others start programs (EPS) or bring large parsers with them."""

MAX_PIXELS = 1 << 26
"""Limit on width x height; ours: two 8K pictures (the largest in public data, in HR-Bench, are 8K). As RGB it
takes 200 MB."""

MAX_SIDE = 1 << 15
"""Limit on the longer side; ours: the cost of padding and patches grows with it whatever the area is."""

MAX_RATIO = 2000
"""Limit on longer side / shorter side; ours. The processors of Qwen2-VL and Qwen2.5-VL refuse more than 200,
so we pad to 100:1 first; that makes 11 million pixels of the longest thin picture allowed."""

MAX_SCANS = 100
"""Limit on a JPEG's passes; ours: encoders make 10 (libjpeg, progressive), optimisers some 20."""

MAX_SCANNED = 1 << 30
"""Limit on passes x pixels; ours: a pass takes 0.6 ns per pixel (`tests/bench/bench_decoding.py`) even if it
is empty, with 40 bytes. The largest picture allowed may have 16."""

MAX_PACKED_PIXELS = 1 << 20
"""Limit on the pixels of a run-length encoded BMP; ours: Pillow decodes it in Python, in half a second."""


REMEDY = f"store a PNG or JPEG of at most {MAX_PIXELS >> 20} Mi pixels and {MAX_RATIO}:1, or drop the row"
"""The next step for a user with such a picture in their data."""


class Refused(Exception):
    """What is wrong with a picture, as a clause about it: "it is not a picture"."""


def check_head(content: bytes, *, max_pixels: int = MAX_PIXELS) -> Head:
    """Check, from its header alone, that a picture may be decoded.

    Raises:
        Refused: If it is not a picture of a known format, or breaks a limit.
    """
    try:
        head = read_head(content)
    except NoHead:
        kind = other_kind(content)
        taken = f"{', '.join(FORMATS[:-1])} and {FORMATS[-1]}"
        raise Refused(f"it is {kind}, and {taken} are read" if kind else "it is not a picture") from None
    check_size(head.width, head.height, max_pixels=max_pixels)
    pixels = head.width * head.height
    if head.scans > MAX_SCANS or head.scans * pixels > MAX_SCANNED:
        raise Refused(f"it is a JPEG of {head.scans} scans, which takes too long to decode")
    if head.packed and pixels > MAX_PACKED_PIXELS:
        raise Refused("it is a BMP with run lengths, which takes too long to decode")
    return head


def check_size(width: int, height: int, *, max_pixels: int = MAX_PIXELS) -> None:
    """Check that a picture of this size, in pixels, may be decoded, padded and resized.

    Raises:
        Refused: If it has no pixels, too many, or sides that are too long or too unequal.
    """
    if min(width, height) < 1:
        raise Refused("it has no pixels")
    if width * height > max_pixels:
        raise Refused(f"it has {width * height} pixels, more than the {max_pixels} allowed")
    if max(width, height) > MAX_SIDE:
        raise Refused(f"it is {width} x {height}, and a side has {MAX_SIDE} pixels at most")
    if max(width, height) > MAX_RATIO * min(width, height):
        raise Refused(f"it is {width} x {height}: one side is more than {MAX_RATIO} times the other")


def examine(content: bytes, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Open a picture that may be decoded; decoding happens when its pixels are first accessed.

    Raises:
        Refused: If it is not a picture, or breaks a limit.
    """
    check_head(content, max_pixels=max_pixels)
    try:
        picture = Image.open(io.BytesIO(content), formats=FORMATS)
    except UNDECODABLE as error:
        raise Refused("it is not a picture") from error
    # A second header, or a frame larger than the screen, may have changed the size.
    check_size(*picture.size, max_pixels=max_pixels)
    return picture


def decode(content: bytes, mode: str | None = "RGB", *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """The decoded picture, in one of Pillow's modes; None keeps the file's mode.

    Raises:
        Refused: If it is not a picture, is truncated, or breaks a limit.
    """
    picture = examine(content, max_pixels=max_pixels)
    try:
        picture.load()
        if mode == "RGB":
            return opaque(picture)
        return picture if mode is None or picture.mode == mode else picture.convert(mode)
    except UNDECODABLE as error:
        raise Refused(f"it is damaged ({error})") from error


def open_picture(content: bytes, *, where: str = "") -> Image.Image:
    """Like `examine`, for pictures in data.

    Raises:
        DataError: If it is not a picture, or breaks a limit.
    """
    try:
        return examine(content)
    except Refused as refused:
        raise _bad(str(refused), where) from None


def decode_picture(content: bytes, mode: str | None = "RGB", *, where: str = "") -> Image.Image:
    """Like `decode`, for pictures in data.

    Raises:
        DataError: If it is not a picture, is truncated, or breaks a limit.
    """
    try:
        return decode(content, mode)
    except Refused as refused:
        raise _bad(str(refused), where) from None


def decode_reduced(content: bytes, side: int, mode: str = "RGB", *, where: str = "") -> Image.Image:
    """The decoded picture; a JPEG is quickly reduced to the resolution needed for `side` x `side`.

    Raises:
        DataError: If it is not a picture, is truncated, or breaks a limit.
    """
    picture = open_picture(content, where=where)
    try:
        picture.draft(mode, (side, side))
        shown = opaque(picture) if picture.has_transparency_data else eight_bits(picture)
        return shown.convert(mode)
    except UNDECODABLE as error:
        raise _bad(f"it is damaged ({error})", where) from None


def size_of(content: bytes, *, where: str = "") -> tuple[int, int]:
    """Width and height in pixels, without decoding.

    Raises:
        DataError: If it is not a picture, or breaks a limit.
    """
    return open_picture(content, where=where).size


def _bad(why: str, where: str) -> DataError:
    return DataError(f"a picture cannot be decoded: {why}", where=where, fix=REMEDY)
