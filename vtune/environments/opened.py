"""Opens a sample's environment, holds a user's own to its promises, and names the line of a breach."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

from vtune.environments import ENVIRONMENTS, environment_of, name_of
from vtune.environments.environment import Act, Episode, Start, Turn
from vtune.errors import DataError, VtuneError
from vtune.parts import OURS
from vtune.schema.trajectory import Outcome
from vtune.tools.calls import responses
from vtune.tools.observation import Observation, tidy, unfit
from vtune.tools.tool import Mistake, refused
from vtune.uses import awaited, broken, defined, ill_made, uncancelled

PARTS = ("observe", "outcome", "close", "stop", "opening", "sandbox")
"""Members of an episode, inherited or not."""
ACTS_ARE = "return `[Act(shown(text, pictures))]`, an Act for each thing that the turn did; None at the end"
OUTCOME_IS = "return `Outcome(reward, why)`, or None where a verifier judges the answer"


@asynccontextmanager
async def opened(start: Start) -> AsyncIterator[Episode]:
    """A sample's episode, which is closed on exit.

    Raises:
        DataError: If the sample names an environment that does not exist, or is not suitable for it.
        ServiceError: If the failure is ours: the trajectory is not scored.
        RunFailed: If a user's own environment is broken, with its file and line.
    """
    part = environment_of(start.sample)
    name = name_of(start.sample)
    if name in OURS[ENVIRONMENTS.kind]:
        episode: Episode = Answering(await part.open(start))
    else:
        episode = await _opened(name, start)
    try:
        yield episode
    finally:
        await episode.close()


async def _opened(name: str, start: Start) -> Episode:
    with _named(name, rows=True):
        part = ENVIRONMENTS[name]
        if part.check_sample is not None:
            part.check_sample(start.sample)
        episode = await awaited((ENVIRONMENTS.kind, name), part.open, start)
        if lacks := [one for one in PARTS if not hasattr(episode, one)]:
            raise TypeError(
                f"`open` returns {type(episode).__name__}, without `{lacks[0]}`: return an Episode"
            )
        try:
            checked = Checked(name, start, episode)
            await checked.check_opening()
        except BaseException:
            await episode.close()
            raise
        return checked


class Answering(Episode):
    """One of our own episodes, whose `Mistake`s are shown to the policy.

    Args:
        episode: As opened by the environment.
    """

    def __init__(self, episode: Episode) -> None:
        self._episode = episode
        self.stop, self.opening, self.sandbox = episode.stop, episode.opening, episode.sandbox

    async def observe(self, turn: Turn) -> Sequence[Act] | None:
        """The environment's answer; the policy reads the message of a `Mistake`."""
        try:
            return await self._episode.observe(turn)
        except Mistake as mistake:
            return [Act(refused(str(mistake)))]

    async def outcome(self) -> Outcome | None:
        """The environment's outcome."""
        return await self._episode.outcome()

    async def close(self) -> None:
        """Close the environment's episode."""
        await self._episode.close()


