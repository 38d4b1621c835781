"""What a rollout needs from whatever generates: token ids in, token ids out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from vtune.models.pictures import Pixels
from vtune.schema.message import Message

if TYPE_CHECKING:
    import torch

Finish = Literal["stop", "end", "length"]
"""stop: a stop text was written. end: the policy ended its turn. length: the token limit was reached."""


Weights = Callable[[], Iterator[tuple[str, "torch.Tensor"]]]
"""Starts a pass over the policy's weights by their names in a checkpoint, each whole. Every process of the
training takes part in a pass: gathering may need them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are drawn."""

    temperature: float
    """0 draws the likeliest token."""
    max_new_tokens: int
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One turn to be written."""

    token_ids: Sequence[int]
    """The conversation so far, placeholders expanded."""
    pixels: Sequence[Pixels]
    """Its pictures, in order."""
    sampling: Sampling
    key: tuple[int, ...] = field(default=())
    """(seed, step, group, rollout, turn): orders and seeds the draw, so that a run repeats."""
    cohort: int = 0
    """Of the trajectory, in [0, `Engine.cohorts`)."""
    messages: Sequence[Message] = ()
    """The same conversation in words, for a model that takes no token ids; `images` count `pixels`."""
    question: str = ""
    """Id of the sample, for a policy that has its replies by question."""
    apart: bool = False
    """Whether chance is dealt to it by its own key, whatever is drawn with it; most engines always do so."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One turn as it was drawn."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Log-probability (nats) of each token at temperature 1, banned tokens excluded."""
    finish: Finish
    weight_versions: tuple[int, ...]
    """Training steps behind the weights that drew each token."""
    text: str | None = None
    """What was said, where nobody here sees tokens; then the tuples are empty."""
    entropies: tuple[float, ...] = ()
    """Entropy (nats) of what each token was drawn from, at temperature 1, banned tokens excluded; empty where
    the engine does not say."""
    context: int = 0
    """Tokens of the conversation with this turn, as whoever drew it has counted; 0 where it has not, or where
    there are `token_ids`."""


class Engine(Protocol):
    """Draws turns. Trajectories register while they run, so that an engine may wait for all of them."""

    cohorts: int
    """The number of parts that trajectories are divided into: an engine that draws batches draws one of one
    part while the tools of the other run. 1 where each is drawn as it comes."""

    def join(self, cohort: int) -> None:
        """A conversation starts to run, and maybe others after it without a gap."""
        ...

    def leave(self, cohort: int) -> None:
        """It has ended, and no other follows it."""
        ...

    async def generate(self, request: Request) -> Completion:
        """Draw one turn.

        Raises:
            RunFailed: If nothing is left that could draw it.
        """
        ...

    async def take(self, weights: Weights, version: int) -> None:
        """Draw with these weights from now on; called by every process of the training, between rollouts.

        Args:
            weights: The policy's weights; one pass over them, in every process, or none in any.
            version: Training steps behind them.

        Raises:
            RunFailed: If nothing is left that could take them.
        """
        ...

    async def rest(self) -> None:
        """Nothing is drawn until the next `take`: the device is somebody else's until then."""
        ...

    async def aclose(self) -> None:
        """End what was started to draw."""
        ...
