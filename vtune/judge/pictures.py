"""Encoded pictures as judges need them: their bytes, their size, and whether one shows another."""

import base64
import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops

from vtune.errors import DataError
from vtune.files import reading
from vtune.schema.box import Box, area, clamp
from vtune.schema.decode import UNDECODABLE, is_turned, opaque
from vtune.schema.decoded import Pixels, at_hand, decoded
from vtune.schema.message import Picture
from vtune.schema.pixels import open_picture, size_of

BLOCK = 8
"""Pictures of equal size are compared by the mean brightness of 8 x 8 pixels: JPEG's block, whose mean
survives it."""

SAME_LEVELS = 8
"""How far these means may differ in the same picture, of 255, ours. Measured on 26 photographs, JPEG moves
none further than 5 (quality 75) or 6 (quality 50); a line one pixel wide moves its blocks by up to 32."""

CELL = 16
"""All are compared by the mean colour of at least 16 x 16 pixels of both: JPEG mixes colours within them, and
filters of a resize reach across smaller ones."""

SAME_COLOURS = 16
"""How far these means may differ in any of red, green and blue, of 255, ours. Measured on 26 photographs:
JPEG of quality 50 moves none further than 15, a resize by 0.5 to 2 none further than 12; of a coloured frame
two pixels wide, of contrast times 1.3, of grey levels, a half turn or an edge filter, every one moves some
cell by 24 or more."""

SHARPER = 1.15
"""Times as much detail as its source (mean of the Laplacian's size) makes a picture of the same size another
one, if what is added follows the source's own; ours. Measured on 52 crops of 26 photographs: JPEG adds 8 % at
most, sharpening by 1.5 at least 23 %. What smoothing takes away, JPEG may take away, too."""

FOLLOWS = 0.5
"""Correlation of what is added with the source's Laplacian, from which on it follows it: noise and patterns
that nobody sees have none; ours."""

SMALLEST_SIDE = 28
"""Pixels; the patch of Qwen2-VL and Qwen2.5-VL, whose servers refuse pictures that are smaller."""

LONGEST_ASPECT = 100
"""Long side / short side, ours: those servers refuse more than 200, before they round to patches."""

Size = tuple[int, int]
"""(width, height) in pixels."""


def read_bytes(picture: Picture) -> bytes:
    """The encoded picture.

    Raises:
        DataError: If it holds no bytes and its path cannot be read.
    """
    if picture.data is not None:
        return picture.data
    if picture.path is None:
        raise DataError("a picture has neither bytes nor a path", where=f"picture from {picture.origin}")
    try:
        return reading.read_bytes(Path(picture.path))
    except OSError as error:
        raise DataError(f"a picture cannot be read: {error.strerror}", where=picture.path) from None


def picture_size(picture: Picture) -> Size:
    """Width and height in pixels, from the header where it has not been decoded lately.

    Raises:
        DataError: If it is not a picture.
    """
    data = read_bytes(picture)
    pixels = at_hand(data)
    if pixels is not None:
        return pixels.shape[1], pixels.shape[0]
    return size_of(data, where=_place(picture))


def data_url(picture: Picture) -> str:
    """The picture as a `data:` URL that any judge takes.

    Not re-encoded, unless it is narrower than `SMALLEST_SIDE` or longer than `LONGEST_ASPECT`: then it gets
    grey margins along its long sides, is enlarged by a whole number, or both. Or unless EXIF turns it: some
    services would, and show what the policy has not seen.

    Raises:
        DataError: If it is not a picture.
    """
    data = read_bytes(picture)
    with _open(picture) as image:
        kind = Image.MIME.get(image.format or "", "image/png")
        refused = min(image.size) < SMALLEST_SIDE or max(image.size) > LONGEST_ASPECT * min(image.size)
        if refused or is_turned(data):
            kind, data = "image/png", _accepted(_colours(image, picture))
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def same_picture(a: Picture, b: Picture) -> bool:
    """Whether two pictures look the same: equal size, and one shows the other unchanged.

    So a copy that was only encoded anew is the same picture; a turned, marked or brightened one is not.

    Raises:
        DataError: If one is not a picture.
    """
    if a.data is not None and a.data == b.data:
        return True
    width, height = picture_size(a)
    return picture_size(b) == (width, height) and shows_unchanged(a, b, (0, 0, width, height))


