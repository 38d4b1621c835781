"""What a loss is: sampled tokens and a recipe section in, the loss of each token out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator

from vtune.registry import Parts, first_line
from vtune.sections import Strict
from vtune.update.losses.aggregation import Aggregation
from vtune.update.losses.divergence import MAX_LOG_RATIO, KLEstimator
from vtune.update.losses.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Tokens:
    """The sampled tokens of a micro-batch, one entry per token."""

    logprobs: Float[Tensor, " tokens"]
    """Under the weights being trained, in nats, with gradient."""
    old_logprobs: Float[Tensor, " tokens"]
    """Under the weights that sampled them, as recorded by the rollout, in nats."""
    advantages: Float[Tensor, " tokens"]
    """In reward units."""
    off_policy: Bool[Tensor, " tokens"]
    """Whether the token is off-policy: the weights have changed since it was sampled."""
    sequence: Int[Tensor, " tokens"]
    """Index of the sequence that each token belongs to, from 0; sequences are complete."""


class PolicyTerms(NamedTuple):
    """The loss of each token, and what determined it."""

    loss: Float[Tensor, " tokens"]
    clipped: Bool[Tensor, " tokens"] | None = None
    """Whether the clip applied, so that there is no gradient. None if the loss has no clip."""
    truncated: Bool[Tensor, " tokens"] | None = None
    """Whether the importance weight was truncated and differs from the ratio. None if none is truncated."""


class PolicyLoss(Strict):
    """The keys that the `loss` section has for every algorithm; each algorithm adds its own."""

    algorithm: str
    """A name in `LOSSES`."""
    aggregation: Aggregation = "token_mean"
    """How token losses are combined into one: see `token_weights`."""
    length: int | None = Field(default=None, gt=0)
    """For `fixed_length`: the number of tokens that each sequence is divided by."""
    kl_weight: float = Field(ge=0)
    """Weight of the KL to the starting weights; 0: no reference model is kept."""
    kl_estimator: KLEstimator = "k3"
    """The estimator of that KL."""

    @model_validator(mode="after")
    def _a_length_for_fixed_length(self) -> "PolicyLoss":
        if (self.length is None) == (self.aggregation == "fixed_length"):
            raise ValueError("length belongs to aggregation fixed_length: give both, or neither")
        return self


S = TypeVar("S", bound=PolicyLoss)


@dataclass(frozen=True, slots=True)
class Loss(Generic[S]):
    """A policy-gradient loss."""

    terms: Callable[[Tokens, S], PolicyTerms]
    """A pure function: no state, and no sequence may affect another."""
    section: type[S]
    """Its keys in a recipe."""
    coincides_on_policy: bool = False
    """Whether, if the current weights sampled the tokens, its gradient is that of the plain policy gradient,
    -advantage per token. A recipe that uses it only for such updates gets a warning."""
    example: Mapping[str, Any] = field(default_factory=dict)
    """Values of its own keys, for tests."""


LOSSES: Parts[Loss[Any]] = Parts(
    "loss", lambda loss: first_line(loss.terms), Loss, calls=("terms(tokens, section) -> PolicyTerms",)
)
"""Name in a recipe -> loss."""


def ratio_of(tokens: Tokens) -> Float[Tensor, " tokens"]:
    """Probability under the weights being trained over that under the sampling weights, with gradient."""
    return (tokens.logprobs - tokens.old_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
