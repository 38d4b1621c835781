"""A lens puzzle whose sign shows another digit, so that the answer of a policy that looks is known."""

import random

import numpy as np

from vtune.data import lens
from vtune.data.drawing import Pixels
from vtune.data.lens_reader import target_of, with_digit
from vtune.schema.sample import Sample


def is_puzzle(sample: Sample) -> bool:
    """Whether a sample is a lens puzzle that asks for the digit on a sign."""
    if not sample.id.startswith("lens/") or len(sample.evidence) != 1:
        return False
    return _colour(sample) in lens.COLOURS and sample.ground_truth in lens.FONT


def exchanged(sample: Sample, pixels: Pixels, rng: random.Random) -> tuple[Pixels, str] | None:
    """The picture of a puzzle with another digit on the sign that is asked for, and that digit.

    Args:
        sample: A puzzle, see `is_puzzle`.
        pixels: Its picture, RGB.
        rng: Picks the digit from those of its level.

    Returns:
        None if the sign does not show what the sample says and so cannot be redrawn.
    """
    box = sample.evidence[0].bbox
    x0, y0, x1, y1 = (round(side) for side in box)
    sign = lens.Sign(_colour(sample), sample.ground_truth, (x0, y0, x1, y1))
    puzzle = lens.Puzzle(np.asarray(pixels), "", sample.ground_truth, sign)
    target = target_of(puzzle)
    if target is None or not target.spots:
        return None
    digit = rng.choice([one for one in target.candidates if one != sample.ground_truth])
    return with_digit(pixels, sign, target.spots, digit), digit


def _colour(sample: Sample) -> str:
    return sample.evidence[0].label.removesuffix(" sign")
