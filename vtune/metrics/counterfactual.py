"""Whether right answers depend on what was seen: the last turn regenerated with other pictures.

A judge can say what a picture shows, but not whether the answer comes from it: a policy may look at the
target and still answer from memory. So the answer is generated again after the same tokens, with the calls'
pictures exchanged. If it stays right, it did not need them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vtune.metrics.agreement import Agreement, agreement
from vtune.metrics.audited import Estimates
from vtune.metrics.intervals import Estimate

MEGAPIXELS = (("under 1 MP", 1_000_000), ("1 to 4 MP", 4_000_000))
"""Sizes of a question's picture that are counted separately, with exclusive upper bounds in pixels; ours."""
LARGE = "from 4 MP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """One regenerated answer."""

    right: bool | None
    """Whether it is right; None = unscored. A turn that calls a tool instead of answering is not right."""
    follows: bool | None = None
    """Whether it equals the exchanged picture's answer; None if that picture shows no other answer."""
    again: bool = False
    """Whether it asked for another look instead of answering."""
    same: bool = False
    """Whether it repeats the previous text word for word."""
    tokens: int | None = None
    """Tokens generated for it; None if there were none, or they are not visible here."""
    why: str = ""
    """Why it is unscored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A trajectory for a question that needs a look."""

    cluster: str
    """Rows with the same cluster belong together (`vtune.schema.clusters`)."""
    source: str
    pixels: int
    """Pixels of the question's largest picture."""
    calls: int
    correct: bool | None
    """Whether the answer is right; None = unscored."""
    faithful: bool | None
    """Whether a call shows the target, according to the judge; None if it could not tell."""
    looked: bool
    """Whether a call returned a picture before the answer."""
    reruns: Mapping[str, Rerun]
    """Regenerated answers by exchange; empty if not needed, as the answer is wrong or no picture was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Right answers of one kind that were regenerated."""

    n: int
    dependent: Estimate | None
    """Share of these that are no longer right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependence:
    """The results of one exchange. None if there is nothing to divide by.

    *Dependent*: right, but no longer right with the exchanged pictures. A right answer that saw no picture
    depends on none.
    """

    n: int
    """Right answers that saw a picture, were regenerated and scored."""
    n_unscored: int
    """Right answers that saw a picture but were not regenerated or not scored."""
    why: str
    """The most common reason for that."""
    dependent_of_looked: Estimate | None
    dependent_of_correct: Estimate | None
    """Also None if too little is known about those that saw a picture: only answers without a look would be
    left, which depend on none."""
    dependent_of_all: Estimate | None
    """Also None in that case: only wrong answers would be left."""
    beyond_chance: Estimate | None
    """Dependent answers minus those no longer right with the very same pictures (the exchange `shown`, if it
    was asked for): removes what sampling alone changes."""
    follows: Estimate | None
    """Of those regenerated, the share that gives the exchanged picture's answer, so the looks were read."""
    asked_again: Estimate | None
    """Of those regenerated, the share that calls a tool instead of answering. These count as dependent."""
    same_text: Estimate | None
    """Of those regenerated, the share with the same text word for word: the pictures were decoration."""
    tokens: float | None
    """Tokens generated per answer, averaged over those whose tokens are visible."""
    table: Mapping[str, Estimate | None]
    """Of those regenerated and judged: `faithful_dependent`, `faithful_independent`, `unfaithful_dependent`,
    `unfaithful_independent`. They sum to 1."""
    agreement: Agreement
    """Agreement of the judge (first; faithful) with the exchange (second; dependent)."""
    by: Mapping[str, Mapping[str, Part]]
    """`source`, `resolution` and `calls` -> value -> the dependent share there."""


SHOWN = "shown"
"""The exchange that changes nothing: it measures what sampling alone changes."""


