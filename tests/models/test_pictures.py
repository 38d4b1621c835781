import io
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from tests.models.rows import LARGE, SMALL, picture
from vtune.errors import DataError
from vtune.models.families.qwen import _padded
from vtune.models.pictures import PictureReader, PixelBudget
from vtune.models.policy import Policy

BUDGET = PixelBudget(min_pixels=3136, max_pixels=12544)


@pytest.fixture
def reader(policy: Policy) -> PictureReader:
    return PictureReader(policy.pictures._processor, BUDGET)


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def test_the_same_bytes_are_processed_once(reader: PictureReader) -> None:
    first = reader.read(LARGE)
    assert reader.read(bytes(bytearray(LARGE))) is first
    assert reader.read(SMALL) is not first


def test_the_cache_stays_within_keep_bytes(policy: Policy) -> None:
    pictures = [picture(112, 112, seed=seed) for seed in range(6)]
    size = policy.pictures.read(pictures[0]).levels.nbytes
    reader = PictureReader(policy.pictures._processor, BUDGET, keep_bytes=3 * size + 1)
    first = [reader.read(data) for data in pictures]
    assert sum(kept.levels.nbytes for kept in reader._seen._kept.values()) == 3 * size
    assert [reader.read(data) is old for data, old in zip(pictures[3:], first[3:], strict=True)] == [True] * 3
    # The least recently used picture is evicted first, not the oldest.
    reader.read(pictures[3])
    reader.read(pictures[0])
    assert reader.read(pictures[3]) is first[3]
    assert reader.read(pictures[4]) is not first[4]


def test_a_picture_larger_than_the_cache_is_still_read(policy: Policy) -> None:
    reader = PictureReader(policy.pictures._processor, BUDGET, keep_bytes=1)
    assert [reader.read(LARGE).tokens, reader.read(SMALL).tokens] == [16, 6]
    assert len(reader._seen._kept) == 1


@pytest.mark.parametrize(("width", "height"), [(1, 500), (500, 1), (1, 1), (3, 601), (2000, 7), (448, 448)])
def test_any_shape_fills_whole_tokens_within_the_budget(
    reader: PictureReader, width: int, height: int
) -> None:
    pixels = reader.read(picture(width, height))
    t, h, w = pixels.grid
    assert len(pixels.patches) == t * h * w == 4 * pixels.tokens
    assert pixels.patches.dtype == torch.float32
    assert h % 2 == w % 2 == 0
    # A side is at least one token, so a very thin picture may exceed the budget.
    assert h * w * 14**2 <= BUDGET.max_pixels or min(h, w) == 2


def test_a_thin_picture_is_padded_not_stretched(reader: PictureReader) -> None:
    white = encoded(Image.new("RGB", (1, 500), "white"))
    _, h, w = reader.read(white).grid
    assert h > 10 * w


@pytest.mark.parametrize("mode", ["P", "RGBA", "LA", "L", "1", "I;16", "CMYK"])
def test_every_colour_mode_is_read_as_rgb(reader: PictureReader, mode: str) -> None:
    image = Image.new("RGB", (60, 60), (10, 200, 90)).convert(mode)
    pixels = reader.read(encoded(image, "JPEG" if mode == "CMYK" else "PNG"))
    assert (pixels.tokens, pixels.patches.shape[1]) == (4, 3 * 2 * 14 * 14)


def test_a_16_bit_picture_looks_like_its_8_bit_version(reader: PictureReader) -> None:
    """Pillow clips values above 255, so the picture would be almost white."""
    levels = np.linspace(0, 255, 56 * 56).reshape(56, 56).astype(np.uint8)
    deep = Image.fromarray(levels.astype(np.uint16) * 257)
    want = reader.read(encoded(Image.fromarray(levels))).patches
    torch.testing.assert_close(reader.read(encoded(deep)).patches, want)
    shallow = Image.fromarray(levels.astype(np.uint16))
    torch.testing.assert_close(reader.read(encoded(shallow)).patches, want)


def test_a_palette_picture_looks_like_its_colours(reader: PictureReader) -> None:
    image = Image.new("RGB", (56, 56), (10, 200, 90))
    palette = image.convert("P", palette=Image.Palette.ADAPTIVE)
    torch.testing.assert_close(reader.read(encoded(palette)).patches, reader.read(encoded(image)).patches)


@pytest.mark.parametrize("data", [b"", b"no picture", LARGE[:20], LARGE[:-40], b"\x89PNG\r\n\x1a\n"])
def test_bytes_that_are_not_a_picture_are_our_error(reader: PictureReader, data: bytes) -> None:
    with pytest.raises(DataError, match="cannot be decoded"):
        reader.read(data)


def between_its_data(file: bytes, chunk: bytes) -> bytes:
    """A PNG with an additional chunk before its last data chunk."""
    where = file.index(b"IDAT") - 4
    return file[:where] + struct.pack(">I", len(chunk) - 4) + chunk + b"\0\0\0\0" + file[where:]


LENGTH = int.from_bytes(SMALL[(start := SMALL.index(b"IDAT")) - 4 : start], "big")

# Each of these makes the decoder raise a different exception.
DAMAGED = {
    "a chunk with a broken checksum": between_its_data(SMALL, b"tEXtabc"),
    "data that break off in the middle": SMALL.replace(
        *(struct.pack(">I", LENGTH - cut) + b"IDAT" for cut in (0, 100))
    ),
    "a header that is not a number": b"P6\n40 x0\n255\n" + bytes(3600),
    "a text that is too long": between_its_data(SMALL, b"zTXta\0\0" + zlib.compress(bytes(2**21))),
    "a bomb": b"P6\n40000 40000\n255\n",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_picture_is_our_error(reader: PictureReader, name: str) -> None:
    with pytest.raises(DataError, match="cannot be decoded"):
        reader.read(DAMAGED[name])


@pytest.mark.parametrize("size", [(448, 448), (90, 56), (13, 200), (2, 300)])
def test_patches_from_levels_match_the_stock_processor(each_policy: Policy, size: tuple[int, int]) -> None:
    """To the last bit, with and without resizing; the levels take an eighth of the memory."""
    reader = each_policy.pictures
    given = Image.open(io.BytesIO(picture(*size)))
    edges = {"shortest_edge": BUDGET.min_pixels, "longest_edge": BUDGET.max_pixels}
    stock = reader._processor.stock(images=[_padded(given)], size=edges, return_tensors="pt")
    found = reader.read(picture(*size))
    assert found.levels.dtype == torch.uint8
    assert torch.equal(found.patches, stock["pixel_values"])
    assert 8 * found.levels.nbytes == found.patches.nbytes


@pytest.mark.parametrize("size", [(448, 448), (90, 56), (13, 200), (2, 300)])
def test_the_resized_picture_gives_the_same_patches_without_resizing(
    each_policy: Policy, size: tuple[int, int]
) -> None:
    """Pictures above and below the budget, tall ones, and one so thin that its padding exceeds the budget."""
    pixels = each_policy.pictures.read(picture(*size))
    shown = each_policy.pictures.shown(pixels)
    assert each_policy.pictures.shown_size(picture(*size)) == shown.size
    again = each_policy.pictures._processor.stock(images=[shown], do_resize=False, return_tensors="pt")
    assert tuple(again["image_grid_thw"][0].tolist()) == pixels.grid
    assert torch.equal(again["pixel_values"], pixels.patches)
