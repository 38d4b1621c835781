"""Warns about conversations that have waited suspiciously long for their environments."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

PATIENCE = 300.0
"""Seconds that a call may take before it is reported; ours. Code is stopped long before."""


class Stalls:
    """Reports the call that has been pending longest, once it takes more than `PATIENCE`.

    A user's own tool or environment may hang for ever, and the run with it. The call is reported again each
    time its waiting time has doubled.

    Args:
        warn: Takes a one-line warning.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._waiting: dict[int, tuple[float, str]] = {}
        """When each wait began and what it is for, oldest first."""
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._oldest = -1
        """The number of the oldest wait at the last check."""
        self._bound = PATIENCE
        """Seconds of waiting after which it is reported next."""

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Wait for something, described as it should appear in messages."""
        number = next(self._numbers)
        self._waiting[number] = (_now(), what)
        if self._timer is None:
            self._look_in(PATIENCE)
        try:
            yield
        finally:
            del self._waiting[number]
            if not self._waiting and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _look_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        now = _now()
        number, (began, what) = next(iter(self._waiting.items()))
        if number != self._oldest:
            self._oldest, self._bound = number, PATIENCE
        waited = now - began
        if waited >= self._bound:
            late = sum(now - one >= PATIENCE for one, _ in self._waiting.values())
            others = f" ({late - 1} more have waited for over {PATIENCE / 60:.0f})" if late > 1 else ""
            self._warn(f"no answer for {waited / 60:.0f} minutes from {what}{others}; still waiting")
            self._bound = 2 * waited
        self._look_in(min(PATIENCE, self._bound - waited))


def _now() -> float:
    return asyncio.get_running_loop().time()
