"""Encoded pictures as judges need them: their bytes, their size, and whether one shows another."""

import base64
import hashlib
import io
from collections.abc import Sequence
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
"""Pictures of equal size are compared by the mean brightness of blocks of 8 x 8 pixels: JPEG's block size,
and JPEG preserves a block's mean."""

SAME_LEVELS = 8
"""Limit on the difference of these means in the same picture, of 255; ours. Measured on 26 photographs: JPEG
moves none further than 5 (quality 75) or 6 (quality 50); a line one pixel wide moves its blocks by up to
32."""

CELL = 16
"""All are compared by the mean colour of cells of at least 16 x 16 pixels of both: JPEG mixes colours within
them, and resize filters reach across smaller ones."""

SAME_COLOURS = 16
"""Limit on the difference of these means in each of red, green and blue, of 255; ours. Measured on 26
photographs: JPEG of quality 50 moves none further than 15, a resize by 0.5 to 2 none further than 12. A
coloured frame two pixels wide, contrast times 1.3, greyscale, a half turn or an edge filter each move some
cell by 24 or more."""

SHARPER = 1.15
"""A picture of the same size is a different one if it has at least this many times the detail of its source
(mean absolute Laplacian) and the added detail follows the source's; ours. Measured on 52 crops of 26
photographs: JPEG adds 8 % at most, sharpening by 1.5 at least 23 %. Lost detail does not count: JPEG smooths,
too."""

FOLLOWS = 0.5
"""Correlation of the added detail with the source's Laplacian from which it counts as following it: noise and
invisible patterns have none; ours."""

SMALLEST_SIDE = 28
"""In pixels: the patch size of Qwen2-VL and Qwen2.5-VL, whose servers refuse smaller pictures."""

LONGEST_ASPECT = 100
"""Long side / short side; ours: those servers refuse more than 200, even before rounding to patches."""

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


def digests(pictures: Sequence[Picture]) -> bytes:
    """What identifies pictures in their order: the SHA-256 of each.

    Raises:
        DataError: If one cannot be read.
    """
    return b"".join(hashlib.sha256(read_bytes(picture)).digest() for picture in pictures)


def picture_size(picture: Picture) -> Size:
    """Width and height in pixels, from the header unless it was decoded recently.

    Raises:
        DataError: If it is not a picture.
    """
    data = read_bytes(picture)
    pixels = at_hand(data)
    if pixels is not None:
        return pixels.shape[1], pixels.shape[0]
    return size_of(data, where=_place(picture))


def data_url(picture: Picture) -> str:
    """The picture as a `data:` URL that any judge accepts.

    It is re-encoded only if it is narrower than `SMALLEST_SIDE` or longer than `LONGEST_ASPECT` (then it gets
    grey margins along its long sides, is enlarged by a whole number, or both), or if EXIF rotates it: some
    services would apply that, and show something that the policy has not seen.

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

    So a re-encoded copy is the same picture; a rotated, marked or brightened one is not.

    Raises:
        DataError: If one is not a picture.
    """
    if a.data is not None and a.data == b.data:
        return True
    width, height = picture_size(a)
    return picture_size(b) == (width, height) and shows_unchanged(a, b, (0, 0, width, height))


def shows_unchanged(picture: Picture, source: Picture, box: Box) -> bool:
    """Whether a picture shows a region of another unchanged, at any size.

    True if no cell of `CELL` pixels differs in colour and, at equal size, no block of `BLOCK` pixels in
    brightness, and there is no added detail. Re-encoding and resizing do not count as changes, nor does light
    smoothing; rotation, marks, sharpening, strong filters and contrast do.

    Args:
        picture: The picture that may show the region and nothing else.
        source: The picture that contains the region.
        box: The region, xyxy in pixels of `source`; anything outside is not compared.

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
    """Whether a picture is a region, pixel by pixel: true of most, and quick to check."""
    x0, y0, x1, y1 = (int(side) for side in region)
    return (x0, y0, x1, y1) == region and np.array_equal(shown, origin[y0:y1, x0:x1])


def _sharpened(shown: NDArray[np.float32], source: NDArray[np.float32]) -> bool:
    """Whether a picture has its source's detail, amplified."""
    if min(source.shape) < 3:
        return False
    detail, more = _laplacian(source), _laplacian(shown)
    # In smooth areas JPEG alone adds about one grey level.
    if np.abs(more).mean() <= SHARPER * np.abs(detail).mean() + 1:
        return False
    added = (source - shown)[1:-1, 1:-1]
    strength = float(np.linalg.norm(added) * np.linalg.norm(detail))
    return float((added * detail).sum()) >= FOLLOWS * strength > 0


def _laplacian(grey: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sum of the four neighbours of each pixel minus four times the pixel; without the border."""
    across, down = grey[1:-1, :-2] + grey[1:-1, 2:], grey[:-2, 1:-1] + grey[2:, 1:-1]
    return np.asarray(across + down - 4 * grey[1:-1, 1:-1], np.float32)


def _alike(a: Image.Image, b: Image.Image, most: int) -> bool:
    """Whether no value differs by more than `most` between two pictures of the same size."""
    return max(ImageChops.difference(a, b).tobytes()) <= most


def _accepted(image: Image.Image) -> bytes:
    """A colour picture as PNG, with sides and aspect that judges accept."""
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
    """Its pixels, from the cache that it shares with `vtune.looks`."""
    data = read_bytes(picture)
    try:
        return decoded(data)
    except DataError as error:
        raise DataError(error.what, where=_place(picture), fix=error.fix) from None


def _open(picture: Picture) -> Image.Image:
    return open_picture(read_bytes(picture), where=_place(picture))


def _place(picture: Picture) -> str:
    return picture.path or f"picture from {picture.origin}"
