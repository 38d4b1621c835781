"""Slow reference losses: plain floats, token by token, with value and slope written separately."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st


@dataclass(frozen=True)
class Token:
    """One sampled token."""

    now: float
    old: float
    gain: float
    off_policy: bool

    @property
    def ratio(self) -> float:
        return math.exp(self.now - self.old)


Sequences = list[list[Token]]
Keys = dict[str, Any]
"""Values of a loss's keys."""
Read = tuple[float, float, bool]
"""Loss, its slope in the token's log-probability, and whether it was clipped or capped."""


def grpo(sequence: list[Token], keys: Keys) -> list[Read]:
    return [_grpo(token, **keys) for token in sequence]


def _grpo(
    token: Token, *, clip_low: float, clip_high: float, importance_cap: float, dual_clip: float | None
) -> Read:
    # No gradient if the policy has already moved far enough in the direction of the advantage.
    if token.off_policy and token.gain > 0 and token.ratio > 1 + clip_high:
        return -token.gain * (1 + clip_high), 0.0, True
    if token.off_policy and token.gain < 0 and token.ratio < 1 - clip_low:
        return -token.gain * (1 - clip_low), 0.0, True
    if token.off_policy and token.gain < 0 and dual_clip is not None and token.ratio > dual_clip:
        return -token.gain * dual_clip, 0.0, True
    weight = min(token.ratio, importance_cap)
    return -token.gain * weight, -token.gain * weight, False


def gspo(sequence: list[Token], keys: Keys) -> list[Read]:
    if not sequence:
        return []
    low, high = 1 - keys["clip_low"], 1 + keys["clip_high"]
    ratio = math.exp(sum(token.now - token.old for token in sequence) / len(sequence))
    found = []
    for token in sequence:
        past = (token.gain > 0 and ratio > high) or (token.gain < 0 and ratio < low)
        if token.off_policy and past:
            found.append((-token.gain * (high if token.gain > 0 else low), 0.0, True))
        else:
            found.append((-token.gain * ratio, -token.gain * ratio, False))
    return found


def sapo(sequence: list[Token], keys: Keys) -> list[Read]:
    found = []
    for token in sequence:
        tau = keys["tau_positive"] if token.gain > 0 else keys["tau_negative"]
        gate = 1 / (1 + math.exp(-tau * (token.ratio - 1)))
        slope = 4 * gate * (1 - gate) * token.ratio
        found.append((-token.gain * gate * 4 / tau, -token.gain * slope, False))
    return found


def cispo(sequence: list[Token], keys: Keys) -> list[Read]:
    found = []
    for token in sequence:
        weight = min(max(token.ratio, 1 - keys["clip_low"]), 1 + keys["clip_high"])
        found.append((-weight * token.gain * token.now, -weight * token.gain, weight != token.ratio))
    return found


@dataclass(frozen=True)
class Oracle:
    """A loss as defined in its paper."""

    read: Callable[[list[Token], Keys], list[Read]]
    """Takes one sequence and the values of the loss's keys."""
    keys: st.SearchStrategy[Keys]
    """Generates values of its keys."""


_CLIPS = st.sampled_from([0.1, 0.2, 0.28, 0.5])
_CLIP = {"clip_low": _CLIPS, "clip_high": _CLIPS}
_TAUS = st.floats(0.5, 3.0)

ORACLES: dict[str, Oracle] = {
    "grpo": Oracle(
        grpo,
        st.fixed_dictionaries(
            {
                **_CLIP,
                "importance_cap": st.sampled_from([1.5, 2.0, 4.0]),
                "dual_clip": st.sampled_from([None, 1.2, 3.0]),
            }
        ),
    ),
    "gspo": Oracle(gspo, st.fixed_dictionaries(_CLIP)),
    "sapo": Oracle(sapo, st.fixed_dictionaries({"tau_positive": _TAUS, "tau_negative": _TAUS})),
    "cispo": Oracle(cispo, st.fixed_dictionaries(_CLIP)),
}
"""Name of a loss -> its slow reference. All our losses have one."""


def weights(lengths: list[int], aggregation: str, constant: int) -> list[float]:
    """Weights of each sequence's tokens, including the division by tokens or sequences."""
    tokens, sequences = sum(lengths), sum(length > 0 for length in lengths)
    return [
        {
            "token_mean": 1 / max(tokens, 1),
            "sequence_mean": 1 / max(length, 1) / max(sequences, 1),
            "fixed_length": 1 / constant / max(sequences, 1),
        }[aggregation]
        for length in lengths
    ]
