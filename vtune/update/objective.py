"""The `loss` section of a recipe as one function of a micro-batch's tokens."""

from torch import Tensor

from vtune.update.loss import PolicyTerms, cispo, grpo, gspo, sapo
from vtune.update.recipe import PolicyLoss


def policy_terms(
    recipe: PolicyLoss,
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    moved: Tensor,
    sequence: Tensor,
) -> PolicyTerms:
    """The loss of each token by the algorithm that the recipe names; see the functions in `loss`.

    All tensors have one entry a counted token, shape (N,).
    """
    given = (logprobs, old_logprobs, advantages)
    if recipe.algorithm == "sapo":
        return sapo(*given, tau_positive=_set(recipe.tau_positive), tau_negative=_set(recipe.tau_negative))
    low, high = _set(recipe.clip_low), _set(recipe.clip_high)
    if recipe.algorithm == "cispo":
        return cispo(*given, clip_low=low, clip_high=high)
    if recipe.algorithm == "gspo":
        return gspo(*given, moved, sequence, clip_low=low, clip_high=high)
    return grpo(
        *given,
        moved,
        clip_low=low,
        clip_high=high,
        dual_clip=recipe.dual_clip,
        importance_cap=_set(recipe.importance_cap),
    )


def _set(value: float | None) -> float:
    if value is None:
        raise ValueError("a recipe was not validated: a key that its algorithm needs is missing")
    return value
