"""CISPO: clips each token's importance weight, and drops no token."""

from pydantic import Field

from vtune.update.losses.loss import LOSSES, Loss, PolicyLoss, PolicyTerms, Tokens, ratio_of


class CISPO(PolicyLoss):
    """Keys of `cispo`."""

    clip_low: float = Field(gt=0)
    """How far the weight may fall below 1; 1 or more means no lower bound."""
    clip_high: float = Field(gt=0)
    """How far it may rise above 1."""


def cispo(tokens: Tokens, recipe: CISPO) -> PolicyTerms:
    """Clip the weight, drop no token: -sg(clip(r, 1 - clip_low, 1 + clip_high)) A logprobs.

    Source: CISPO, MiniMax-M1 2025 (arXiv 2506.13585): the objective and its clipped weight.
    """
    ratio = ratio_of(tokens).detach()
    weight = ratio.clamp(1 - recipe.clip_low, 1 + recipe.clip_high)
    return PolicyTerms(-weight * tokens.advantages * tokens.logprobs, truncated=weight != ratio)


LOSSES.add(
    "cispo", Loss(cispo, CISPO, coincides_on_policy=True, example={"clip_low": 0.2, "clip_high": 0.28})
)
