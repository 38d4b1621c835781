"""Losses as pure functions of tensors, one entry a sampled token."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Clipped(NamedTuple):
    """The clipped objective of each token, and whether the clip decided it."""

    loss: Float[Tensor, " tokens"]
    clipped: Bool[Tensor, " tokens"]


def clipped_policy_loss(
    logprobs: Float[Tensor, " tokens"],
    old_logprobs: Float[Tensor, " tokens"],
    advantages: Float[Tensor, " tokens"],
    *,
    clip_low: float,
    clip_high: float,
) -> Clipped:
    """-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), r = exp(logprobs - old_logprobs).

    Args:
        logprobs: Of the sampled tokens under the weights that are trained, nats, with gradient.
        old_logprobs: Under the weights that drew them.
        advantages: One a token, in reward units.
        clip_low: How far the ratio may fall below 1.
        clip_high: How far it may rise above 1.

    Source: CodeV eq. 4 (CodeV writes the reference policy below the ratio; its code, and all of the
    field, the policy that drew the tokens; so do we).
    """
    ratio = torch.exp(logprobs - old_logprobs)
    plain = ratio * advantages
    bounded = ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    return Clipped(-torch.minimum(plain, bounded), bounded < plain)


def kl_k3(
    logprobs: Float[Tensor, " tokens"], reference: Float[Tensor, " tokens"]
) -> Float[Tensor, " tokens"]:
    """Estimate of KL(policy || reference) for each sampled token, in nats; never negative.

    k3 = exp(d) - d - 1 with d = reference - logprobs: unbiased and of low variance.

    Source: Schulman, "Approximating KL divergence" (2020); the KL term of CodeV eq. 4.
    """
    delta = reference - logprobs
    return torch.exp(delta) - delta - 1
