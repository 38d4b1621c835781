"""A custom loss: the plain policy gradient, weaker where an answer is already likely."""

from pydantic import Field

from vtune.update.losses import LOSSES, Loss, PolicyLoss, PolicyTerms, Tokens


class Pushes(PolicyLoss):
    """Keys of `pushes`."""

    fade: float = Field(ge=0)
    """0 pushes all tokens equally; larger values leave likely tokens unchanged."""


def pushes(tokens: Tokens, recipe: Pushes) -> PolicyTerms:
    """Push less what is likely already: -(1 - p) ** fade A log p."""
    likely = tokens.logprobs.detach().clamp(min=-20, max=-1e-6).exp()
    return PolicyTerms(-((1 - likely) ** recipe.fade) * tokens.advantages * tokens.logprobs)


LOSSES.add("pushes", Loss(pushes, Pushes, example={"fade": 1.0}))
