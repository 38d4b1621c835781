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
    """What the policy has just said."""

    text: str
    stopped: bool
    """It ends with one of `Episode.stop`; if not, the policy ended it by itself."""
    last: bool
    """No turn is left: what comes back is recorded, but never shown."""
    pictures: Sequence[bytes]
    """Every picture of the conversation so far, encoded, as the policy was shown it; the sample's first."""


@dataclass(frozen=True, slots=True)
class Act:
    """Something that the policy did in a turn, and what came of it: a call of the trajectory's record."""

    seen: Observation
    """`text` is read by the policy as it stands; the status `infra` leaves the trajectory unscored."""
    tool: str = ""
    """Under which it is recorded; empty: the environment's own name."""
    arguments: str = "{}"
    """What was asked for, as a JSON object."""
    end: int | None = None
    """Index in the turn's text behind the last character of the act; None: the whole turn."""


class Episode(Protocol):
    """One trajectory's environment, and its state. A class that names it as its base gets the defaults.

    Raise `Mistake` for what the policy did wrong: it reads the message, and continues. Raise `ServiceError`
    for what is ours (a server that is down): the trajectory ends and is not scored. All else stops the run.
    """

    stop: tuple[str, ...] = ()
    """Texts that end a turn of the policy."""
    opening: Observation | None = None
    """What follows the sample's question, with one `<image>` for each picture; None: nothing."""
    sandbox: str = ""
    """Protection under which the policy's code ran (`Sandbox.tier`); empty where none did."""

    async def observe(self, turn: Turn) -> Sequence[Act] | None:
        """What comes of a turn; None ends the conversation.

        Several acts of one turn each stand in a `<tool_response>`.
        """
        ...

    async def outcome(self) -> Outcome | None:
        """The environment's own reward. Asked once, when the conversation has ended for whatever reason."""
        return None

    async def close(self) -> None:
        """Give back what was opened; called once, however the conversation ended."""
        return


class Eyes(Protocol):
    """How the policy sees pictures."""

    async def load(self, images: Sequence[bytes]) -> None:
        """Decode encoded pictures in threads; `read` and `shown_size` of them take no time afterwards.

        Raises:
            DataError: Where one cannot be decoded.
        """
        ...

    def read(self, data: bytes) -> object:
        """Decode an encoded picture; raises DataError where that cannot be done."""
        ...

    def shown_size(self, data: bytes) -> tuple[int, int]:
        """(width, height) in pixels in which it is seen."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What a run has for its episodes."""

    sandbox: Sandbox
    """Runs code."""
    tools: Toolbox
    """Open, as the recipe says."""
    results: Results
    """Of calls, shared by the rollouts of a group."""
    pictures: Eyes
    lost: Callable[[], None]
    """To be called each time the sandbox lost a session that was made again."""
    later: Callable[[Coroutine[Any, Any, None]], None]
    """Runs what nobody has to wait for, e.g. the end of a session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What an episode begins with."""

    sample: Sample
    images: tuple[bytes, ...]
    """The sample's encoded pictures."""
    seed: int
    """Of whatever the episode leaves to chance, in [0, 2^32); another one for each rollout."""
    group: int
    """Rollouts of one question share it."""
    services: Services


@dataclass(frozen=True, slots=True)
class Trial:
    """A short conversation that an environment is tried with."""

    sample: Sample
    """Its pictures have bytes. The tools that it offers are open, as they are when they are tried."""
    turns: tuple[str, ...]
    """What the policy says, up to the turn that ends it: two at least, so that one is answered."""
    once: bool = False
    """Every turn that is no mistake ends it, so that `turns` is one."""


@dataclass(frozen=True, slots=True)
class EnvironmentPart:
    """An environment as data and runs have it."""

    about: str
    """What it is, in a line."""
    open: Callable[[Start], Awaitable[Episode]]
    """Raises ServiceError where we failed, DataError where the sample is not one for it."""
    judges: bool = False
    """Its episodes give an outcome, which the verifier `environment_reward` takes for the accuracy."""
    check_sample: Callable[[Sample], None] | None = None
    """Raises DataError where a sample is not one for it: seen by imports, before a run, and before an
    episode opens. Its pictures need not be loaded. None: any sample is."""
    trial: Trial | None = None
    """What a user's own is checked by."""
    recorded_as: str = ""
    """The tool by which its failures are recorded; empty: its name."""
