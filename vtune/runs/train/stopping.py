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
from vtune.update.ranks import Ranks
from vtune.update.recipe import Checkpoints


class Stopping:
    """Decides after each step, alike on all processes, and turns SIGTERM into a checkpoint and an end.

    A context manager around the steps: outside of it SIGTERM does what it did before.

    Args:
        recipe: When checkpoints are due.
        steps: Of the whole run.
        ranks: All of them decide together.
        done: Steps done before this run continued.
        clock: Seconds of a clock that never goes back.
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
        """Steps in the newest checkpoint."""
        self.requested = False
        """Whether this process was told to stop."""
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGTERM, self._tell)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def after(self, done: int, save: Callable[[], object], finish: Callable[[], object]) -> None:
        """Write a checkpoint if one is due after `done` steps.

        Args:
            done: Steps done.
            save: Writes it, maybe in the background.
            finish: Waits until it is there.

        Raises:
            SystemExit: 130, once it is written, if any process was told to stop.
        """
        late = self._recipe.minutes is not None and self._clock() - self._last >= 60 * self._recipe.minutes
        # The first process's clock counts for all; whoever was told to stop, was told for all.
        asked = self._ranks.gather((late, self.requested))
        requested = any(one for _, one in asked)
        if done % self._recipe.every == 0 or done == self._steps or asked[0][0] or requested:
            save()
            self.saved = done
            self._last = self._clock()
        if requested and done < self._steps:
            self.stop(done, save, finish)

    def stop(self, done: int, save: Callable[[], object], finish: Callable[[], object]) -> NoReturn:
        """Write a checkpoint, if there is none of `done` steps, and end the run; all processes together.

        Before the first step there is nothing to write.

        Raises:
            SystemExit: 130, once it is written.
        """
        if done > self.saved:
            save()
        finish()
        if self._ranks.first:
            written = "; its checkpoint is written" if done else ": there is nothing to save yet"
            say(f"stopped after step {done} of {self._steps}{written}")
        raise SystemExit(INTERRUPTED)

    def rescue(self, done: int, save: Callable[[], object], finish: Callable[[], object]) -> None:
        """Keep what is trained, before a failure that all processes know of ends the run.

        What hinders it is printed, and does not take the place of that failure.
        """
        try:
            if done > self.saved:
                save()
            finish()
        except RunFailed as error:
            say(str(error))

    def _tell(self, number: int, frame: FrameType | None) -> None:
        # What started this process, if anything did, says it. In a thread: a line may be half written here.
        if not self.requested and self._ranks.first and WITHIN not in os.environ:
            threading.Thread(target=say, args=[STOPS]).start()
        self.requested = True