class Checked(Episode):
    """A user's own episode: its results are checked, and its exceptions are reported with their line.

    Args:
        name: Name of the environment.
        start: What the episode starts with.
        episode: As opened by the user's file.
    """

    def __init__(self, name: str, start: Start, episode: Episode) -> None:
        self._name = name
        self._part = (ENVIRONMENTS.kind, name)
        self._start = start
        self._episode = episode
        self.stop = _stops(episode.stop)
        self.sandbox = episode.sandbox
        self.opening = episode.opening

    async def check_opening(self) -> None:
        """Check that its opening can be shown."""
        if self.opening is not None:
            self.opening = await self._checked(self.opening, self._start.images)

    async def observe(self, turn: Turn) -> Sequence[Act] | None:
        """The answer of the user's own episode; the policy reads the message of a `Mistake`."""
        with _named(self._name):
            try:
                acts = await awaited(self._part, self._episode.observe, turn)
            except Mistake as mistake:
                return [Act(refused(str(mistake)))]
            if acts is None:
                return None
            acts = self._acts(acts)
            if not acts and not turn.last:
                raise ValueError("`observe` returns no act: return one, or None to end the conversation")
            for number, act in enumerate(acts):
                acts[number] = replace(act, seen=await self._checked(act.seen, turn.pictures))
                if not isinstance(act.tool, str):
                    raise TypeError(f"`tool` of an act is {act.tool!r:.60}: give a text")
                if not isinstance(json.loads(act.arguments), dict):
                    raise TypeError(f"`arguments` is not a JSON object: {act.arguments!r:.60}")
            _check_ends(acts, len(turn.text))
            text = "\n".join(act.seen.text for act in acts)
            if responses(text) != max(len(acts), 1):
                raise ValueError(
                    f"{len(acts)} acts with {responses(text)} responses: frame each as `tool_response` does"
                )
            return acts

    def _acts(self, found: object) -> list[Act]:
        """The result of `observe`, which must be acts."""
        acts: list[object] = list(found) if isinstance(found, Iterable) else [found]
        others = [type(act).__name__ for act in acts if not isinstance(act, Act)]
        if not isinstance(found, Iterable) or isinstance(found, str) or others:
            one = type(found).__name__
            gives = f"a {one} with {others[0]}" if isinstance(found, list | tuple) else one
            what = f"`observe` returns {gives}, not a list of Act"
            raise ill_made(self._part, what, ACTS_ARE, defined(self._episode.observe))
        return [act for act in acts if isinstance(act, Act)]

    async def outcome(self) -> Outcome | None:
        """The outcome of the user's own episode, which is required if the environment judges."""
        with _named(self._name):
            found = await awaited(self._part, self._episode.outcome)
            if found is None and ENVIRONMENTS[self._name].judges:
                raise ValueError("it judges, but `outcome` returns None")
            if found is not None and not isinstance(found, Outcome):
                what = f"`outcome` returns {type(found).__name__}, not an Outcome"
                raise ill_made(self._part, what, OUTCOME_IS, defined(self._episode.outcome))
            return found

    async def close(self) -> None:
        """Close the user's own episode."""
        with _named(self._name):
            await awaited(self._part, self._episode.close)

    async def _checked(self, seen: Observation, known: Sequence[bytes]) -> Observation:
        """An observation that a conversation with these pictures, and its record, can include."""
        if not isinstance(seen, Observation):
            raise TypeError(f"it returns {type(seen).__name__}, not Observation")
        if wrong := unfit(seen, known):
            raise ValueError(wrong)
        try:
            await self._start.services.pictures.load(seen.images)
        except DataError as error:
            raise ValueError(error.what) from None
        return tidy(seen)


def _stops(given: object) -> tuple[str, ...]:
    """The stop texts; a single string would be taken as a sequence of characters."""
    if not isinstance(given, tuple | list) or not all(isinstance(text, str) and text for text in given):
        raise TypeError(f"`stop` is {given!r:.60}: give a tuple of texts, none of them empty")
    return tuple(given)


def _check_ends(acts: Sequence[Act], length: int) -> None:
    """Check that the acts of a turn of this length are in its order: credit is given to their tokens."""
    before = 0
    for act in acts:
        end = length if act.end is None else act.end
        if type(end) is not int or not before <= end <= length:
            what = f"`end` of an act is {act.end!r:.60}, in a turn of {length} characters"
            after = f", after {before}" if before else ""
            raise ValueError(f"{what}{after}: give an index in its text, in the order of the acts, or None")
        before = end


@contextmanager
def _named(name: str, *, rows: bool = False) -> Iterator[None]:
    """Blame errors in a user's environment on it; with `rows`, a DataError is about the row."""
    try:
        yield
    except asyncio.CancelledError as error:
        if (wrong := uncancelled(error)) is None:
            raise
        raise broken(wrong, (ENVIRONMENTS.kind, name)) or wrong from error
    except (Exception, SystemExit) as error:  # an exit would end the event loop, not the run
        if isinstance(error, VtuneError) and (rows or not isinstance(error, DataError)):
            raise
        raise broken(error, (ENVIRONMENTS.kind, name)) or error from error
