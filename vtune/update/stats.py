"""Statistics of an update: its loss, its gradient, and how far rollout and training differ."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepStats:
    """Statistics of one update, over all processes."""

    loss: float
    """The mean over counted tokens, or as `loss.aggregation` says."""
    grad_norm: float
    """Before clipping."""
    skipped: bool
    """Whether the update was skipped because the gradient was too large or not finite; `loss` may be NaN.
    """
    learning_rate: float
    tokens: int
    """Counted tokens."""
    flops: float
    """Operations needed, over all processes (see `vtune.update.flops`)."""
    entropy: float
    """Mean, nats."""
    kl: float | None
    """Mean estimate relative to the starting weights, nats; None without a reference."""
    clip_share: float | None
    """Share of tokens whose objective was clipped; None if the loss has no clip."""
    mismatch: float | None
    """Largest |log-probability now - when sampled|; on the first update of a step this is numerical noise."""
    mismatch_mean: float | None
    """Mean of the same, nats."""
    mismatch_kl: float | None
    """Mean estimate of KL(sampling weights || current weights), nats."""
    truncated_share: float | None
    """Share of tokens whose importance weight was truncated; None if the loss truncates none."""
    grad_norms: Mapping[str, float]
    """For each trained layer group (see `vtune.update.parts.layer_group`) and each part, before clipping;
    empty if the overall norm is not finite."""