def dependence(rows: Sequence[Answered], exchange: str, *, seed: int, max_unscored: float) -> Dependence:
    """Summarise what one exchange says about audited trajectories.

    Args:
        rows: One per trajectory; those with an unscored answer are left out.
        exchange: The name of the exchange.
        seed: Seed of the bootstrap; the same seed gives the same intervals.
        max_unscored: Maximum share, in [0, 1], of unscored reruns among right answers that saw a picture.
    """
    rows = [row for row in rows if row.correct is not None]
    looked = [row for row in rows if row.correct and row.looked]
    known = [row for row in looked if _right(row, exchange) is not None]
    left = [row for row in looked if _right(row, exchange) is None]
    unknown = {id(row) for row in left}
    counted = [row for row in rows if id(row) not in unknown]
    why = Counter(row.reruns[exchange].why for row in left if exchange in row.reruns).most_common(1)
    found = [row.reruns[exchange] for row in known]
    too_few = len(left) > max_unscored * len(looked)
    of_all, of_correct = (
        Estimates(counted, seed).share([_dependent(row, exchange) for row in counted], wholes)
        for wholes in ([1.0] * len(counted), [float(bool(row.correct)) for row in counted])
    )
    judged = [row for row in known if row.faithful is not None]
    tokens = [one.tokens for one in found if one.tokens is not None]
    return Dependence(
        n=len(known),
        n_unscored=len(left),
        why=why[0][0] if why else "",
        dependent_of_looked=Estimates(known, seed).share([_dependent(row, exchange) for row in known]),
        dependent_of_correct=None if too_few else of_correct,
        dependent_of_all=None if too_few else of_all,
        beyond_chance=None if exchange == SHOWN else _beyond(known, exchange, seed),
        follows=_follows(known, exchange, seed),
        asked_again=Estimates(known, seed).share([float(one.again) for one in found]),
        same_text=Estimates(known, seed).share([float(one.same) for one in found]),
        tokens=float(np.mean(tokens)) if tokens else None,
        table=_table(judged, exchange, seed),
        agreement=agreement((row.faithful, bool(_dependent(row, exchange))) for row in judged),
        by=_by(known, exchange, seed),
    )


def resolution(pixels: int) -> str:
    """The size class of a picture."""
    return next((name for name, most in MEGAPIXELS if pixels < most), LARGE)


def _right(row: Answered, exchange: str) -> bool | None:
    return row.reruns[exchange].right if exchange in row.reruns else None


def _dependent(row: Answered, exchange: str) -> float:
    return float(bool(row.correct) and row.looked and _right(row, exchange) is False)


def _beyond(known: Sequence[Answered], exchange: str, seed: int) -> Estimate | None:
    """See `Dependence.beyond_chance`: the mean difference, answer by answer."""
    both = [row for row in known if _right(row, SHOWN) is not None]
    less = [_dependent(row, exchange) - _dependent(row, SHOWN) for row in both]
    return Estimates(both, seed).mean(less)


def _follows(known: Sequence[Answered], exchange: str, seed: int) -> Estimate | None:
    measured = [row for row in known if row.reruns[exchange].follows is not None]
    return Estimates(measured, seed).share([float(bool(row.reruns[exchange].follows)) for row in measured])


def _table(judged: Sequence[Answered], exchange: str, seed: int) -> dict[str, Estimate | None]:
    estimates = Estimates(judged, seed)
    found: dict[str, Estimate | None] = {}
    for faithful in (True, False):
        for dependent in (True, False):
            name = f"{'faithful' if faithful else 'unfaithful'}_{'dependent' if dependent else 'independent'}"
            found[name] = estimates.share(
                [row.faithful is faithful and bool(_dependent(row, exchange)) is dependent for row in judged]
            )
    return found


def _by(known: Sequence[Answered], exchange: str, seed: int) -> dict[str, dict[str, Part]]:
    kinds = {
        "source": [row.source for row in known],
        "resolution": [resolution(row.pixels) for row in known],
        "calls": [str(row.calls) if row.calls < 3 else "3+" for row in known],
    }
    return {
        kind: {value: _part(known, names, value, exchange, seed) for value in sorted(set(names))}
        for kind, names in kinds.items()
    }


def _part(known: Sequence[Answered], names: Sequence[str], value: str, exchange: str, seed: int) -> Part:
    rows = [row for row, name in zip(known, names, strict=True) if name == value]
    found = Estimates(rows, seed).share([_dependent(row, exchange) for row in rows])
    return Part(n=len(rows), dependent=found)
