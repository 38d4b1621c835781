"""Pieces of work that take time on a fake clock, counted by turns of the event loop."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from vtune.sandbox.turns import AT_A_TIME

PIECE = AT_A_TIME / 2.5
"""Seconds that one piece of work takes: three begin in each turn of the loop."""


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def turns_of_pieces(work: Callable[[Callable[[], None]], Awaitable[object]], clock: Clock) -> Counter[int]:
    """How many pieces of `work` begin in each turn of the event loop; it calls its argument for each one."""
    pieces: Counter[int] = Counter()
    turn = 0

    def piece() -> None:
        pieces[turn] += 1
        clock.now += PIECE

    async def count() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    async def run() -> None:
        counting = asyncio.create_task(count())
        await work(piece)
        counting.cancel()

    asyncio.run(run())
    return pieces
