"""Blank margins of a picture show nothing; everything else does."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.reward.build import noise
from vtune.looks.margins import showing


def part(x0: int, y0: int, x1: int, y1: int) -> NDArray[np.float64]:
    return np.array([[x0, x1, x1, x0], [y0, y0, y1, y1]], np.float64)


@pytest.mark.parametrize("size", [(300, 200), (2400, 1800)])
def test_a_blank_margin_shows_nothing_and_other_unclaimed_parts_do(size: tuple[int, int]) -> None:
    width, height = size
    picture = np.full((height, width, 3), 250, np.uint8)
    picture[: height // 2, : width // 2] = noise(width // 2, height // 2, 0)
    shown = pytest.approx(width * height / 4, rel=0.03)
    assert showing(picture, [part(0, 0, width // 2, height // 2)], []) == shown
    assert showing(picture, [], []) == shown
    assert showing(picture, [], [part(0, 0, width // 2, height // 2)]) == 0


def test_a_blank_part_counts_where_it_is_claimed() -> None:
    picture = np.zeros((200, 300, 3), np.uint8)
    assert showing(picture, [part(0, 0, 300, 200)], []) == 300 * 200


def test_a_part_that_counts_overrides_one_that_does_not() -> None:
    picture = noise(300, 200, 0)
    assert showing(picture, [part(0, 0, 30, 20)], [part(0, 0, 300, 200)]) == pytest.approx(600, rel=0.1)


def test_a_margin_with_jpeg_artefacts_is_blank() -> None:
    rough = np.random.default_rng(0).integers(244, 252, (200, 300, 3), dtype=np.uint8)
    assert showing(rough, [], []) == 0
