"""The oracle reader: it reads what is legible, and nothing else."""

import io
import itertools
from collections.abc import Callable

import cv2
import numpy as np
import pytest
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from vtune.data import lens
from vtune.data.drawing import Pixels
from vtune.data.lens_reader import Map, Reading, Target, as_seen, read, seen_size, target_of

BUDGET = {"min_pixels": 3136, "max_pixels": 12544}
PER_LEVEL = 8
Change = Callable[[Pixels], Pixels]


@pytest.fixture(scope="module")
def cases() -> list[tuple[lens.Puzzle, Target]]:
    found = []
    for level in (1, 2, 3):
        for puzzle in itertools.islice(lens.puzzles(level, seed=5, split="heldout"), PER_LEVEL):
            target = target_of(puzzle)
            assert target is not None
            found.append((puzzle, target))
    return found


def png(pixels: Pixels) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def crop(pixels: Pixels, box: tuple[int, int, int, int], pad: int) -> tuple[Pixels, Map]:
    x0, y0 = max(0, box[0] - pad), max(0, box[1] - pad)
    cut = np.ascontiguousarray(pixels[y0 : box[3] + pad, x0 : box[2] + pad])
    return cut, np.array([[1, 0, -x0], [0, 1, -y0], [0, 0, 1.0]])


def reading(pixels: Pixels, place: Map, target: Target) -> Reading:
    seen = as_seen(png(pixels), **BUDGET)
    assert seen is not None
    return read(seen[0], [seen[1] @ place], target)


def readable(cases: list[tuple[lens.Puzzle, Target]], change: Change, pad: int = 8) -> float:
    """Share of the puzzles that can still be read after a change of the crop."""
    assert cases
    count = 0
    for puzzle, target in cases:
        cut, place = crop(puzzle.pixels, target.box, pad)
        changed = change(cut)
        size = np.diag([changed.shape[1] / cut.shape[1], changed.shape[0] / cut.shape[0], 1.0])
        count += reading(changed, size @ place, target).readable
    return count / len(cases)


def grey(pixels: Pixels) -> Pixels:
    return cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY).astype(np.uint8)


def sobel(pixels: Pixels) -> Pixels:
    slopes = [cv2.Sobel(grey(pixels).astype(np.float32), cv2.CV_32F, *order) for order in ((1, 0), (0, 1))]
    return np.hypot(*slopes).clip(0, 255).astype(np.uint8)


KEEPS: dict[str, Change] = {
    "grey": grey,
    "inverted": lambda c: 255 - c,
    "enlarged": lambda c: cv2.resize(c, None, fx=3, fy=3, interpolation=cv2.INTER_CUBIC).astype(np.uint8),
    "otsu": lambda c: cv2.threshold(grey(c), 0, 255, cv2.THRESH_OTSU)[1].astype(np.uint8),
    "false colours": lambda c: cv2.applyColorMap(grey(c), cv2.COLORMAP_JET).astype(np.uint8),
    "edges": sobel,
    "saturation": lambda c: cv2.cvtColor(c, cv2.COLOR_RGB2HSV)[..., 1].copy().astype(np.uint8),
    "dark, then blurred": lambda c: cv2.GaussianBlur(
        (255 * (c / 255) ** 2).astype(np.uint8), (0, 0), 2
    ).astype(np.uint8),
    "every second pixel": lambda c: np.ascontiguousarray(c[::2, ::2]),
}
TAKES: dict[str, Change] = {
    "black": lambda c: c * 0,
    "blurred": lambda c: cv2.GaussianBlur(c, (0, 0), 3).astype(np.uint8),
    "averaged": lambda c: cv2.resize(c, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA).astype(np.uint8),
    "shuffled": lambda c: np.random.default_rng(0).permutation(c.reshape(-1, 3)).reshape(c.shape),
    "noise": lambda c: np.random.default_rng(0).integers(0, 255, c.shape, dtype=np.uint8),
    "five pixels": lambda c: cv2.resize(c, (5, 5), interpolation=cv2.INTER_AREA).astype(np.uint8),
    "covered": lambda c: cv2.rectangle(
        c.copy(), (0, 0), (c.shape[1], int(0.9 * len(c))), (0, 0, 0), -1
    ).astype(np.uint8),
}


