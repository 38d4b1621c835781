"""What an environment promises, tested on the short conversation that it provides."""

import asyncio
import copy
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vtune.environments import ENVIRONMENTS
from vtune.environments.environment import Act, Episode, Services, Start, Trial, Turn
from vtune.environments.opened import opened
from vtune.errors import SandboxUnavailable
from vtune.runs.parts.checks.check import Broken, Check, in_time, tried
from vtune.runs.parts.checks.looks import check_shown, counted, shown_crops
from vtune.runs.parts.checks.tool import SLOW, SLOWEST_TOOL, open_tool
from vtune.runs.parts.checks.verifier import ODD
from vtune.sandbox import Sandbox
from vtune.schema.pixels import decode_picture, size_of
from vtune.schema.trajectory import Outcome
from vtune.tools import TOOLS
from vtune.tools.result_cache import ResultCache
from vtune.tools.toolbox import Toolbox

TURNS = "correct the turns of `trial`"
SEED = 1
"""Seed of the test episodes: the same for all, so they must come out alike."""


def check_environment(name: str) -> list[Check]:
    """It opens, answers, ends and closes; two episodes at once match one alone; its reward is in [0, 1]."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        found: list[_Played] = []

        def open_all() -> str:
            found.append(runner.run(_opened(name, stack)))
            return "open"

        try:
            first = tried("the tools of the trial open", open_all)
            if not found:
                return [first]
            (trial,) = found

            def run(check: Callable[[], Coroutine[Any, Any, str]]) -> Callable[[], str]:
                return lambda: runner.run(check())

            return [
                tried("an episode opens and answers a turn", run(trial.answers)),
                tried("the turns of the trial end the episode", run(trial.ends)),
                tried("odd turns are the model's mistake", run(trial.odd)),
                tried("pictures show the stated regions", run(trial.shows)),
                tried("a last turn is also observed", run(trial.lasts)),
                tried("two trajectories share no state", run(trial.apart)),
                tried("the sample is not changed", run(trial.unchanged)),
                tried("a reward lies in [0, 1]", run(trial.pays)),
                tried("an episode closes before a turn, too", run(trial.closes)),
                tried("fast enough", trial.fast),
            ]
        finally:
            runner.run(stack.aclose())


async def _opened(name: str, stack: AsyncExitStack) -> "_Played":
    """Its trial, with a sandbox and the tools that its sample offers, kept open as long as `stack` is."""
    try:
        sandbox = await stack.enter_async_context(Sandbox(warm=1))
    except SandboxUnavailable:  # only environments that run code need one, and get the error then
        sandbox = await stack.enter_async_context(Sandbox(warm=1, at_once=False))
    trial, tools = ENVIRONMENTS[name].trial, {}
    for tool in trial.sample.tools if trial is not None else ():
        if TOOLS[TOOLS.known(tool)].opened is not None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            tools[tool] = await stack.enter_async_context(open_tool(tool, folder))
    return _Played(name, sandbox, Toolbox(tools))


class _Eyes:
    """Decodes pictures and leaves them as they are."""

    async def load(self, images: Sequence[bytes]) -> None:
        for data in images:
            decode_picture(data)

    def read(self, data: bytes) -> object:
        return decode_picture(data)

    def shown_size(self, data: bytes) -> tuple[int, int]:
        return size_of(data)


@dataclass(frozen=True, slots=True)
class _Walk:
    """What happened in a trial."""

    opening: tuple[str, tuple[bytes, ...]]
    said: tuple[tuple[Act, ...] | None, ...]
    outcome: Outcome | None


class _Played:
    """The trial of an environment.

    Args:
        name: Name of the environment.
        sandbox: Runs code, if the environment runs any.
        tools: The tools that the sample offers.
    """

    def __init__(self, name: str, sandbox: Sandbox, tools: Toolbox) -> None:
        self._name = name
        self._part = ENVIRONMENTS[name]
        self._sandbox = sandbox
        self._tools = tools
        self._first: _Walk | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        self.slowest = 0.0
        """Seconds of the longest turn."""

    async def answers(self) -> str:
        found = (await self._alone()).said[0]
        if found is None:
            return "the first turn of the trial ends the conversation"
        pictures = [size_of(data) for act in found for data in act.seen.images]
        shown = ", ".join(f"{width}x{height}" for width, height in pictures)
        length = sum(len(act.seen.text) for act in found)
        return f"{length} characters" + (f", pictures {shown}" if shown else "")

    async def ends(self) -> str:
        turns, once = self._trial.turns, self._trial.once
        if len(turns) == 1 and not once:
            raise Broken(
                "the trial has one turn, which ends it: no turn with an answer is tested",
                "give the trial a turn that is answered before the last, or say `once=True` if every "
                "turn without a mistake ends it",
            )
        if len(turns) > 1 and once:
            raise Broken(f"the trial says `once`, but has {len(turns)} turns", "leave `once` out")
        *before, last = said = (await self._alone()).said
        if len(said) < len(self._trial.turns):
            raise Broken(
                f"turn {len(said)} of the trial ends the conversation, before the last",
                f"let `observe` return None only at the end; or {TURNS}",
            )
        if last is not None:
            raise Broken(
                "the last turn of the trial does not end the conversation",
                f"let `observe` return None at the end; or {TURNS}",
            )
        failed = [act.seen for acts in before for act in acts or () if act.seen.status != "ok"]
        if failed:
            raise Broken(f"a turn of the trial ends as {failed[0].status}: {failed[0].error}", TURNS)
        return f"after {len(self._trial.turns)} turn(s)"

    async def odd(self) -> str:
        for text in ODD:
            (acts,) = (await self._walk([text])).said
            answered = [act for act in acts or () if act.seen.status == "ok"]
            if self._trial.once and answered:
                raise Broken(
                    f"the trial says `once`, but {text!r:.40} is answered: {answered[0].seen.text!r:.60}",
                    "leave `once` out, and give the trial a turn that is answered before the last",
                )
        # A policy also makes mistakes in the middle of a conversation.
        await self._walk([one for turn in self._trial.turns for one in (turn, *ODD)])
        return f"{len(ODD)} turns of nonsense, also between those of the trial"

    async def shows(self) -> str:
        """Whether pictures show the regions that acts say they show; most acts name none."""
        walk, looks, unpaid = await self._alone(), 0, ""
        pictures = [picture.data or b"" for picture in self._trial.sample.images] + list(walk.opening[1])
        for acts in walk.said:
            known = list(pictures)
            for act in acts or ():
                unpaid = unpaid or check_shown(known, act.seen)
                looks += len(shown_crops(act.seen))
                pictures += act.seen.images
        return counted(looks, unpaid)

    async def lasts(self) -> str:
        """If no turn is left, what comes back is recorded, but the policy never sees it."""
        said = (await self._walk(self._trial.turns[:1], last=True)).said[0]
        return "the turn ends the conversation" if said is None else f"{len(said)} act(s)"

    async def unchanged(self) -> str:
        """The rollouts of a group share the sample, and the reward reads it."""
        start, fresh = self._start(), copy.deepcopy(self._trial.sample)
        async with opened(start) as episode:
            await self._played(episode, self._trial.turns)
        if start.sample != replace(fresh, environment=self._name):
            raise Broken("the environment changed the sample", "keep state in the episode")
        return "after the trial"

    async def apart(self) -> str:
        turns = self._trial.turns
        alone = await self._alone()
        both = await asyncio.gather(self._walk(turns), self._walk(turns))
        async with opened(self._start()) as waiting:
            await self._walk(turns)
            late = await self._played(waiting, turns)
        if any(one != alone for one in (*both, late)):
            raise Broken("a trajectory changes while a second one is under way", "keep state in the episode")
        return "two at once give the same as one alone"

    async def pays(self) -> str:
        begun, ended = await self._walk(()), await self._alone()
        if begun.outcome is None or ended.outcome is None:
            return "no reward: the sample's verifier judges"
        return f"{begun.outcome.score:g} before the first turn, {ended.outcome.score:g} at the end"

    async def closes(self) -> str:
        for turns in ((), self._trial.turns):
            await self._walk(turns)
        await asyncio.gather(*self._under_way)
        return "both times"

    async def _alone(self) -> _Walk:
        """The trial as it went when the environment had not been opened before."""
        if self._first is None:
            self._first = await self._walk(self._trial.turns)
        return self._first

    @property
    def _trial(self) -> Trial:
        trial = self._part.trial
        if trial is None or not trial.turns:
            raise Broken(
                "the environment has no trial",
                "give EnvironmentPart a `trial`: a sample, and turns that bring the conversation to an end",
            )
        return trial

    def _start(self) -> Start:
        sample = copy.deepcopy(replace(self._trial.sample, environment=self._name))
        services = Services(
            sandbox=self._sandbox,
            tools=self._tools,
            results=ResultCache(),
            pictures=_Eyes(),
            lost=lambda: None,
            later=self._later,
        )
        images = tuple(picture.data or b"" for picture in sample.images)
        return Start(sample=sample, images=images, seed=SEED, group=0, services=services)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        self._under_way.add(asyncio.create_task(work))

    async def _walk(self, turns: Sequence[str], *, last: bool = False) -> _Walk:
        async with opened(self._start()) as episode:
            return await self._played(episode, turns, last=last)

    def fast(self) -> str:
        if not self.slowest:
            raise Broken("no turn was observed", "correct what is broken above")
        return in_time(self.slowest, SLOWEST_TOOL, "a turn", SLOW)

    async def _played(self, episode: Episode, turns: Sequence[str], *, last: bool = False) -> _Walk:
        opening = episode.opening
        pictures = [picture.data or b"" for picture in self._trial.sample.images]
        pictures += opening.images if opening is not None else ()
        said = []
        for text in turns:
            began = time.perf_counter()
            acts = await episode.observe(
                Turn(text=text, stopped=text.endswith(episode.stop), last=last, pictures=tuple(pictures))
            )
            self.slowest = max(self.slowest, time.perf_counter() - began)
            pictures += [data for act in acts or () for data in act.seen.images]
            said.append(None if acts is None else tuple(map(_timeless, acts)))
            if acts is None:
                break
        return _Walk(
            ("", ()) if opening is None else (opening.text, opening.images),
            tuple(said),
            await episode.outcome(),
        )


def _timeless(act: Act) -> Act:
    """An act without the parts that depend on the machine's speed."""
    return replace(act, seen=replace(act.seen, seconds=0.0))
