"""The tokens of one trajectory with what its record holds for each, and why the rest is missing."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from vtune.advantage.credit import token_advantages
from vtune.schema.trajectory import Trajectory

MOST = 1500
"""Tokens, and folded stretches of tokens, sent at a time (ours)."""
FOLDED = 3
"""Minimum number of equal neighbours that are folded; no word is spelt with so many (ours)."""


def tokens_of(
    trajectory: Trajectory, text_of: Callable[[int], str] | None, why_no_text: str = "", *, first: int = 0
) -> dict[str, Any]:
    """Some of the tokens of a trajectory.

    Equal neighbouring tokens that the policy did not sample, such as those of a picture, are folded into one
    entry if there are at least `FOLDED` of them.

    Args:
        trajectory: The trajectory.
        text_of: Token id -> its text; None if the tokenizer is unknown.
        why_no_text: Why it is unknown.
        first: Index of the first entry to send.

    Returns:
        `entries`, each with `at` (position), `id`, `times`, `text`, `sampled`, `logprob` (nats, of the policy
        that sampled it), `entropy` (nats, of the distribution that it was sampled from), `advantage` and
        `version` (training steps of the weights that sampled it), None if unknown; `all`, the number of
        entries; `count`, the number of tokens, and `sampled` of them; `missing`: what no token has -> why.
    """
    advantages = iter(token_advantages(trajectory) if trajectory.advantage is not None else ())
    entries: list[dict[str, Any]] = []
    for at, times, sampled in _runs(trajectory):
        entries.append(
            {
                "at": at,
                "id": trajectory.token_ids[at],
                "times": times,
                "text": None,
                "sampled": sampled,
                "logprob": _finite(trajectory.logprobs, at),
                "entropy": _finite(trajectory.entropies, at),
                "advantage": next(advantages, None) if sampled else None,
                "version": trajectory.weight_versions[at] if at < len(trajectory.weight_versions) else None,
            }
        )
    shown = entries[first : first + MOST]
    for entry in shown if text_of is not None else ():
        entry["text"] = text_of(entry["id"])  # type: ignore[misc]
    return {
        "entries": shown,
        "first": first,
        "all": len(entries),
        "count": len(trajectory.token_ids),
        "sampled": sum(trajectory.loss_mask),
        "missing": _missing(trajectory, why_no_text if text_of is None else ""),
    }


def _runs(trajectory: Trajectory) -> Iterator[tuple[int, int, bool]]:
    """For each entry: position of the first token, number of tokens, and whether the policy sampled them."""
    mask = trajectory.loss_mask
    drawn = [(number, at < len(mask) and mask[at], at) for at, number in enumerate(trajectory.token_ids)]
    for (_, sampled), run in groupby(drawn, key=lambda one: one[:2]):
        places = [at for _, _, at in run]
        if sampled or len(places) < FOLDED:
            yield from ((at, 1, sampled) for at in places)
        else:
            yield places[0], len(places), sampled


def _finite(values: Sequence[float | None], at: int) -> float | None:
    value = values[at] if at < len(values) else None
    return value if value is not None and math.isfinite(value) else None


def _missing(trajectory: Trajectory, why_no_text: str) -> dict[str, str]:
    if not trajectory.token_ids:
        return {"tokens": "this record holds no tokens: engines behind an endpoint, and traces, have none"}
    found = {
        "text": why_no_text,
        "log-probability": "" if any(one is not None for one in trajectory.logprobs) else "it was not stored",
        "entropy": ""
        if any(one is not None for one in trajectory.entropies)
        else "the engine that generated it gives none per token (`transformers` does, vLLM does not); "
        "its mean by step is a curve of the run",
        "advantage": "" if trajectory.advantage is not None else "the trajectory has none",
        "weight version": ""
        if trajectory.weight_versions
        else f"it was not stored; the trajectory was begun with version {trajectory.policy_version}",
    }
    return {name: why for name, why in found.items() if why}
