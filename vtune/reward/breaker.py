"""When a failed server is tried again: a circuit breaker (Nygard, Release It!, ch. 5)."""

from dataclasses import dataclass

FAILURES = 3
"""Consecutive failures after which a server gets a pause; ours."""

FIRST_PAUSE = 0.5
"""Seconds of the first pause; each failed probe doubles it."""

LONGEST_PAUSE = 15.0
"""Upper bound on a pause, in seconds; ours: a restarted server is noticed within this time."""


@dataclass(slots=True)
class Breaker:
    """Whether a server may be asked: yes if closed, no if open; if half open, a single request may probe it.

    All times are seconds of one monotonic clock.
    """

    failures: int = 0
    """Consecutive failures."""
    why: str = ""
    """The latest failure."""
    _pause: float = 0.0
    _again: float = 0.0
    _probing: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it has failed so often that only a probe is allowed."""
        return self.failures >= FAILURES

    def allows(self, now: float) -> bool:
        """Whether a request is allowed at this time."""
        return not self.is_open or (now >= self._again and not self._probing)

    def opens_in(self, now: float) -> float:
        """Seconds until a request may be allowed; a probe in progress may take any time."""
        return max(self._again - now, 0.0)

    def began(self) -> None:
        """A request starts; if the breaker is open, it is the probe."""
        self._probing = self.is_open

    def succeeded(self) -> None:
        """The server answered."""
        self.failures, self.why, self._pause, self._probing = 0, "", 0.0, False

    def failed(self, why: str, now: float) -> None:
        """The server gave no usable answer. If several concurrent requests fail, each one counts."""
        probe, self._probing = self._probing, False
        if self.is_open and not probe:
            return  # sent before the breaker opened: the pause is already running
        self.failures, self.why = self.failures + 1, why
        if self.is_open:
            self._pause = min(2 * self._pause, LONGEST_PAUSE) or FIRST_PAUSE
            self._again = now + self._pause

    def given_up(self) -> None:
        """A request was cancelled before its answer; this says nothing about the server."""
        self._probing = False
