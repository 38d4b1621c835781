"""Keeps what is neither too easy nor too hard, by the scores of several rollouts."""

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from vtune.sections import Strict

DIGITS = 9
"""Decimals of a mean or sum that is compared with a bound: eight scores of 0.9 have a floating-point mean
slightly above 0.9."""


class Band(Strict):
    """The scores for which a sample is kept. Omitted bounds do not apply."""

    of: Literal["mean", "sum"] = "mean"
    """Over the accuracies of all rollouts; `mean` is the pass rate if scores are right or wrong."""
    above: float | None = None
    """Exclusive lower bound."""
    at_least: float | None = None
    below: float | None = None
    """Exclusive upper bound."""
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
    """A cheap first look before the full number of rollouts: a few rollouts, without tools.

    If the remaining rollouts would be the same conversations (no tools either), their scores are bounded, and
    a sample whose outcome is already certain needs no more of them, which changes no result. `easy` and
    `hard` also settle samples whose outcome is not certain.
    """

    rollouts: int = Field(default=2, ge=2, le=4)
    easy: float | None = Field(default=None, ge=0, le=1)
    """From this mean accuracy on, a sample is too easy and gets no more rollouts; null: never."""
    hard: float | None = Field(default=None, ge=0, le=1)
    """Up to this mean accuracy, a sample is too hard; null: never, as tools may still solve it."""

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.easy is not None and self.hard is not None and self.hard >= self.easy:
            raise ValueError("hard must be below easy")
        return self


def outside(band: Band, scores: Sequence[float]) -> str | None:
    """The reason to drop a sample whose scores lie outside the band, or None.

    Args:
        band: The scores to keep.
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
    """Whether a sample is certain to be in the band, whatever its other rollouts score.

    Args:
        band: The scores to keep.
        scores: Accuracy of the rollouts so far, in [0, 1].
        total: Total number of rollouts.
    """
    least, most = [*scores], [*scores]
    least += [0.0] * (total - len(scores))
    most += [1.0] * (total - len(scores))
    return outside(band, least) is None and outside(band, most) is None


def settled(first: FirstPass, scores: Sequence[float]) -> str | None:
    """The reason to drop a sample after the first pass; None if it is undecided."""
    mean = _mean(scores)
    if first.easy is not None and mean >= first.easy:
        return f"too easy without tools: the mean of {len(scores)} rollouts is {mean:.3g}"
    if first.hard is not None and mean <= first.hard:
        return f"too hard without tools: the mean of {len(scores)} rollouts is {mean:.3g}"
    return None


def _mean(scores: Sequence[float]) -> float:
    return round(sum(scores) / len(scores), DIGITS)
