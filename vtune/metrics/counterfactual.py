"""Whether right answers depend on what was seen: the last turn regenerated with other pictures.

A judge says what a picture shows. It cannot say whether the answer comes from it: a policy may look at the
target and answer from memory. So the answer is drawn once more after the same tokens, with the pictures of
the calls exchanged. One that stays right did not need them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vtune.metrics.agreement import Agreement, agreement
from vtune.metrics.audited import Estimates
from vtune.metrics.intervals import Estimate

MEGAPIXELS = (("under 1 MP", 1_000_000), ("1 to 4 MP", 4_000_000))
"""Sizes of a question's picture that are counted apart, and pixels below which one belongs there; ours."""
LARGE = "from 4 MP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """One answer, drawn again."""

    right: bool | None
    """Whether it is right again; None = unscored. A turn that calls again gives no answer: it is not."""
    follows: bool | None = None
    """Whether it is what the exchanged picture shows; None where that shows no other answer."""
    again: bool = False
    """It asked for another look in the place of an answer."""
    same: bool = False
    """It says word for word what it said before."""
    tokens: int | None = None
    """Drawn for it; None where none were, or nobody here sees them."""
    why: str = ""
    """Why it is unscored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A trajectory about a question that needs a look."""

    cluster: str
    """What belongs together (`vtune.schema.clusters`)."""
    source: str
    pixels: int
    """Of the question's largest picture."""
    calls: int
    correct: bool | None
    """None = unscored."""
    faithful: bool | None
    """Whether a call shows the target, as the judge says; None where it could not tell."""
    looked: bool
    """A picture of a call came back before it answered."""
    reruns: Mapping[str, Rerun]
    """By the name of the exchange; empty where there was no need: it is not right, or saw no picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The right answers of one kind that were drawn again."""

    n: int
    dependent: Estimate | None
    """Of these, not right any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependence:
    """What one exchange says. None stands where there is nothing to divide by.

    *Dependent*: right, and not right any more with the exchanged pictures. A right answer that saw no picture
    depends on none.
    """

    n: int
    """Right answers that saw a picture, drawn again and scored."""
    n_unscored: int
    """Right answers that saw a picture, and were not drawn again or not scored."""
    why: str
    """The commonest reason for that."""
    dependent_of_looked: Estimate | None
    dependent_of_correct: Estimate | None
    """None also where too little is known of those that saw a picture: what is left would be answers without
    a look, which depend on none."""
    dependent_of_all: Estimate | None
    """None there, too: what is left would be wrong answers."""
    beyond_chance: Estimate | None
    """Dependent, less what is not right any more with the very same pictures (the exchange `shown`, where it
    was asked for): what sampling alone changes is not counted."""
    follows: Estimate | None
    """Of those drawn again, the answers that say what the exchanged picture shows: the looks were read."""
    asked_again: Estimate | None
    """Of those drawn again, turns that call in the place of an answer. They count as dependent."""
    same_text: Estimate | None
    """Of those drawn again, turns that say word for word the same: the pictures were decoration."""
    tokens: float | None
    """Drawn for an answer, on average over those whose tokens are seen."""
    table: Mapping[str, Estimate | None]
    """Of those drawn again and judged: `faithful_dependent`, `faithful_independent`,
    `unfaithful_dependent`, `unfaithful_independent`. They sum to 1."""
    agreement: Agreement
    """Of the judge (first) with the exchange (second): faithful, and dependent."""
    by: Mapping[str, Mapping[str, Part]]
    """`source`, `resolution` and `calls` -> value -> the same share there."""


SHOWN = "shown"
"""The exchange that changes nothing: what sampling alone does."""


def dependence(rows: Sequence[Answered], exchange: str, *, seed: int, max_unscored: float) -> Dependence:
    """Summarise what one exchange says of audited trajectories.

    Args:
        rows: One per trajectory; those with an unscored answer are left out.
        exchange: The name of the exchange.
        seed: Of the bootstrap; the same seed gives the same intervals.
        max_unscored: Share of the right answers that saw a picture, in [0, 1], of which nothing may be known.
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
    """The size of a picture as it is counted."""
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