@pytest.mark.parametrize("pad", [0, 8, 20, 30])
def test_plain_crops_are_read_whatever_their_size(cases: list[tuple[lens.Puzzle, Target]], pad: int) -> None:
    # At 30 the crop is shrunk by 3 %, which makes a digit illegible now and then.
    assert readable(cases, lambda c: c, pad) >= (0.95 if pad == 30 else 0.99)


@pytest.mark.parametrize("name", KEEPS)
def test_a_digit_is_read_wherever_it_is_visible(cases: list[tuple[lens.Puzzle, Target]], name: str) -> None:
    assert readable(cases, KEEPS[name]) >= 0.97


@pytest.mark.parametrize("name", TAKES)
def test_nothing_is_read_where_the_digit_is_gone(cases: list[tuple[lens.Puzzle, Target]], name: str) -> None:
    assert readable(cases, TAKES[name]) <= 0.01


def test_the_reduced_whole_picture_is_not_read(cases: list[tuple[lens.Puzzle, Target]]) -> None:
    assert readable(cases[PER_LEVEL:], lambda c: c, pad=lens.SIDE) <= 0.05


def test_the_same_place_in_other_puzzles_is_read_only_if_it_shows_the_digit() -> None:
    puzzles = list(itertools.islice(lens.puzzles(2, seed=9, split="heldout"), 25))
    found = []
    for n, puzzle in enumerate(puzzles):
        target = target_of(puzzle)
        assert target is not None
        for other in puzzles[n + 1 : n + 6]:
            cut, place = crop(other.pixels, target.box, 8)
            found.append(reading(cut, place, target).readable)
    assert len(found) > 100
    assert np.mean(found) <= 0.02


def test_a_rotated_and_mirrored_crop_is_read_through_its_map(cases: list[tuple[lens.Puzzle, Target]]) -> None:
    for puzzle, target in cases[:5]:
        cut, place = crop(puzzle.pixels, target.box, 8)
        width = cut.shape[1]
        turned = np.ascontiguousarray(np.rot90(cut))
        turn = np.array([[0, 1, 0], [-1, 0, width], [0, 0, 1.0]])
        assert reading(turned, turn @ place, target).readable
        mirrored = np.ascontiguousarray(cut[:, ::-1])
        assert reading(mirrored, np.array([[-1, 0, width], [0, 1, 0], [0, 0, 1.0]]) @ place, target).readable


def test_a_wrong_digit_is_never_read(cases: list[tuple[lens.Puzzle, Target]]) -> None:
    puzzle, target = cases[PER_LEVEL]
    other = next(t for p, t in cases[PER_LEVEL:] if t.digit != target.digit and p.target is not None)
    cut, place = crop(puzzle.pixels, target.box, 8)
    lying = Target(other.digit, target.candidates, target.box, target.spots, target.drawn)
    found = reading(cut, place, lying)
    assert found.digit == target.digit
    assert found.sure
    assert not found.readable


def test_a_level_1_sign_has_its_digit_four_times(cases: list[tuple[lens.Puzzle, Target]]) -> None:
    assert {len(target.spots) for _, target in cases[:PER_LEVEL]} == {4}
    assert {len(target.spots) for _, target in cases[PER_LEVEL:]} == {1}


def test_pictures_are_seen_at_the_processors_sizes() -> None:
    sides = (1, 5, 20, 41, 42, 56, 68, 70, 98, 112, 150, 448, 1000)
    pairs = [(w, h) for w in sides for h in sides if max(w, h) <= 100 * min(w, h)]
    assert len(pairs) > 100
    for width, height in pairs:
        h, w = smart_resize(height, width, **BUDGET)
        assert seen_size(width, height, **BUDGET) == (w, h)


def test_a_file_that_is_not_a_picture_is_not_seen() -> None:
    assert as_seen(b"nothing", **BUDGET) is None
