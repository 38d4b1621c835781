"""What a rollout needs from whatever draws the tokens: token ids in, token ids out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from vtune.models.pictures import Pixels

Finish = Literal["stop", "end", "length"]
"""stop: a stop text was written. end: the policy ended its turn. length: the token limit was reached."""


COHORTS = 2
"""Trajectories that run together are parted in so many: while some are drawn, the tools of the others run."""


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
    """Of the trajectory, in [0, COHORTS)."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One turn as it was drawn."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Log-probability (nats) of each token at temperature 1, banned tokens excluded."""
    finish: Finish


class Engine(Protocol):
    """Draws turns. Trajectories register while they run, so that an engine may wait for all of them."""

    def join(self, cohort: int) -> None:
        """A trajectory starts to run."""
        ...

    def leave(self, cohort: int) -> None:
        """A trajectory has ended."""
        ...

    async def generate(self, request: Request) -> Completion:
        """Draw one turn."""
        ...
