"""Losses as pure functions of tensors, one entry a sampled token."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Aggregation = Literal["token_mean", "sequence_mean", "fixed_length"]
KLEstimator = Literal["k1", "k2", "k3"]

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to plus and minus this, as in verl: exp of more overflows, and 0 x inf is NaN."""


class PolicyTerms(NamedTuple):
    """The loss of each token, and what decided it."""

    loss: Float[Tensor, " tokens"]
    clipped: Bool[Tensor, " tokens"] | None
    """The clip: no gradient. None where the loss has no clip."""
    truncated: Bool[Tensor, " tokens"] | None
    """A smaller (or larger) importance weight than the ratio. None where the loss truncates none."""


def grpo(
    logprobs: Float[Tensor, " tokens"],
    old_logprobs: Float[Tensor, " tokens"],
    advantages: Float[Tensor, " tokens"],
    moved: Bool[Tensor, " tokens"],
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None,
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
        clip_high: How far it may rise above 1; more than `clip_low` is DAPO's clip-higher.
        dual_clip: With a negative advantage and a ratio above this (more than 1) the objective is
            dual_clip A, and no gradient flows; None: no such bound.
        importance_cap: Largest importance weight, at least 1 + clip_high.

    Source: GRPO, Shao et al. 2024, "From PPO to GRPO"; CodeV eq. 4 (CodeV writes the reference policy below
    the ratio; its code, and all of the field, the policy that drew the tokens; so do we). Clip-higher: DAPO,
    Yu et al. 2025, "Clip-Higher". Dual clip: Ye et al. 2020, "Mastering complex control in MOBA games with
    deep reinforcement learning", max(min(r A, clip(r) A), c A) for A < 0. The cap: Yao et al., "Your
    efficient RL framework secretly brings you off-policy RL training" (2025), truncated importance sampling
    by token.
    """
    ratio = _ratio(logprobs, old_logprobs)
    truncated = ratio > importance_cap
    # As large as the cap, with the gradient of a logarithm times the cap.
    capped = importance_cap * torch.exp(logprobs - logprobs.detach())
    weighed = torch.where(truncated, capped, ratio) * advantages
    bounded = ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    clipped = moved & (bounded < ratio * advantages)
    objective = torch.where(clipped, bounded, weighed)
    if dual_clip is not None:
        floored = moved & (advantages < 0) & (ratio > dual_clip)
        objective = torch.where(floored, dual_clip * advantages, objective)
        clipped = clipped | floored
    return PolicyTerms(-objective, clipped, truncated)


def gspo(
    logprobs: Float[Tensor, " tokens"],
    old_logprobs: Float[Tensor, " tokens"],
    advantages: Float[Tensor, " tokens"],
    moved: Bool[Tensor, " tokens"],
    sequence: Int[Tensor, " tokens"],
    *,
    clip_low: float,
    clip_high: float,
) -> PolicyTerms:
    """-min(s A, clip(s, 1 - clip_low, 1 + clip_high) A), s = exp(mean over the sequence of log-ratios).

    All tokens of a sequence have the same ratio, and the clip takes all or none where their advantages
    agree. The gradient goes through each token's own log-probability, times s (GSPO-token), so that
    tokens may differ in advantage, as they do after credit transfer; where they do not, value and gradient
    of the mean over a sequence are those of the plain form. As in `grpo`, the clip acts only where the
    weights have moved.

    Args:
        logprobs: Of the sampled tokens under the weights that are trained, nats, with gradient.
        old_logprobs: Under the weights that drew them.
        advantages: One a token, in reward units.
        moved: Whether the weights have changed since they drew the token.
        sequence: Number of the sequence that each token belongs to, from 0; sequences are whole.
        clip_low: How far the ratio may fall below 1.
        clip_high: How far it may rise above 1.

    Source: GSPO, Zheng et al. 2025 (arXiv 2507.18071), eq. 5 and 7; by token §4.3, eq. 13 and 14.
    """
    delta = (logprobs - old_logprobs).detach()
    lengths = torch.bincount(sequence)
    total = torch.zeros(len(lengths), dtype=delta.dtype, device=delta.device)
    mean = (total.index_add(0, sequence, delta) / lengths.clamp(min=1)).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = torch.exp(mean)[sequence] * torch.exp(logprobs - logprobs.detach())
    bounded = ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    clipped = moved & (bounded < ratio * advantages)
    return PolicyTerms(-torch.where(clipped, bounded, ratio * advantages), clipped, None)


def sapo(
    logprobs: Float[Tensor, " tokens"],
    old_logprobs: Float[Tensor, " tokens"],
    advantages: Float[Tensor, " tokens"],
    *,
    tau_positive: float,
    tau_negative: float,
) -> PolicyTerms:
    """-f(r) A, f(r) = 4/tau sigmoid(tau (r - 1)): a soft gate in place of the clip.

    The slope of f is 1 at r = 1 and fades to both sides, the faster the larger tau is.

    Args:
        logprobs: Of the sampled tokens under the weights that are trained, nats, with gradient.
        old_logprobs: Under the weights that drew them.
        advantages: One a token, in reward units.
        tau_positive: tau of tokens with an advantage above 0.
        tau_negative: tau of the others; larger makes training more stable.

    Source: SAPO, Gao et al. 2025 (arXiv 2511.20347), the objective and its gate; taus as in verl: 1.0, 1.05.
    """
    ratio = _ratio(logprobs, old_logprobs)
    tau = torch.where(advantages > 0, ratio.new_tensor(tau_positive), tau_negative)
    return PolicyTerms(-torch.sigmoid(tau * (ratio - 1)) * (4 / tau) * advantages, None, None)


def cispo(
    logprobs: Float[Tensor, " tokens"],
    old_logprobs: Float[Tensor, " tokens"],
    advantages: Float[Tensor, " tokens"],
    *,
    clip_low: float,
    clip_high: float,
) -> PolicyTerms:
    """-sg(clip(r, 1 - clip_low, 1 + clip_high)) A logprobs: the weight is clipped, no token is lost.

    Args:
        logprobs: Of the sampled tokens under the weights that are trained, nats, with gradient.
        old_logprobs: Under the weights that drew them.
        advantages: One a token, in reward units.
        clip_low: How far the weight may fall below 1; 1 or more is no lower bound.
        clip_high: How far it may rise above 1.

    Source: CISPO, MiniMax-M1 2025 (arXiv 2506.13585): the objective and its clipped weight.
    """
    ratio = _ratio(logprobs, old_logprobs).detach()
    weight = ratio.clamp(1 - clip_low, 1 + clip_high)
    return PolicyTerms(-weight * advantages * logprobs, None, weight != ratio)


def token_weights(
    sequence: Int[Tensor, " tokens"], aggregation: Aggregation, *, length: int | None
) -> Float[Tensor, " tokens"]:
    """What each token's loss is multiplied by before it is summed and divided by `denominator`.

    - `token_mean`: 1; the sum is divided by the tokens of the update (DAPO, "Token-Level Policy
      Gradient Loss": every token counts alike).
    - `sequence_mean`: 1 / tokens of the sequence; divided by the sequences (GRPO, GSPO, SAPO).
    - `fixed_length`: 1 / length; divided by the sequences (Dr. GRPO, Liu et al. 2025: a constant,
      so that neither short nor long replies are favoured).

    Args:
        sequence: Number of the sequence that each token belongs to; sequences are whole.
        aggregation: How tokens make a loss.
        length: The constant of `fixed_length`, in tokens.

    Raises:
        ValueError: If `fixed_length` is asked for without a length.
    """
    if aggregation == "sequence_mean":
        return 1.0 / torch.bincount(sequence)[sequence].float()
    ones = torch.ones(len(sequence), device=sequence.device)
    if aggregation == "token_mean":
        return ones
    if length is None:
        raise ValueError("fixed_length needs a length")
    return ones / length


def denominator(aggregation: Aggregation, *, tokens: int, sequences: int) -> int:
    """What the weighed sum is divided by: tokens or sequences of the whole update, over all processes.

    Args:
        aggregation: How tokens make a loss.
        tokens: Counted tokens.
        sequences: Sequences with at least one counted token.
    """
    return tokens if aggregation == "token_mean" else sequences


def kl(
    logprobs: Float[Tensor, " tokens"], reference: Float[Tensor, " tokens"], estimator: KLEstimator
) -> Float[Tensor, " tokens"]:
    """Estimate of KL(policy || reference) for each sampled token, in nats, with d = logprobs - reference.

    - `k1`: d. Unbiased, may be negative, varies much. As a loss it is of little use: its gradient is 0 in the
      mean, whatever the distance.
    - `k2`: d² / 2. Biased, varies little; its gradient is, in the mean, that of the KL itself.
    - `k3`: exp(-d) + d - 1. Unbiased, never negative, varies little: GRPO's choice.

    Source: Schulman, "Approximating KL divergence" (2020).
    """
    if estimator == "k1":
        return logprobs - reference
    if estimator == "k2":
        return 0.5 * (logprobs - reference).square()
    return kl_k3(logprobs, reference)


def kl_k3(
    logprobs: Float[Tensor, " tokens"], reference: Float[Tensor, " tokens"]
) -> Float[Tensor, " tokens"]:
    """Estimate of KL(policy || reference) for each sampled token, in nats; never negative.

    k3 = exp(d) - d - 1 with d = reference - logprobs: unbiased and of low variance.

    Source: Schulman, "Approximating KL divergence" (2020); the KL term of CodeV eq. 4.
    """
    delta = reference - logprobs
    return torch.exp(delta) - delta - 1


def _ratio(
    logprobs: Float[Tensor, " tokens"], old_logprobs: Float[Tensor, " tokens"]
) -> Float[Tensor, " tokens"]:
    return torch.exp((logprobs - old_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
