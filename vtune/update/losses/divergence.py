"""How far a policy is from another, estimated on the sampled tokens."""

from typing import Literal

from jaxtyping import Float

from vtune.update.losses.tensor import Tensor

KLEstimator = Literal["k1", "k2", "k3"]

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to ± this, as in verl: exp of a larger one overflows, and 0 x inf is NaN."""


def kl(
    logprobs: Float[Tensor, " tokens"], reference: Float[Tensor, " tokens"], estimator: KLEstimator
) -> Float[Tensor, " tokens"]:
    """Estimate of KL(policy || reference) for each sampled token, in nats, with d = logprobs - reference.

    - `k1`: d. Unbiased, may be negative, high variance. Of little use as a loss: the expectation of its
      gradient is 0, whatever the distance.
    - `k2`: d² / 2. Biased, low variance; the expectation of its gradient is that of the KL itself.
    - `k3`: exp(-d) + d - 1. Unbiased, never negative, low variance: GRPO's choice.

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

    k3 = exp(d) - d - 1 with d = reference - logprobs: unbiased and of low variance. d is clamped
    (`MAX_LOG_RATIO`): otherwise one token that the policy has made very unlikely could make the sum infinite.

    Source: Schulman, "Approximating KL divergence" (2020); the KL term of CodeV eq. 4.
    """
    delta = (reference - logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return delta.exp() - delta - 1
