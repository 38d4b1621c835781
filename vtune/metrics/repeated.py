"""Several rollouts per question: their mean, and how often at least one of k is right."""

from collections.abc import Sequence
from dataclasses import asdict
from math import comb
from typing import Any

from vtune.metrics.intervals import share
from vtune.metrics.items import Item

RIGHT = 1.0
"""A score from which an answer is right, as in the column `accuracy` of `metrics.jsonl`."""


def repeated(items: Sequence[Item]) -> dict[str, Any] | None:
    """Numbers over the rollouts of each question; None where each has one.

    Holds, each with its interval over clusters, and where it is not of all questions with `n`, their number:

    - `avg@k`: the mean over questions of the mean score of their rollouts, of which k were asked for;
    - `pass@j` for j = 1, 2, 4, … and k: the mean over questions of how likely one of j rollouts is right. A
      question of which fewer than j rollouts were scored is left out of it.

    `unscored`: questions without a scored rollout, left out of all.
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
    """How likely at least one of k rollouts is right, drawn from these without replacement.

    Args:
        k: At most as many as there are scores.
        scores: Of the rollouts of one question.

    Source: Chen et al. 2021, Evaluating large language models trained on code, eq. 1.
    """
    wrong = sum(score < RIGHT for score in scores)
    return 1 - comb(wrong, k) / comb(len(scores), k)


def _mean(items: Sequence[Item], values: Sequence[float | None]) -> dict[str, Any] | None:
    """The mean over questions that have a value, and how many these are where not all have."""
    known = [(item.cluster, value) for item, value in zip(items, values, strict=True) if value is not None]
    found = share([name for name, _ in known], [value for _, value in known])
    if found is None:
        return None
    return asdict(found) | ({"n": len(known)} if len(known) < len(items) else {})
