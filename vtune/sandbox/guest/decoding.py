"""Decodes a picture on behalf of the trainer: a file in, raw pixels out."""

import mmap
from pathlib import Path
from typing import Any

import PIL.Image

from .artifacts import FORMATS, UNREADABLE
from .folders import INPUTS


def eight_bits(picture: PIL.Image.Image) -> PIL.Image.Image:
    """A picture whose grey levels have 8 bits, as in `vtune.schema.decode`.

    Pillow would clip 16-bit levels, to white almost everywhere. One with only 8-bit values stays as it is.
    """
    if not picture.mode.startswith("I"):
        return picture
    levels = picture.convert("I")
    most: Any = levels.getextrema()[1]
    share = 256 / (1 << int(most).bit_length())
    return levels.point(lambda level: level * share).convert("L") if most > 255 else picture


def fill(picture: Any, file: str) -> None:
    """Give an input, an RGB picture from a PNG or JPEG, its pixels from a file, as if it had been decoded.

    Args:
        picture: Opened, but not decoded yet.
        file: Holds its pixels, row by row, three bytes each.
    """
    begin = picture.tile[0].offset
    picture.load_prepare()
    with open(file, "rb") as pixels, mmap.mmap(pixels.fileno(), 0, prot=mmap.PROT_READ) as content:
        picture.frombytes(content)
    picture.tile, picture.map, picture.readonly = [], None, 0
    picture.fp.seek(begin)
    # Read what a PNG stores after its pixels.
    picture.load_end()
    picture.fp.close()
    picture.fp = None


def decode(name: str, into: str, max_pixels: int, part: int) -> dict[str, Any]:
    """Decode an input file into files of the workspace.

    Args:
        name: Name of the input.
        into: Prefix for the names of the files; a number from 0 follows.
        max_pixels: Pixels that it may have.
        part: Bytes per file, except the last.

    Returns:
        `mode` (L, RGB or RGBA) and `size` of the pixels written, or `refused`, the reason for writing none.
    """
    try:
        picture = PIL.Image.open(f"../{INPUTS}/{name}", formats=FORMATS)
        if picture.width * picture.height > max_pixels:
            return {"refused": f"it has more than the {max_pixels} pixels allowed"}
        shown = eight_bits(picture)
        mode = "RGBA" if shown.has_transparency_data else "L" if shown.mode == "L" else "RGB"
        pixels = memoryview(shown.convert(mode).tobytes())
        for number, begin in enumerate(range(0, len(pixels), part)):
            Path(f"{into}{number}").write_bytes(pixels[begin : begin + part])
    except UNREADABLE:
        return {"refused": "it is not a picture"}
    return {"mode": mode, "size": list(picture.size)}
