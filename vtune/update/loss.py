"""Losses as pure functions of tensors, one entry a sampled token."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class PolicyTerms(NamedTuple):
    """The objective of each token, and what decided it."""

    loss: Float[Tensor, " tokens"]
    clipped: Bool[Tensor, " tokens"]
    """The clip: no gradient."""
    truncated: Bool[Tensor, " tokens"]
    """The cap: a smaller importance weight than the ratio."""


def policy_loss(
    logprobs: Float[Tensor, " tokens"],
    old_logprobs: Float[Tensor, " tokens"],
    advantages: Float[Tensor, " tokens"],
    moved: Bool[Tensor, " tokens"],
    *,
    clip_low: float,
    clip_high: float,
    importance_cap: float,
) -> PolicyTerms:
    """-min(w A, clip(r, 1 - clip_low, 1 + clip_high) A), r = exp(logprobs - old_logprobs).

    w is r, its value truncated at the cap: a token's gradient is min(r, cap) A grad(logprobs), or none
    where the clip decides. Where weights have not moved since they drew a token, r is nothing but the
    mismatch of two implementations: it is corrected, but it is no step that a clip could hold back. So the
    log-probabilities of the rollout serve in both cases, and no pass of the old policy is needed.

    Args:
        logprobs: Of the sampled tokens under the weights that are trained, nats, with gradient.
        old_logprobs: Under the weights that drew them, as the rollout noted them.
        advantages: One a token, in reward units.
        moved: Whether the weights have changed since they drew the token.
        clip_low: How far the ratio may fall below 1.
        clip_high: How far it may rise above 1.
        importance_cap: Largest importance weight, at least 1 + clip_high.

    Source: CodeV eq. 4 (CodeV writes the reference policy below the ratio; its code, and all of the
    field, the policy that drew the tokens; so do we). The cap: Yao et al., "Your efficient RL framework
    secretly brings you off-policy RL training" (2025), truncated importance sampling by token.
    """
    ratio = torch.exp(logprobs - old_logprobs)
    truncated = ratio > importance_cap
    # As large as the cap, with the gradient of a logarithm times the cap.
    capped = importance_cap * torch.exp(logprobs - logprobs.detach())
    weighed = torch.where(truncated, capped, ratio) * advantages
    bounded = ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    clipped = moved & (bounded < ratio * advantages)
    return PolicyTerms(-torch.where(clipped, bounded, weighed), clipped, truncated)


def kl_k3(
    logprobs: Float[Tensor, " tokens"], reference: Float[Tensor, " tokens"]
) -> Float[Tensor, " tokens"]:
    """Estimate of KL(policy || reference) for each sampled token, in nats; never negative.

    k3 = exp(d) - d - 1 with d = reference - logprobs: unbiased and of low variance.

    Source: Schulman, "Approximating KL divergence" (2020); the KL term of CodeV eq. 4.
    """
    delta = reference - logprobs
    return torch.exp(delta) - delta - 1
