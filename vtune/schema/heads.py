"""Reads the header of an encoded picture in plain Python: safe for untrusted bytes.

No decoder runs, and no memory is allocated on the strength of a header. It is read before anything else is
done with a picture from outside; `vtune.schema.pixels` has the limits.
"""

import re
import struct
from dataclasses import dataclass

PNG_MARK = b"\x89PNG\r\n\x1a\n"
MOST_MARKERS = 10_000
"""Limit on a JPEG's markers before its first coded pixels; ours. 64 MB in segments of maximum length
are a thousand; one with millions would take seconds to read."""
_SCAN = b"\xff\xda"
_FILL = re.compile(rb"\xff+")


_OTHERS = {
    "TIFF": (b"II*\0", b"MM\0*"),
    "AVIF": (b"ftypavif", b"ftypavis"),
    "HEIC": (b"ftyphei", b"ftyphev", b"ftypmif1"),
    "JPEG 2000": (b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51"),
}
"""First bytes of pictures that no decoder here reads; `ftyp` follows the four bytes of a length."""
_DRAWN = (b"<svg", b"<?xml", b"<!--", b"<!DOCTYPE svg")
_BEGIN = 1 << 12
"""Number of bytes in which an SVG's root element must begin, after any comments (ours)."""


class NoHead(Exception):
    """The bytes do not begin like a picture of a known format."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a header claims; the data decoded later may differ."""

    kind: str
    """PNG, JPEG, WEBP, BMP or GIF."""
    width: int
    height: int
    scans: int = 1
    """Upper bound on the passes of decoding over all pixels: a progressive JPEG has many."""
    packed: bool = False
    """Whether it is a run-length encoded BMP, which Pillow decodes in Python."""


def read_head(content: bytes) -> Head:
    """Format and size of an encoded picture.

    Raises:
        NoHead: If it is not the header of a known format.
    """
    try:
        if content.startswith(PNG_MARK):
            if content[12:16] != b"IHDR":
                raise NoHead
            return Head("PNG", *struct.unpack_from(">II", content, 16))
        if content.startswith(b"\xff\xd8\xff"):
            return _jpeg(content)
        if content.startswith((b"GIF87a", b"GIF89a")):
            return Head("GIF", *struct.unpack_from("<HH", content, 6))
        if content.startswith(b"BM"):
            return _bmp(content)
        if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
            return _webp(content)
    except struct.error:
        raise NoHead from None
    raise NoHead


def other_kind(content: bytes) -> str | None:
    """The kind of a picture that `read_head` does not know; None if it does not begin like one."""
    begin = content[:_BEGIN]
    text = begin.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(_DRAWN) and b"<svg" in text:
        return "SVG"
    boxed = begin[4:] if begin[4:8] == b"ftyp" else begin
    return next((kind for kind, marks in _OTHERS.items() if boxed.startswith(marks)), None)


def _bmp(content: bytes) -> Head:
    (length,) = struct.unpack_from("<I", content, 14)
    if length == 12:
        return Head("BMP", *struct.unpack_from("<HH", content, 18))
    width, height, _, _, packing = struct.unpack_from("<iiHHI", content, 18)
    # Top to bottom if the height is negative.
    return Head("BMP", abs(width), abs(height), packed=packing in (1, 2))


def _webp(content: bytes) -> Head:
    kind = content[12:16]
    if kind == b"VP8X":
        sides = content[24:27], content[27:30]
        width, height = (int.from_bytes(side, "little") + 1 for side in sides)
        return Head("WEBP", width, height)
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", content, 21)
        return Head("WEBP", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", content, 26)
        return Head("WEBP", width & 0x3FFF, height & 0x3FFF)
    raise NoHead


def _jpeg(content: bytes) -> Head:
    """Walk from segment to segment, as libjpeg does, up to the first coded pixels."""
    size: tuple[int, int] | None = None
    at = 2
    for _ in range(MOST_MARKERS):
        # Other bytes are skipped, FF may be repeated, FF 00 is not a marker.
        found = _FILL.search(content, at)
        if found is None or found.end() == len(content):
            raise NoHead
        at = found.end()
        marker = content[at]
        if marker == 0xDA:
            break
        at += 1
        if marker in (0x00, 0x01) or 0xD0 <= marker <= 0xD8:
            continue
        (length,) = struct.unpack_from(">H", content, at)
        if length < 2:
            raise NoHead
        # SOF0 to SOF15, except DHT, JPG and DAC in the same range.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", content, at + 3)
            size = width, height
        at += length
    else:
        raise NoHead
    if size is None:
        raise NoHead
    # Coded pixels never contain these two bytes, and thumbnails are in segments that were skipped.
    return Head("JPEG", *size, scans=content.count(_SCAN, at - 1))
