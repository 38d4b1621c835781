"""Statistics of an update: its loss, its gradient, and how far rollout and training differ."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepStats:
    """One update, over all processes."""

    loss: float
    """Over all processes: the mean over counted tokens, or what `loss.aggregation` says."""
    grad_norm: float
    """Before clipping."""
    skipped: bool
    """Whether the gradient was too large, or no number, and nothing was learnt; `loss` may be NaN then."""
    learning_rate: float
    tokens: int
    """Counted tokens."""
    flops: float
    """Operations that it needed, over all processes (see `vtune.update.flops`)."""
    entropy: float
    """Mean, nats."""
    kl: float | None
    """Mean estimate against the starting weights, nats; None without a reference."""
    clip_share: float | None
    """Share of tokens whose objective the clip decided; None where there is none."""
    mismatch: float | None
    """Largest |log-probability now - when drawn|; on the first update of a step it is numerical noise."""
    mismatch_mean: float | None
    """Mean of the same, nats."""
    mismatch_kl: float | None
    """Mean estimate of KL(weights that drew || weights now), nats."""
    truncated_share: float | None
    """Share of tokens whose importance weight was truncated; None where the loss truncates none."""
    grad_norms: Mapping[str, float]
    """Of each group of layers that is trained (see `vtune.update.parts.layer_group`) and of each part,
    before clipping; empty where the norm of all is not a number."""
