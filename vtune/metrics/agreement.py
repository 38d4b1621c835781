"""How far two judges agree."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Two judges on the same yes-or-no questions. A value is None if there is nothing to divide by."""

    n: int
    """Questions that both answered."""
    agree: float | None
    """Share of them with the same answer."""
    kappa: float | None
    """Cohen's kappa: (agree - chance) / (1 - chance), where chance is the agreement expected of two judges
    who say yes as often as these, each at random. None if both always give one and the same answer."""
    both: int
    """Both said yes."""
    first_only: int
    second_only: int
    neither: int


def agreement(answers: Iterable[tuple[bool | None, bool | None]]) -> Agreement:
    """Summarise pairs of answers; a pair with None, an unscored answer, is left out.

    Source: Cohen, A coefficient of agreement for nominal scales, 1960.
    """
    table = Counter((a, b) for a, b in answers if a is not None and b is not None)
    n = table.total()
    both, neither = table[True, True], table[False, False]
    first_only, second_only = table[True, False], table[False, True]
    agree = (both + neither) / n if n else None
    # Compared as integers, so that "always the same" is exact.
    yes, no = (both + first_only) * (both + second_only), (neither + first_only) * (neither + second_only)
    chance = yes + no
    kappa = ((both + neither) * n - chance) / (n * n - chance) if n and chance != n * n else None
    return Agreement(
        n=n,
        agree=agree,
        kappa=kappa,
        both=both,
        first_only=first_only,
        second_only=second_only,
        neither=neither,
    )
