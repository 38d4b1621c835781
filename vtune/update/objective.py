"""From log-probabilities to what a micro-batch is trained on: its loss, and its sums for the record."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from vtune.errors import RunFailed
from vtune.update.batch import MicroBatch
from vtune.update.forward import TokenStats
from vtune.update.losses import LOSSES, PolicyLoss, PolicyTerms, Tokens
from vtune.update.losses.aggregation import token_weights
from vtune.update.losses.divergence import kl, kl_k3


class MicroLoss(NamedTuple):
    """Of one micro-batch in one process."""

    loss: Tensor
    """Summed over its tokens, each with its weight; with gradient."""
    sums: dict[str, float]
    """By name, over its tokens: what the record has the means of."""
    mismatch: float
    """Largest |log-probability now - when drawn|."""


def micro_loss(
    recipe: PolicyLoss | None,
    stats: TokenStats,
    batch: MicroBatch,
    starting: Callable[[], TokenStats] | None,
) -> MicroLoss:
    """The loss of a micro-batch as the recipe says; without one that of supervised training.

    Args:
        recipe: The section `loss`.
        stats: Of the N counted tokens.
        batch: The same tokens.
        starting: Scores the same tokens under the starting weights; None: no KL.
    """
    sums = {"entropy": float(stats.entropy.sum())}
    mismatch = 0.0
    if recipe is None:
        loss = -stats.logprobs.sum()
    else:
        now, old = stats.logprobs.detach(), batch.old_logprobs
        apart = (now - old).abs()
        mismatch = float(apart.max()) if len(apart) else 0.0
        terms = policy_terms(
            recipe, Tokens(stats.logprobs, old, batch.advantages, batch.off_policy, batch.sequence)
        )
        losses = terms.loss
        flags = {"clipped": terms.clipped, "truncated": terms.truncated}
        sums |= {name: float(flag.sum()) for name, flag in flags.items() if flag is not None}
        sums |= {"mismatch": float(apart.sum()), "mismatch_kl": float(kl_k3(old, now).sum())}
        if starting is not None:
            with torch.no_grad():
                reference = starting().logprobs
            divergence = kl(stats.logprobs, reference, recipe.kl_estimator)
            losses = losses + recipe.kl_weight * divergence
            sums["kl"] = float(divergence.detach().sum())
        loss = (token_weights(batch.sequence, recipe.aggregation, length=recipe.length) * losses).sum()
    sums["loss"] = float(loss.detach())
    return MicroLoss(loss, sums, mismatch)


def policy_terms(recipe: PolicyLoss, tokens: Tokens) -> PolicyTerms:
    """The loss of each token by the algorithm that the recipe names.

    Raises:
        RunFailed: If it gives no value per token.
    """
    terms = LOSSES[recipe.algorithm].terms(tokens, recipe)
    if terms.loss.shape != tokens.logprobs.shape:
        raise RunFailed(
            f"loss `{recipe.algorithm}` gives a tensor of shape {tuple(terms.loss.shape)} for "
            f"{len(tokens.logprobs)} tokens",
            fix="let it give one value per token: `vtune parts check` of its file tries it",
        )
    return terms
