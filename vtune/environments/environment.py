"""What an environment is: opened for a sample, it observes each turn until it or the policy ends."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vtune.sandbox import Sandbox
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Outcome
from vtune.tools.observation import Observation
from vtune.tools.toolbox import Results, Toolbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The policy's latest turn."""

    text: str
    stopped: bool
    """Whether it ended with one of `Episode.stop`; if not, the policy ended it itself."""
    last: bool
    """No turn is left: the result is recorded, but never shown."""
    pictures: Sequence[bytes]
    """Every picture of the conversation so far, encoded, as the policy saw it; the sample's first."""


@dataclass(frozen=True, slots=True)
class Act:
    """Something that the policy did in a turn, and the result: a call in the trajectory's record."""

    seen: Observation
    """The policy reads `text` unchanged; the status `infra` leaves the trajectory unscored."""
    tool: str = ""
    """Tool name in the record; empty: the environment's name."""
    arguments: str = "{}"
    """What was requested, as a JSON object."""
    end: int | None = None
    """Index in the turn's text after the last character of the act; None: the whole turn."""


class Episode(Protocol):
    """One trajectory's environment, and its state. Subclassing this class provides the defaults.

    Raise `Mistake` for mistakes of the policy: it reads the message, and continues. Raise `ServiceError`
    for our failures (a server that is down): the trajectory ends unscored. Anything else stops the run.
    """

    stop: tuple[str, ...] = ()
    """Texts that end a turn of the policy."""
    opening: Observation | None = None
    """What follows the sample's question, with one `<image>` per picture; None: nothing."""
    sandbox: str = ""
    """Isolation under which the policy's code ran (`Sandbox.tier`); empty if there was none."""

    async def observe(self, turn: Turn) -> Sequence[Act] | None:
        """The result of a turn; None ends the conversation.

        If a turn has several acts, each result is in a `<tool_response>`.
        """
        ...

    async def outcome(self) -> Outcome | None:
        """The environment's reward. Requested once, when the conversation has ended for whatever reason."""
        return None

    async def close(self) -> None:
        """Release all resources; called once, however the conversation ended."""
        return


class Eyes(Protocol):
    """How the policy sees pictures."""

    async def load(self, images: Sequence[bytes]) -> None:
        """Decode pictures in threads; afterwards `read` and `shown_size` for them are instant.

        Raises:
            DataError: If a picture cannot be decoded.
        """
        ...

    def read(self, data: bytes) -> object:
        """Decode an encoded picture; raises DataError if that fails."""
        ...

    def shown_size(self, data: bytes) -> tuple[int, int]:
        """(width, height) in pixels at which the policy sees it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What a run provides to its episodes."""

    sandbox: Sandbox
    """Runs code."""
    tools: Toolbox
    """Opened according to the recipe."""
    results: Results
    """Results of calls, shared by the rollouts of a group."""
    pictures: Eyes
    lost: Callable[[], None]
    """Call it each time the sandbox lost a session that was recreated."""
    later: Callable[[Coroutine[Any, Any, None]], None]
    """Runs a coroutine in the background, e.g. to close a session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What an episode starts with."""

    sample: Sample
    images: tuple[bytes, ...]
    """The sample's pictures, encoded."""
    seed: int
    """Seed for everything random in the episode, in [0, 2^32); different for each rollout."""
    group: int
    """Shared by the rollouts of one question."""
    services: Services


@dataclass(frozen=True, slots=True)
class Trial:
    """A short conversation for testing an environment."""

    sample: Sample
    """Its pictures must have bytes. The tools that it offers are opened with their test settings."""
    turns: tuple[str, ...]
    """What the policy says, including the turn that ends it: at least two turns, so that one is answered."""
    once: bool = False
    """Whether every valid turn ends the conversation, so that `turns` has only one."""


@dataclass(frozen=True, slots=True)
class EnvironmentPart:
    """An environment as data and runs use it."""

    about: str
    """What it is, in one line."""
    open: Callable[[Start], Awaitable[Episode]]
    """Raises ServiceError for our failures, DataError if the sample is not suitable for it."""
    judges: bool = False
    """Whether its episodes give an outcome, which the verifier `environment_reward` uses as accuracy."""
    check_sample: Callable[[Sample], None] | None = None
    """Raises DataError if a sample is not suitable for it; called by imports, before a run, and before an
    episode opens. Its pictures need not be loaded. None: any sample is suitable."""
    trial: Trial | None = None
    """Test conversation for a user's own environment."""
    recorded_as: str = ""
    """Tool name under which its failures are recorded; empty: the environment's name."""
