"""Pictures from Pillow as everything sees them: on white, 8-bit, as PNG; and what damaged ones raise."""

import io
import struct
import zlib
from typing import TYPE_CHECKING, Any

from PIL import ExifTags, Image

from vtune.schema.heads import PNG_MARK

if TYPE_CHECKING:  # the sandbox reads pictures without numpy
    import numpy as np
    from numpy.typing import NDArray

UNDECODABLE = (
    OSError,
    EOFError,
    SyntaxError,
    ValueError,
    IndexError,
    TypeError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)
"""All exceptions that Pillow raises for damaged files, on the header or when pixels are read."""


def eight_bits(picture: Image.Image) -> Image.Image:
    """A picture with 8-bit grey levels: Pillow would clip 16-bit ones, which makes nearly everything white.

    Scaled by the bits in use: with 12 of 16, as in X-rays, the 4 empty ones are dropped.
    A picture that uses only 8, as when Pillow converts other formats, stays unchanged.
    """
    if not picture.mode.startswith("I"):
        return picture
    levels = picture.convert("I")
    most: Any = levels.getextrema()[1]
    share = 256 / (1 << int(most).bit_length())
    return levels.point(lambda level: level * share).convert("L") if most > 255 else picture


TURNED = range(2, 9)
"""EXIF orientations that are not upright; other values are not orientations."""


def is_turned(content: bytes) -> bool:
    """Whether EXIF says to display a picture rotated or mirrored; nothing here does that."""
    try:
        with Image.open(io.BytesIO(content)) as picture:
            # Without EXIF in its header, a PNG would be decoded to search for it.
            return "exif" in picture.info and picture.getexif().get(ExifTags.Base.Orientation) in TURNED
    except UNDECODABLE:
        return False


def is_deep(content: bytes) -> bool:
    """Whether a file is a 16-bit greyscale PNG, according to its header."""
    return content.startswith(PNG_MARK) and content[24:26] == b"\x10\x00"


def eight_bit_file(content: bytes) -> bytes:
    """A 16-bit greyscale PNG converted to 8 bits, for any reader; unchanged if it cannot be decoded."""
    try:
        picture = Image.open(io.BytesIO(content), formats=["PNG"])
        picture.load()
    except UNDECODABLE:
        return content
    shown = eight_bits(picture)
    if shown is picture:
        return content
    return png_of(shown)


def png_of(picture: "Image.Image | NDArray[np.uint8]") -> bytes:
    """A picture, or its pixels, as PNG; packed as fast as possible, for it is often read only once."""
    if not isinstance(picture, Image.Image):
        picture = Image.fromarray(picture)
    file = io.BytesIO()
    picture.save(file, "PNG", compress_level=1)
    return file.getvalue()


def opaque(picture: Image.Image) -> Image.Image:
    """A picture in RGB, decoded; transparent parts become white, as in vLLM's readers.

    Without a background, some readers would show the hidden colours of a transparent picture.
    """
    picture.load()
    picture = eight_bits(picture)
    if not picture.has_transparency_data:
        return picture if picture.mode == "RGB" else picture.convert("RGB")
    layers = picture.convert("RGBA")
    ground = Image.new("RGBA", layers.size, "white")
    return Image.alpha_composite(ground, layers).convert("RGB")
