"""Generates the rollouts of one step after another, each with the weights that it should use."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Generic, TypeVar

import torch

from vtune.errors import RunFailed
from vtune.rollout.engine import Engine, Weights
from vtune.uses import run_failure

D = TypeVar("D")


class RolloutScheduler(Generic[D]):
    """Transfers weights and generates rollouts.

    Strictly on-policy (staleness 0), a step is generated with the weights that it trains. With staleness N
    the N steps after it are generated while it trains, with its weights or newer ones, never older: each
    starts when the weights of N steps before it have been transferred. New weights are transferred once
    everything ahead has been generated, so one version generates all of a step (N is 1 then). With
    `interrupt` they are transferred at once: turns in progress continue with them, and each token has its own
    version.

    Args:
        draw: Step -> its rollouts; with `interrupt`, called for a step while others are drawn.
        engine: What draws.
        weights: The policy's weights as they are.
        wait: A barrier over all processes.
        staleness: N.
        interrupt: Whether new weights come under what is being drawn.
        steps: Of the whole run; nothing is drawn beyond.
    """

    def __init__(
        self,
        draw: Callable[[int], Awaitable[D]],
        engine: Engine,
        weights: Weights,
        wait: Callable[[], None],
        *,
        staleness: int,
        steps: int,
        interrupt: bool = False,
    ) -> None:
        self._draw = draw
        self._engine = engine
        self._weights = weights
        self._wait = wait
        self._staleness = staleness
        self._interrupt = interrupt
        self._steps = steps
        self._ahead: dict[int, asyncio.Task[D]] = {}
        """What has been started, by step."""
        self._ready: int | None = None

    async def ready(self, step: int) -> None:
        """Transfer the weights after `step` steps of training; until `of` is called, nothing new is
        generated.

        Raises:
            RunFailed: If nothing is left that could take them, or draw what was drawn ahead.
        """
        self._ready = step
        try:
            if not self._interrupt:
                await self.settled()
        finally:
            # Also where this process failed: the others hand over, and wait for it.
            await self._hand_over(step)

    async def settled(self) -> None:
        """Wait until everything started is generated; nothing more is until `of` is called.

        Raises:
            RunFailed: If nothing is left that could draw it.
        """
        if self._ahead:
            await asyncio.wait(self._ahead.values())
        for drawn in self._ahead.values():
            drawn.result()

    async def of(self, step: int) -> D:
        """The rollouts of a step, after `step` steps of training; calls `ready` if that is still to do.

        Raises:
            RunFailed: If nothing is left that could draw them.
        """
        if self._ready != step:
            await self.ready(step)
        if self._staleness == 0:
            return await self._alone(step)
        # Where weights wait for what is ahead, that is not begun before what they are waited for is drawn.
        self._begin(step, ahead=self._staleness if self._interrupt else 0)
        drawn = await self._ahead.pop(step)
        self._begin(step + 1, ahead=self._staleness - 1)
        return drawn

    async def rest(self) -> None:
        """The engine is no longer needed."""
        await self._engine.rest()

    async def aclose(self) -> None:
        """Abandon what is being generated ahead."""
        for drawing in self._ahead.values():
            drawing.cancel()
        await asyncio.gather(*self._ahead.values(), return_exceptions=True)

    async def _alone(self, step: int) -> D:
        """Draw a step, and let the engine rest then."""
        try:
            drawn = await self._draw(step)
        except Exception as error:
            if run_failure(error) is None:
                raise
            # Others that share the engine rest together with this process, and wait for it. Why the
            # engine cannot rest either is no news after what it has failed with.
            with contextlib.suppress(RunFailed):
                await self._engine.rest()
            raise
        await self._engine.rest()
        return drawn

    def _begin(self, first: int, *, ahead: int) -> None:
        """Begin to draw a step and so many after it, the oldest first, those of them that are not."""
        for step in range(first, min(first + ahead, self._steps - 1) + 1):
            if step not in self._ahead:
                self._ahead[step] = asyncio.create_task(_result(self._draw(step)))

    async def _hand_over(self, version: int) -> None:
        # None trains meanwhile. Nobody draws either, or with `interrupt` what is drawn waits in the engine.
        self._wait()
        weights = _OnePass(self._weights)
        try:
            await self._engine.take(weights, version)
        except RunFailed:
            weights.finish()
            raise
        finally:
            self._wait()


class _OnePass:
    """The one pass over the weights that a transfer takes."""

    def __init__(self, weights: Weights) -> None:
        self._left = weights()
        self._begun = False

    def __call__(self) -> Iterator[tuple[str, torch.Tensor]]:
        if self._begun:
            raise RuntimeError("a hand-over takes one pass: the other processes gather in step with it")
        self._begun = True
        return self._left

    def finish(self) -> None:
        """Go through what is left: where weights are split, the other processes wait for this one's part."""
        for _ in self._left:
            pass


async def _result(drawing: Awaitable[D]) -> D:
    return await drawing
