"""The tokens of one trajectory with what its record holds of each, and why the rest is not there."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from vtune.advantage.credit import token_advantages
from vtune.schema.trajectory import Trajectory

MOST = 1500
"""Tokens, and runs of one token, that are sent at a time (ours)."""


def tokens_of(
    trajectory: Trajectory, text_of: Callable[[int], str] | None, why_no_text: str = "", *, first: int = 0
) -> dict[str, Any]:
    """Some of the tokens of a trajectory.

    Neighbouring tokens of one kind that the policy did not sample, as those that stand for a picture, are
    one entry.

    Args:
        trajectory: Whose tokens these are.
        text_of: Token id -> its text; None where the tokenizer is not known.
        why_no_text: Why it is not known.
        first: Entry that is the first of those sent.

    Returns:
        `entries`, each with `at` (position), `id`, `times`, `text`, `sampled`, `logprob` (nats, of the policy
        that drew it), `entropy` (nats, of what it was drawn from), `advantage` and `version` (training steps
        behind the weights that drew it), None where not known; `all`, how many entries there are; `count`,
        how many tokens, and `sampled` of them; `missing`: what no token has -> why.
    """
    advantages = iter(token_advantages(trajectory) if trajectory.advantage is not None else ())
    entries: list[dict[str, Any]] = []
    for at, number in enumerate(trajectory.token_ids):
        sampled = at < len(trajectory.loss_mask) and trajectory.loss_mask[at]
        last = entries[-1] if entries else None
        if last is not None and not sampled and not last["sampled"] and last["id"] == number:
            last["times"] += 1
            continue
        entries.append(
            {
                "at": at,
                "id": number,
                "times": 1,
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
        else "the engine that drew it gives none by token (`transformers` does, vLLM does not); its mean by "
        "step is a curve of the run",
        "advantage": "" if trajectory.advantage is not None else "the trajectory has none",
        "weight version": ""
        if trajectory.weight_versions
        else f"it was not stored; the trajectory was begun with version {trajectory.policy_version}",
    }
    return {name: why for name, why in found.items() if why}
