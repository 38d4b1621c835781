"""When a run writes a checkpoint: by steps, by the clock, at its end, and when it is told to stop."""

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

from vtune.errors import INTERRUPTED, WITHIN, RunFailed
from vtune.report.progress import STOPS, say
from vtune.signals import HANG_UP, orders_to_stop
from vtune.update.ranks import Ranks
from vtune.update.recipe import Checkpoints


class Stopping:
    """Decides after each step, identically on all processes; told to stop, it saves a checkpoint and exits.

    A context manager around the steps; outside it, SIGTERM and SIGHUP have their previous effect.

    Args:
        recipe: When checkpoints are due.
        steps: Number of steps in the whole run.
        ranks: This process and the others, which decide together.
        done: Number of steps done before this run resumed.
        clock: Seconds of a monotonic clock.
    """

    def __init__(
        self,
        recipe: Checkpoints,
        steps: int,
        ranks: Ranks,
        *,
        done: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recipe = recipe
        self._steps = steps
        self._ranks = ranks
        self._clock = clock
        self._last = clock()
        self.saved = done
        """Number of steps in the newest checkpoint."""
        self.requested = False
        """Whether this process was told to stop."""
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._tell) for number in orders_to_stop()}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def after(self, done: int, save: Callable[[], object], finish: Callable[[], object]) -> None:
        """Write a checkpoint if one is due after `done` steps.

        Args:
            done: Number of steps done.
            save: Writes it, possibly in the background.
            finish: Waits until it is complete.

        Raises:
            SystemExit: 130, once the checkpoint is written, if any process was told to stop.
        """
        late = self._recipe.minutes is not None and self._clock() - self._last >= 60 * self._recipe.minutes
        # The first process's clock decides for all; a request to stop counts if any process received it.
        asked = self._ranks.gather((late, self.requested))
        requested = any(one for _, one in asked)
        if done % self._recipe.every == 0 or done == self._steps or asked[0][0] or requested:
            save()
            self.saved = done
            self._last = self._clock()
        if requested and done < self._steps:
            self.stop(done, save, finish)

    def stop(self, done: int, save: Callable[[], object], finish: Callable[[], object]) -> NoReturn:
        """Write a checkpoint, if there is none after `done` steps, and end the run; all processes together.

        Before the first step there is nothing to write.

        Raises:
            SystemExit: 130, once the checkpoint is written.
        """
        if done > self.saved:
            save()
        finish()
        if self._ranks.first:
            written = "; its checkpoint is written" if done else ": there is nothing to save yet"
            say(f"stopped after step {done} of {self._steps}{written}")
        raise SystemExit(INTERRUPTED)

    def fail(
        self, failure: RunFailed, done: int, save: Callable[[], object], finish: Callable[[], object]
    ) -> NoReturn:
        """Save what is trained, and end the run because of a failure known to all processes; all call this.

        Whoever stops a job may signal every process of it, its engines and services included. After such a
        signal, what fails is printed, and the run ends as it was told to.

        Raises:
            RunFailed: The failure. If saving fails as well, that is printed and does not replace it.
            SystemExit: 130, once the checkpoint is written, if any process was told to stop.
        """
        if any(self._ranks.gather(self.requested)):
            if self._ranks.first:
                say(f"failed after the order to stop: {failure}")
            self.stop(done, save, finish)
        try:
            if done > self.saved:
                save()
            finish()
        except RunFailed as error:
            say(str(error))
        raise failure

    def _tell(self, number: int, frame: FrameType | None) -> None:
        HANG_UP.note(number)
        # A parent process, if any, prints it instead. In a thread, because a line may be half written at this
        # point.
        if not self.requested and self._ranks.first and WITHIN not in os.environ:
            threading.Thread(target=say, args=[STOPS]).start()
        self.requested = True
