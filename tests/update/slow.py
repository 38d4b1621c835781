"""Losses read slowly: plain floats, one token after the other, value and slope written down apart."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Token:
    """One sampled token."""

    now: float
    old: float
    gain: float
    moved: bool

    @property
    def ratio(self) -> float:
        return math.exp(self.now - self.old)


Sequences = list[list[Token]]
Read = tuple[float, float, bool]
"""Loss, its slope in the token's log-probability, and whether clip or cap decided."""


def grpo(token: Token, low: float, high: float, dual: float | None, cap: float) -> Read:
    # A step that already went far enough in the direction of its advantage teaches no more.
    if token.moved and token.gain > 0 and token.ratio > 1 + high:
        return -token.gain * (1 + high), 0.0, True
    if token.moved and token.gain < 0 and token.ratio < 1 - low:
        return -token.gain * (1 - low), 0.0, True
    if token.moved and token.gain < 0 and dual is not None and token.ratio > dual:
        return -token.gain * dual, 0.0, True
    weight = min(token.ratio, cap)
    return -token.gain * weight, -token.gain * weight, False


def gspo(sequence: list[Token], low: float, high: float) -> list[Read]:
    ratio = math.exp(sum(token.now - token.old for token in sequence) / len(sequence))
    found = []
    for token in sequence:
        past = (token.gain > 0 and ratio > 1 + high) or (token.gain < 0 and ratio < 1 - low)
        edge = 1 + high if token.gain > 0 else 1 - low
        if token.moved and past:
            found.append((-token.gain * edge, 0.0, True))
        else:
            found.append((-token.gain * ratio, -token.gain * ratio, False))
    return found


def sapo(token: Token, positive: float, negative: float) -> Read:
    tau = positive if token.gain > 0 else negative
    gate = 1 / (1 + math.exp(-tau * (token.ratio - 1)))
    slope = 4 * gate * (1 - gate) * token.ratio
    return -token.gain * gate * 4 / tau, -token.gain * slope, False


def cispo(token: Token, low: float, high: float) -> Read:
    weight = min(max(token.ratio, 1 - low), 1 + high)
    return -weight * token.gain * token.now, -weight * token.gain, weight != token.ratio


def weights(lengths: list[int], aggregation: str, constant: int) -> list[float]:
    """Of each sequence's tokens, the division by tokens or sequences included."""
    tokens, sequences = sum(lengths), sum(length > 0 for length in lengths)
    return [
        {
            "token_mean": 1 / max(tokens, 1),
            "sequence_mean": 1 / max(length, 1) / max(sequences, 1),
            "fixed_length": 1 / constant / max(sequences, 1),
        }[aggregation]
        for length in lengths
    ]
