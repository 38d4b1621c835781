"""Keeps what is neither too easy nor too hard, by the scores of several rollouts."""

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from vtune.config import Strict

DIGITS = 9
"""Of a mean or sum that is compared with a bound: eight scores of 0.9 have a mean of 0.9, in floats a little
more."""


class Band(Strict):
    """The scores that keep a sample. A bound that is left out does not apply."""

    of: Literal["mean", "sum"] = "mean"
    """Over the accuracies of all rollouts: `mean` of right or wrong is the pass rate."""
    above: float | None = None
    """Greater than."""
    at_least: float | None = None
    below: float | None = None
    """Less than."""
    at_most: float | None = None

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.above is not None and self.at_least is not None:
            raise ValueError("give above or at_least, not both")
        if self.below is not None and self.at_most is not None:
            raise ValueError("give below or at_most, not both")
        if self.above is self.at_least is self.below is self.at_most is None:
            raise ValueError("a band needs a bound: above, at_least, below or at_most")
        return self


class FirstPass(Strict):
    """A cheap look before the full number of rollouts: few of them, without tools.

    Where the rollouts to come would be the same conversations (no tools either), what they may bring is
    bounded, and a sample whose fate is certain needs none of them: that changes no outcome. `easy` and
    `hard` settle more than is certain.
    """

    rollouts: int = Field(default=2, ge=2, le=4)
    easy: float | None = Field(default=None, ge=0, le=1)
    """From this mean accuracy on a sample is too easy, so no more rollouts are generated; null: never."""
    hard: float | None = Field(default=None, ge=0, le=1)
    """Up to this mean accuracy a sample is too hard; null: never, since tools may yet solve it."""

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.easy is not None and self.hard is not None and self.hard >= self.easy:
            raise ValueError("hard must be below easy")
        return self


def outside(band: Band, scores: Sequence[float]) -> str | None:
    """The reason to drop a sample whose scores lie outside of the band.

    Args:
        band: What is kept.
        scores: Accuracy of each rollout, in [0, 1]; not empty.
    """
    value = _mean(scores) if band.of == "mean" else round(sum(scores), DIGITS)
    found = f"{band.of} of {len(scores)} rollouts is {value:.3g}"
    if band.above is not None and value <= band.above:
        return f"too hard: the {found}, it must exceed {band.above:g}"
    if band.at_least is not None and value < band.at_least:
        return f"too hard: the {found}, at least {band.at_least:g} is wanted"
    if band.below is not None and value >= band.below:
        return f"too easy: the {found}, it must be below {band.below:g}"
    if band.at_most is not None and value > band.at_most:
        return f"too easy: the {found}, at most {band.at_most:g} is wanted"
    return None


def certain(band: Band, scores: Sequence[float], total: int) -> bool:
    """Whether a sample is in the band for certain, whatever its other rollouts score.

    Args:
        band: What is kept.
        scores: Accuracy of the rollouts so far, in [0, 1].
        total: How many there will be.
    """
    least, most = [*scores], [*scores]
    least += [0.0] * (total - len(scores))
    most += [1.0] * (total - len(scores))
    return outside(band, least) is None and outside(band, most) is None


def settled(first: FirstPass, scores: Sequence[float]) -> str | None:
    """The reason to drop a sample after the first pass, None where it is undecided."""
    mean = _mean(scores)
    if first.easy is not None and mean >= first.easy:
        return f"too easy without tools: the mean of {len(scores)} rollouts is {mean:.3g}"
    if first.hard is not None and mean <= first.hard:
        return f"too hard without tools: the mean of {len(scores)} rollouts is {mean:.3g}"
    return None


def _mean(scores: Sequence[float]) -> float:
    return round(sum(scores) / len(scores), DIGITS)
