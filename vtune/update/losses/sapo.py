"""SAPO: a soft gate on the ratio of each token, in place of the clip."""

from pydantic import Field

from vtune.update.losses.loss import LOSSES, Loss, PolicyLoss, PolicyTerms, Tokens, ratio_of


class SAPO(PolicyLoss):
    """Keys of `sapo`; its paper uses 1.0 and 1.05."""

    tau_positive: float = Field(gt=0)
    """How fast the gate closes on tokens with a positive advantage."""
    tau_negative: float = Field(gt=0)
    """The same for the others; a larger value makes training more stable."""


def sapo(tokens: Tokens, recipe: SAPO) -> PolicyTerms:
    """Put a soft gate in place of the clip: -f(r) A, f(r) = 4/tau sigmoid(tau (r - 1)).

    The slope of f is 1 at r = 1 and decays on both sides, faster for a larger tau.

    Source: SAPO, Gao et al. 2025 (arXiv 2511.20347), the objective and its gate; taus as in verl: 1.0, 1.05.
    """
    ratio, advantages = ratio_of(tokens), tokens.advantages
    tau = ratio.new_tensor(recipe.tau_positive).where(advantages > 0, ratio.new_tensor(recipe.tau_negative))
    return PolicyTerms(-(tau * (ratio - 1)).sigmoid() * (4 / tau) * advantages)


LOSSES.add(
    "sapo", Loss(sapo, SAPO, coincides_on_policy=True, example={"tau_positive": 1.0, "tau_negative": 1.05})
)
