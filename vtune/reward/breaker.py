"""When a failed server is tried again: a circuit breaker (Nygard, Release It!, ch. 5)."""

from dataclasses import dataclass

FAILURES = 3
"""In a row, after which a server is left alone for a while; ours."""

FIRST_PAUSE = 0.5
"""Seconds that it is left alone at first; each probe that fails doubles them."""

LONGEST_PAUSE = 15.0
"""Seconds; ours: a server that is started again is found within them."""


@dataclass(slots=True)
class Breaker:
    """Whether a server may be asked. Closed it may; open it may not; half open one request may try.

    All moments are seconds of one monotonic clock.
    """

    failures: int = 0
    """In a row."""
    why: str = ""
    """The latest failure."""
    _pause: float = 0.0
    _again: float = 0.0
    _probing: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it failed so often that only a probe may go there."""
        return self.failures >= FAILURES

    def allows(self, now: float) -> bool:
        """Whether a request may go there at this moment."""
        return not self.is_open or (now >= self._again and not self._probing)

    def opens_in(self, now: float) -> float:
        """Seconds until it may allow a request; a probe under way may take any time."""
        return max(self._again - now, 0.0)

    def began(self) -> None:
        """A request goes there: behind an open breaker it is the probe."""
        self._probing = self.is_open

    def succeeded(self) -> None:
        """It answered."""
        self.failures, self.why, self._pause, self._probing = 0, "", 0.0, False

    def failed(self, why: str, now: float) -> None:
        """It did not answer usably. Of many requests that fail at once, each counts."""
        probe, self._probing = self._probing, False
        if self.is_open and not probe:
            return  # asked before it opened: the pause runs already
        self.failures, self.why = self.failures + 1, why
        if self.is_open:
            self._pause = min(2 * self._pause, LONGEST_PAUSE) or FIRST_PAUSE
            self._again = now + self._pause

    def given_up(self) -> None:
        """A request was taken back before its answer; nothing is known."""
        self._probing = False
