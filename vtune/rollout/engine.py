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
"""Starts a pass over the policy's unsharded weights, by their names in a checkpoint. Every training process
takes part in a pass, since gathering may need them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are sampled."""

    temperature: float
    """0: greedy decoding."""
    max_new_tokens: int
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One turn to generate."""

    token_ids: Sequence[int]
    """The conversation so far, with placeholders expanded."""
    pixels: Sequence[Pixels]
    """Its pictures, in order."""
    sampling: Sampling
    key: tuple[int, ...] = field(default=())
    """(seed, step, group, rollout, turn): orders the requests and seeds sampling, so that a run can be
    repeated."""
    cohort: int = 0
    """The trajectory's cohort, in [0, `Engine.cohorts`)."""
    messages: Sequence[Message] = ()
    """The same conversation as text, for a model that takes no token ids; its `images` index `pixels`."""
    question: str = ""
    """Id of the sample, for a policy whose replies are stored by question."""
    apart: bool = False
    """Whether its random numbers depend only on its own key, whatever else is in the batch; most engines
    always work that way."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One generated turn."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Log-probability (nats) of each token at temperature 1, banned tokens excluded."""
    finish: Finish
    weight_versions: tuple[int, ...]
    """For each token, the number of training steps behind the weights that sampled it."""
    text: str | None = None
    """The text, if the engine does not work with tokens; the tuples are then empty."""
    entropies: tuple[float, ...] = ()
    """Entropy (nats) of the distribution that each token was sampled from, at temperature 1, banned tokens
    excluded; empty if the engine does not report it."""
    context: int = 0
    """Tokens in the conversation including this turn, as counted by the engine's backend; 0 if not counted,
    or if there are `token_ids`."""


class Engine(Protocol):
    """Generates turns. Trajectories register while they run, so that an engine can wait for all of them.

    One that generates turns as they come takes `cohorts`, `join` and `leave` from here.
    """

    cohorts: int = 1
    """The number of groups that trajectories are divided into: a batching engine generates for one cohort
    while the tools of the other run. 1 if turns are generated as they come."""

    def join(self, cohort: int) -> None:
        """A conversation starts; others may start right after it."""
        return

    def leave(self, cohort: int) -> None:
        """A conversation has ended, and no other follows it."""
        return

    async def generate(self, request: Request) -> Completion:
        """Generate one turn.

        Raises:
            RunFailed: If no working backend is left to generate it.
        """
        ...

    async def take(self, weights: Weights, version: int) -> None:
        """Generate with these weights from now on; called by every training process, between rollouts.

        Args:
            weights: The policy's weights; every process makes one pass over them, or none does.
            version: The number of training steps behind them.

        Raises:
            RunFailed: If no working backend is left to take them.
        """
        ...

    async def rest(self) -> None:
        """Generate nothing until the next `take`: the device is needed for something else until then."""
        ...

    async def aclose(self) -> None:
        """Shut down what was started for generation."""
        ...
