"""The rollouts of one step after the other, each with the weights that it should be drawn with."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Generic, TypeVar

import torch

from vtune.errors import RunFailed
from vtune.rollout.engine import Engine, Weights

D = TypeVar("D")


class RolloutScheduler(Generic[D]):
    """Hands weights over and draws.

    Strictly on-policy (staleness 0), a step is drawn with the weights that it trains. With staleness 1 it is
    drawn while the step before it trains, with that step's weights: never older ones, for weights are handed
    over when all of a step is drawn, and the next step begins after that.

    Args:
        draw: Step -> its rollouts.
        engine: What draws.
        weights: The policy's weights as they are.
        wait: A barrier over all processes.
        staleness: 0 or 1.
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
    ) -> None:
        self._draw = draw
        self._engine = engine
        self._weights = weights
        self._wait = wait
        self._staleness = staleness
        self._steps = steps
        self._ahead: asyncio.Task[D] | None = None
        self._drawn: list[D] = []
        """What was drawn ahead for the step that is ready."""
        self._ready: int | None = None

    async def ready(self, step: int) -> None:
        """Hand the weights over after `step` steps of training; until `of` is asked, nothing is drawn.

        Raises:
            RunFailed: If nothing is left that could take them, or draw what was drawn ahead.
        """
        self._ready = step
        if self._ahead is None:
            await self._hand_over(step)
            return
        ahead, self._ahead = self._ahead, None
        try:
            self._drawn = [await ahead]
        finally:
            # Also where this process failed: the others hand over, and wait for it.
            await self._hand_over(step)

    async def of(self, step: int) -> D:
        """The rollouts of a step, after `step` steps of training; makes it ready if it is not.

        Raises:
            RunFailed: If nothing is left that could draw them.
        """
        if self._ready != step:
            await self.ready(step)
        try:
            drawn = self._drawn.pop() if self._drawn else await self._draw(step)
        except RunFailed:
            if self._staleness == 0:
                # Others that share the engine rest together with this process, and wait for it. Why the
                # engine cannot rest either is no news after what it has failed with.
                with contextlib.suppress(RunFailed):
                    await self._engine.rest()
            raise
        if self._staleness == 0:
            await self._engine.rest()
        elif step + 1 < self._steps:
            self._ahead = asyncio.create_task(_result(self._draw(step + 1)))
        return drawn

    async def rest(self) -> None:
        """The engine is not needed any more."""
        await self._engine.rest()

    async def aclose(self) -> None:
        """Give up what is drawn ahead."""
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.gather(self._ahead, return_exceptions=True)

    async def _hand_over(self, version: int) -> None:
        # Nobody draws meanwhile, in any process: one version draws all of a step.
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
    """The one pass over the weights that a hand-over takes."""

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
