"""From log-probabilities to a micro-batch's loss, and its sums for the metrics."""

from collections.abc import Callable
from dataclasses import fields
from typing import NamedTuple

import torch
from torch import Tensor

from vtune.parts import OURS
from vtune.update.batch import MicroBatch
from vtune.update.forward import TokenStats
from vtune.update.losses import LOSSES, PolicyLoss, PolicyTerms, Tokens
from vtune.update.losses.aggregation import token_weights
from vtune.update.losses.divergence import kl, kl_k3
from vtune.uses import defined, ill_made


class MicroLoss(NamedTuple):
    """The loss of one micro-batch in one process."""

    loss: Tensor
    """Weighted sum over its tokens, with gradient."""
    sums: dict[str, float]
    """Name -> sum over its tokens; the metrics record the means."""
    mismatch: float
    """Largest |log-probability now - when sampled|."""


def micro_loss(
    recipe: PolicyLoss | None,
    stats: TokenStats,
    batch: MicroBatch,
    starting: Callable[[], TokenStats] | None,
) -> MicroLoss:
    """The loss of a micro-batch according to the recipe; without a recipe, that of supervised training.

    Args:
        recipe: The `loss` section.
        stats: Of the N counted tokens.
        batch: The same tokens.
        starting: Scores the same tokens with the starting weights; None: no KL term.
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
    """The loss of each token, by the algorithm that the recipe names.

    Raises:
        BrokenPart: If a user's own loss does not return `PolicyTerms` with one value per token, or its values
            have no gradient, or are not finite although all inputs are, or if it changes an input.
    """
    loss, before = LOSSES[recipe.algorithm], _versions(tokens)
    found: object = loss.terms(tokens, recipe)
    if not isinstance(found, PolicyTerms):
        wrong, fix = f"it returns {type(found).__name__}, not PolicyTerms", "return PolicyTerms(loss)"
    elif wrong := _misshapen(found, len(tokens.logprobs)):
        fix = "give one value per token"
    elif tokens.logprobs.requires_grad and not found.loss.requires_grad:
        wrong, fix = "its loss has no gradient", "compute it from `tokens.logprobs`, without `detach`"
    elif recipe.algorithm not in OURS[LOSSES.kind] and (wrong := _not_finite(found.loss, tokens)):
        # Only for custom losses: this blocks the host until the GPU is done.
        fix = "clamp what overflows, see `ratio_of`"
    elif changed := [name for name, version in _versions(tokens).items() if version != before[name]]:
        wrong, fix = f"it changes `tokens.{changed[0]}`", "leave out in-place operations such as `mul_`"
    else:
        return found
    raise ill_made((LOSSES.kind, recipe.algorithm), ValueError(wrong), fix, defined(loss.terms))


def _versions(tokens: Tokens) -> dict[str, int]:
    """Field -> how often its tensor was changed in place, which torch counts."""
    values = {field.name: getattr(tokens, field.name) for field in fields(Tokens)}
    return {name: value._version for name, value in values.items() if not value.is_inference()}


def _misshapen(terms: PolicyTerms, count: int) -> str:
    """Which of the terms is not a tensor with one value per token; empty if all are."""
    for field, value in zip(terms._fields, terms, strict=True):
        if value is None and field != "loss":
            continue
        if not isinstance(value, Tensor):
            return f"`{field}` is of type {type(value).__name__}, not Tensor"
        if value.shape != (count,):
            return f"`{field}` has the shape {tuple(value.shape)} for {count} tokens"
    return ""


def _not_finite(loss: Tensor, tokens: Tokens) -> str:
    """Where a loss is not finite although all its inputs are; empty: nowhere."""
    made_of = (tokens.logprobs, tokens.old_logprobs, tokens.advantages)
    if torch.isfinite(loss).all() or not all(torch.isfinite(value).all() for value in made_of):
        return ""
    place = int((~torch.isfinite(loss)).nonzero()[0])
    now, old, gain = (float(value.detach()[place]) for value in made_of)
    return (
        f"its loss is {float(loss.detach()[place])} for a token with a log-probability of {now:.4g} "
        f"({old:.4g} when sampled) and an advantage of {gain:.4g}"
    )
