"""What a returned picture shows if several regions are claimed in it."""

import asyncio
import dataclasses

import numpy as np
import pytest

from tests.reward.build import INPUT, LEVELS, PIXELS, TARGET, encode, looks, sample
from vtune.reward.evidence_boxes import BoxJudge
from vtune.reward.glimpses import showing_share
from vtune.reward.looks import with_looks
from vtune.schema.message import Picture
from vtune.schema.trajectory import Crop, Trajectory

ELSEWHERE = (0, 60, 20, 80)


def returned(pixels: np.ndarray, *crops: Crop) -> Trajectory:
    shown = Picture(encode(pixels), origin="call:0", seen=(pixels.shape[1], pixels.shape[0]))
    call = dataclasses.replace(looks(TARGET).calls[0], crops=crops)
    return dataclasses.replace(looks(), images=(INPUT, shown), calls=(call,))


def enlarged(box: tuple[int, int, int, int], times: int) -> np.ndarray:
    x0, y0, x1, y1 = box
    return PIXELS[y0:y1, x0:x1].repeat(times, 0).repeat(times, 1)


def level(trajectory: Trajectory) -> float:
    judge = BoxJudge(LEVELS)
    return asyncio.run(judge.judge(sample(TARGET), with_looks(trajectory, LEVELS), 0)).score


def test_regions_claimed_in_the_same_place_are_not_seen() -> None:
    """However they are mixed: each region agrees with what remains of it."""
    both = enlarged(TARGET, 8).astype(int) + enlarged(ELSEWHERE, 8)
    mixed = (both // 2).astype(np.uint8)
    alone = Crop(0, TARGET, 1)
    assert level(returned(enlarged(TARGET, 8), alone)) == LEVELS.full
    assert level(returned(enlarged(TARGET, 8), alone, Crop(0, ELSEWHERE, 1))) == LEVELS.miss
    assert level(returned(mixed, alone, Crop(0, ELSEWHERE, 1))) == LEVELS.miss


def test_a_repeated_region_and_an_overview_below_do_not_count_as_others() -> None:
    canvas = enlarged((0, 0, 100, 100), 4)
    canvas[:320, :320] = enlarged(TARGET, 16)
    inset = Crop(0, TARGET, 1, matrix=(1 / 16, 0.0, 40.0, 0.0, 1 / 16, 40.0))
    overview = Crop(0, (0, 0, 100, 100), 1, matrix=(1 / 4, 0.0, 0.0, 0.0, 1 / 4, 0.0))
    assert level(returned(canvas, overview, inset)) == LEVELS.full
    assert (
        level(returned(enlarged(TARGET, 8), Crop(0, TARGET, 1), Crop(0, (40, 40, 60, 59), 1))) == LEVELS.full
    )


def test_a_false_claim_counts_on_an_overview_too() -> None:
    canvas = enlarged((0, 0, 100, 100), 4)
    canvas[:160, :160] = enlarged(TARGET, 8)
    canvas[240:, 240:] = np.random.default_rng(0).integers(0, 256, (160, 160, 3), np.uint8)
    inset = Crop(0, TARGET, 1, matrix=(1 / 8, 0.0, 40.0, 0.0, 1 / 8, 40.0))
    overview = Crop(0, (0, 0, 100, 100), 1, matrix=(1 / 4, 0.0, 0.0, 0.0, 1 / 4, 0.0))
    absent = Crop(0, ELSEWHERE, 1, matrix=(1 / 8, 0.0, -30.0, 0.0, 1 / 8, 30.0))
    without, with_it = (
        showing_share(returned(canvas, overview, inset, *more), 0, inset, LEVELS) for more in ([], [absent])
    )
    assert without == pytest.approx(0.16, abs=0.01)
    assert with_it == pytest.approx(0.32, abs=0.01)
