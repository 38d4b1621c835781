"""An event loop with a virtual clock: hours of waiting take no time."""

import asyncio
import selectors


class VirtualTime(asyncio.SelectorEventLoop):
    """A loop that advances its clock to the next timer when idle: only sleeps take (virtual) time, not
    computation or other tests."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds


class _Jumping(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTime) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0 if timeout is not None else None)
        if not found and timeout:
            self._loop.advance(timeout)
        return found