def shows_unchanged(picture: Picture, source: Picture, box: Box) -> bool:
    """Whether a picture shows a region of another as it is, at any size.

    True where no cell of `CELL` pixels differs in colour and, at equal size, no block of `BLOCK` pixels in
    brightness, and there is no more detail. Encoding anew and resizing change nothing here, nor does light
    smoothing; turns, marks, sharpening, strong filters and contrast do.

    Args:
        picture: What may show the region, and nothing else.
        source: What the region is part of.
        box: The region, xyxy in pixels of `source`; what lies outside of it is not compared.

    Raises:
        DataError: If one is not a picture.
    """
    region = clamp(box, *picture_size(source))
    if area(region) == 0:
        return False
    ours, theirs = _pixels(picture), _pixels(source)
    if _cut_out(ours, theirs, region):
        return True
    shown, origin = Image.fromarray(ours), Image.fromarray(theirs)
    width, height = region[2] - region[0], region[3] - region[1]
    cells = (
        max(1, int(min(shown.width, width) / CELL)),
        max(1, int(min(shown.height, height) / CELL)),
    )
    mean = Image.Resampling.BOX
    if not _alike(shown.resize(cells, mean), origin.resize(cells, mean, box=region), SAME_COLOURS):
        return False
    if shown.size != (round(width), round(height)):
        return True
    left, top = round(region[0]), round(region[1])
    exact = origin.crop((left, top, left + shown.width, top + shown.height))
    grey, its_grey = shown.convert("L"), exact.convert("L")
    alike = _alike(grey.reduce(BLOCK), its_grey.reduce(BLOCK), SAME_LEVELS)
    return alike and not _sharpened(np.asarray(grey, np.float32), np.asarray(its_grey, np.float32))


def _cut_out(shown: Pixels, origin: Pixels, region: Box) -> bool:
    """Whether a picture is a region, pixel by pixel: as most are, and quick to see."""
    x0, y0, x1, y1 = (int(side) for side in region)
    return (x0, y0, x1, y1) == region and np.array_equal(shown, origin[y0:y1, x0:x1])


def _sharpened(shown: NDArray[np.float32], source: NDArray[np.float32]) -> bool:
    """Whether a picture has the detail of its source, and more of it."""
    if min(source.shape) < 3:
        return False
    detail, more = _laplacian(source), _laplacian(shown)
    # In smooth places JPEG makes a grey level of its own.
    if np.abs(more).mean() <= SHARPER * np.abs(detail).mean() + 1:
        return False
    added = (source - shown)[1:-1, 1:-1]
    strength = float(np.linalg.norm(added) * np.linalg.norm(detail))
    return float((added * detail).sum()) >= FOLLOWS * strength > 0


def _laplacian(grey: NDArray[np.float32]) -> NDArray[np.float32]:
    """How far the four neighbours of each pixel are above it together; without the rim."""
    across, down = grey[1:-1, :-2] + grey[1:-1, 2:], grey[:-2, 1:-1] + grey[2:, 1:-1]
    return np.asarray(across + down - 4 * grey[1:-1, 1:-1], np.float32)


def _alike(a: Image.Image, b: Image.Image, most: int) -> bool:
    """Whether no value of two pictures of one size differs by more than `most`."""
    return max(ImageChops.difference(a, b).tobytes()) <= most


def _accepted(image: Image.Image) -> bytes:
    """A picture of colours as PNG, with sides and aspect that judges take."""
    shortest = -(-max(image.size) // LONGEST_ASPECT)
    size = (max(image.width, shortest), max(image.height, shortest))
    padded = Image.new("RGB", size, "grey")
    padded.paste(image, ((size[0] - image.width) // 2, (size[1] - image.height) // 2))
    times = -(-SMALLEST_SIDE // min(size))
    out = io.BytesIO()
    padded.resize((size[0] * times, size[1] * times), Image.Resampling.NEAREST).save(out, "PNG")
    return out.getvalue()


def _colours(image: Image.Image, picture: Picture) -> Image.Image:
    try:
        image.load()
        return opaque(image)
    except UNDECODABLE as error:
        raise DataError(f"a picture cannot be decoded: {error}", where=_place(picture)) from None


def _pixels(picture: Picture) -> Pixels:
    """Its pixels, which looks have decoded already, or will."""
    data = read_bytes(picture)
    try:
        return decoded(data)
    except DataError as error:
        raise DataError(error.what, where=_place(picture), fix=error.fix) from None


def _open(picture: Picture) -> Image.Image:
    return open_picture(read_bytes(picture), where=_place(picture))


def _place(picture: Picture) -> str:
    return picture.path or f"picture from {picture.origin}"
