"""What a loss is: sampled tokens and a recipe section in, the loss of each token out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator

from vtune.config import Strict
from vtune.registry import Parts, first_line
from vtune.update.losses.aggregation import Aggregation
from vtune.update.losses.divergence import MAX_LOG_RATIO, KLEstimator
from vtune.update.losses.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Tokens:
    """The sampled tokens of a micro-batch, one entry per token."""

    logprobs: Float[Tensor, " tokens"]
    """Under the weights that are trained, nats, with gradient."""
    old_logprobs: Float[Tensor, " tokens"]
    """Under the weights that drew them, as the rollout noted them, nats."""
    advantages: Float[Tensor, " tokens"]
    """In reward units."""
    off_policy: Bool[Tensor, " tokens"]
    """Whether the token is off-policy: the weights have changed since they drew it."""
    sequence: Int[Tensor, " tokens"]
    """Number of the sequence that each token belongs to, from 0; sequences are whole."""


class PolicyTerms(NamedTuple):
    """The loss of each token, and what decided it."""

    loss: Float[Tensor, " tokens"]
    clipped: Bool[Tensor, " tokens"] | None = None
    """The clip: no gradient. None where the loss has no clip."""
    truncated: Bool[Tensor, " tokens"] | None = None
    """A smaller (or larger) importance weight than the ratio. None where the loss truncates none."""


class PolicyLoss(Strict):
    """The keys that the section `loss` has with every algorithm; each adds its own."""

    algorithm: str
    """A name in `LOSSES`."""
    aggregation: Aggregation = "token_mean"
    """How the losses of tokens make one: see `token_weights`."""
    length: int | None = Field(default=None, gt=0)
    """fixed_length: the tokens that each sequence is divided by."""
    kl_weight: float = Field(ge=0)
    """Weight of the KL to the starting weights; 0 keeps no reference model."""
    kl_estimator: KLEstimator = "k3"
    """Of that KL."""

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
    """A pure function: no state, and nothing of one sequence depends on another."""
    section: type[S]
    """Its keys in a recipe."""
    coincides_on_policy: bool = False
    """Where the weights are those that drew the tokens, its gradient is that of the plain policy gradient,
    -advantage per token. A recipe that chooses it for such updates alone gets a warning."""
    example: Mapping[str, Any] = field(default_factory=dict)
    """Values of its own keys, with which it is tried."""


LOSSES: Parts[Loss[Any]] = Parts(
    "loss", lambda loss: first_line(loss.terms), Loss, calls=("terms(tokens, section) -> PolicyTerms",)
)
"""Name in a recipe -> loss."""


def ratio_of(tokens: Tokens) -> Float[Tensor, " tokens"]:
    """Probability under the weights that are trained over that under the weights that drew, with gradient."""
    return (tokens.logprobs - tokens.old_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
