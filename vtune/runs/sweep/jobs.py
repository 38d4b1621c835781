"""Schedules the runs of a sweep, as many at a time as requested; each run's commands go in order."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from vtune.errors import INTERRUPTED
from vtune.report.progress import say
from vtune.runs.processes.child import Child, last_words, noted_signals
from vtune.runs.processes.watcher import LOOK
from vtune.runs.sweep.preparing import Command
from vtune.runs.sweep.table import Run


class Started(Protocol):
    """A started command: a `Child`, or a test's replacement."""

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""

    def send(self, number: int) -> None:
        """Send it a signal."""


StartChild = Callable[..., Started]
"""`Child`, or a test's replacement."""

Failed = dict[str, str]
"""A failed command: `name`, `how` and `said`."""


@dataclass(slots=True)
class Job:
    """One run: its remaining commands and its state."""

    run: Run
    title: str
    """Its name on the terminal."""
    commands: Iterator[Command]
    """Consumed one by one: what is left to do is only determined when its turn comes."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its commands."""
    failed: list[Failed] = field(default_factory=list)
    command: Command | None = None
    child: Started | None = None

    @property
    def prepares(self) -> bool:
        """Whether it is making something that other runs of its seed wait for."""
        return self.command is not None and self.command.shared


class Jobs:
    """All runs of a sweep, and what they share.

    Args:
        jobs: In starting order. Jobs of a seed that is being prepared wait, and later ones go first.
        places: Environments of the jobs that may run at the same time, at least one.
        start: (words, log=…, result=…, environment=…, title=…) -> the started command.
        ended: Called with each run that has ended.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        places: Sequence[Mapping[str, str]],
        *,
        start: StartChild = Child,
        ended: Callable[[Run], object] = lambda run: None,
    ) -> None:
        self._all = jobs
        self._waiting = list(jobs)
        self._active: list[Job] = []
        self._free = list(places)
        self._prefixed = len(places) > 1
        self._start = start
        self._ended = ended
        self._in_vain: set[Path | None] = set()
        """Results of failed commands, which are not tried again."""

    def run(self) -> list[Failed]:
        """Run all jobs to their end and return what failed. A failing job does not affect the others.

        Raises:
            SystemExit: 130 if it was interrupted, once everything that had started has ended.
        """
        with noted_signals() as noted:
            passed = 0
            try:
                while self._active or (self._waiting and not noted):
                    if not noted:
                        self._begin()
                    for number in noted[passed:]:
                        self._send(number)
                        passed += 1
                    self._look(noted)
            except BaseException:
                self._stop()
                raise
        if noted:
            raise SystemExit(INTERRUPTED)
        return [one for job in self._all for one in job.failed]

    def _begin(self) -> None:
        while self._free and (job := self._next()) is not None:
            self._waiting.remove(job)
            self._active.append(job)
            job.environment = self._free.pop(0)
            self._go_on(job)

    def _next(self) -> Job | None:
        prepared = {job.run.seed for job in self._active if job.prepares}
        return next((job for job in self._waiting if job.run.seed not in prepared), None)

    def _stop(self) -> None:
        """End running jobs, each with a checkpoint, and wait: they would be killed with this process."""
        self._send(signal.SIGTERM)
        while any(job.child is not None and job.child.poll() is None for job in self._active):
            time.sleep(LOOK)

    def _send(self, number: int) -> None:
        for job in self._active:
            if job.child is not None:
                job.child.send(number)

    def _look(self, noted: list[int]) -> None:
        """Check which commands have ended; if none has, wait a little."""
        idle = True
        for job in [*self._active]:
            assert job.child is not None
            code = job.child.poll()
            if code is None:
                continue
            idle = False
            if code == INTERRUPTED and not noted:
                noted.append(signal.SIGTERM)  # so that the others save their progress
            if noted:
                self._end(job)
            elif self._may_go_on(job, code):
                self._go_on(job)
            else:
                self._end(job)
        if idle:
            time.sleep(LOOK)

    def _may_go_on(self, job: Job, code: int) -> bool:
        """Record a failure; a run ends if a needed command failed."""
        command = job.command
        assert command is not None
        if code == 0:
            return True
        job.failed.append(
            {"name": f"{job.run.name}: {command.name}", "how": _how(code), "said": last_words(command.log)}
        )
        say(f"{job.title}: {command.name} {_how(code)}")
        if command.needed:
            self._in_vain.add(command.result)
        return not command.needed

    def _go_on(self, job: Job) -> None:
        """Start the next command of a run, or end it."""
        job.command, job.child = next(job.commands, None), None
        command = job.command
        if command is None or (command.needed and command.result in self._in_vain):
            self._end(job)
            return
        say(f"{job.title}: {command.name}")
        job.child = self._start(
            command.words,
            log=command.log,
            result=command.result,
            environment=job.environment,
            title=job.run.name if self._prefixed else "",
        )

    def _end(self, job: Job) -> None:
        job.command = job.child = None
        self._active.remove(job)
        self._free.append(job.environment)
        self._ended(job.run)


def _how(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
