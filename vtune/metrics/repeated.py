"""Several rollouts per question: their mean, and how often at least one of k is right."""

from collections.abc import Sequence
from dataclasses import asdict
from math import comb
from typing import Any

from vtune.metrics.intervals import share
from vtune.metrics.items import Item

RIGHT = 1.0
"""Minimum score of a right answer, as in the column `accuracy` of `metrics.jsonl`."""


def repeated(items: Sequence[Item]) -> dict[str, Any] | None:
    """Numbers over the rollouts of each question; None if each has only one.

    Holds the following, each with its interval over clusters and, if it does not cover all questions, their
    number `n`:

    - `avg@k`: the mean over questions of the mean score of their rollouts, k being the number requested;
    - `pass@j` for j = 1, 2, 4, … and k: the mean over questions of the probability that one of j rollouts is
      right. Questions with fewer than j scored rollouts are left out.

    `unscored`: number of questions without a scored rollout, which are left out everywhere.
    """
    rollouts = max((len(item.scores) for item in items), default=0)
    if rollouts < 2:
        return None
    found = {f"avg@{rollouts}": _mean(items, [item.score for item in items])}
    for k in (*(2**n for n in range((rollouts - 1).bit_length())), rollouts):
        chances = [pass_at(k, item.known) if len(item.known) >= k else None for item in items]
        found[f"pass@{k}"] = _mean(items, chances)
    return found | {"unscored": sum(item.score is None for item in items)}


def pass_at(k: int, scores: Sequence[float]) -> float:
    """Probability that at least one of k rollouts, sampled from these without replacement, is right.

    Args:
        k: At most the number of scores.
        scores: Scores of one question's rollouts.

    Source: Chen et al. 2021, Evaluating large language models trained on code, eq. 1.
    """
    wrong = sum(score < RIGHT for score in scores)
    return 1 - comb(wrong, k) / comb(len(scores), k)


def _mean(items: Sequence[Item], values: Sequence[float | None]) -> dict[str, Any] | None:
    """The mean over questions that have a value, and their number if not all have one."""
    known = [(item.cluster, value) for item, value in zip(items, values, strict=True) if value is not None]
    found = share([name for name, _ in known], [value for _, value in known])
    if found is None:
        return None
    return asdict(found) | ({"n": len(known)} if len(known) < len(items) else {})
