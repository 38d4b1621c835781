"""GSPO: one ratio per sequence, clipped."""

from pydantic import Field

from vtune.update.losses.divergence import MAX_LOG_RATIO
from vtune.update.losses.loss import LOSSES, Loss, PolicyLoss, PolicyTerms, Tokens


class GSPO(PolicyLoss):
    """Keys of `gspo`; its paper uses 3.0e-4 and 4.0e-4."""

    clip_low: float = Field(gt=0)
    """How far the ratio may fall below 1."""
    clip_high: float = Field(gt=0)
    """How far it may rise above 1."""


def gspo(tokens: Tokens, recipe: GSPO) -> PolicyTerms:
    """Clip one ratio per sequence: -min(s A, clip(s, 1 - clip_low, 1 + clip_high) A).

    s = exp(mean over the sequence of log-ratios): all tokens of a sequence have one ratio, and the clip
    applies to all or none of them if their advantages agree. The gradient goes through each token's own
    log-probability, times s (GSPO-token), so that tokens may differ in advantage, as they do after credit
    transfer; if they do not, value and gradient of the mean over a sequence are those of the plain form. As
    in GRPO, the clip applies only off-policy, after the weights have changed.

    Source: GSPO, Zheng et al. 2025 (arXiv 2507.18071), eq. 5 and 7; by token §4.3, eq. 13 and 14.
    """
    logprobs, advantages, sequence = tokens.logprobs, tokens.advantages, tokens.sequence
    delta = (logprobs - tokens.old_logprobs).detach()
    lengths = sequence.bincount()
    total = delta.new_zeros(len(lengths))
    mean = (total.index_add(0, sequence, delta) / lengths.clamp(min=1)).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = mean.exp()[sequence] * (logprobs - logprobs.detach()).exp()
    bounded = ratio.clamp(1 - recipe.clip_low, 1 + recipe.clip_high) * advantages
    clipped = tokens.off_policy & (bounded < ratio * advantages)
    return PolicyTerms(-bounded.where(clipped, ratio * advantages), clipped)


LOSSES.add(
    "gspo", Loss(gspo, GSPO, coincides_on_policy=True, example={"clip_low": 3.0e-4, "clip_high": 4.0e-4})
)
