"""Verdicts for a running loop: cheap verifiers inline, the others in separate processes."""

import asyncio
import pickle
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Self

from vtune.errors import DataError
from vtune.parts import OURS
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import VERIFIERS, verdict_on, verifier_of
from vtune.verifiers.judge import judged
from vtune.verifiers.verifier import Undecided, where
from vtune.verifiers.worker import Fast, Question, Worker, ready_to_fork
from vtune.verifiers.worker_pool import WorkerPool

AskJudge = Callable[[str, Sample], Awaitable[bool | Verdict | None]]
"""(answer, sample) -> whether a model finds that it means the same as the ground truth; None: it attempts
nothing; a verdict if the answer itself keeps the model from telling.

Raises ServiceError if the model gives no usable reply."""

AHEAD = 4
"""Limit on the replies given to a worker, including the one that it is verifying; ours: on a busy machine a
worker would otherwise idle until the loop that feeds it gets its turn."""

SLICE = 0.2
"""Seconds of CPU time before a reply is moved to the slow ones; ours: ten times what most
answers to maths questions take."""

STUCK = 5.0
"""Wall-clock seconds after which a process that cannot interrupt itself is given up; ours."""

SLOW_WAIT = 60.0
"""Limit on the seconds that a slow reply waits for a process; ours: half of what a run waits for a score."""


class Verifying:
    """Judges replies; an async context manager that owns its worker processes.

    Workers start when the first reply needs one. A reply that makes its worker die or hang costs only
    that worker: the next reply gets a new one. Slow replies do not delay others: a reply that looks slow, or
    has used up its slice, is verified (from the beginning) in one of an equal number of low-priority
    processes.
    """

    def __init__(self, *, workers: int = 2, timeout_s: float = 30.0) -> None:
        """Set up, without starting a process.

        Args:
            workers: Number of processes that verify concurrently; as many again for slow replies.
            timeout_s: Limit on CPU seconds per reply, including the start of a worker, and on
                wall-clock seconds at four times that; ours, well above math-verify's own limit: only a hang
                in C code or a starved machine reaches it, and leaves the reply unscored.
        """
        fast = Fast(SLICE, STUCK, self._pass_on)
        self._fast = WorkerPool(
            lambda leave: [Worker(timeout_s, leave, fast) for _ in range(workers)], ahead=AHEAD
        )
        self._slow = WorkerPool(lambda leave: [Worker(timeout_s, leave) for _ in range(workers)], ahead=1)
        self._ready: asyncio.Task[None] | None = None
        """Start of the fork server: it takes most of a second, and the event loop should not block on it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._fast.stop()
        self._slow.stop()

    def start(self) -> None:
        """Start all workers, and one for slow replies, so that the first replies need not wait for them.

        Must be called inside the running loop.
        """
        for worker in (*self._fast.workers, self._slow.workers[0]):
            worker.start()

    async def verify(self, reply: str, sample: Sample, *, judge: AskJudge | None = None) -> Verdict:
        """The verdict of the sample's own verifier.

        Args:
            reply: Everything that the policy wrote.
            sample: What was asked.
            judge: Asked if the verifier leaves the answer to a model; without one, it is unscored.

        Raises:
            DataError: If the sample names no verifier, or its ground truth cannot be read.
            ServiceError: If a worker died, timed out or could not be started, or the judge did not answer or
                does not exist: the reply is unscored.
        """
        try:
            return await self._by_rule(reply, sample)
        except Undecided as left:
            if judge is None or not verifier_of(sample).asks_judge:
                raise
            answer = left.answer
        found = await judge(answer, sample)
        return found if isinstance(found, Verdict) else judged(answer, sample, same=found)

    async def _by_rule(self, reply: str, sample: Sample) -> Verdict:
        """The verifier's own verdict, computed here or in a worker."""
        verifier = verifier_of(sample)
        if not verifier.in_worker:
            return verdict_on(reply, sample)
        try:
            packed = pickle.dumps((reply, _without_pictures(sample)), pickle.HIGHEST_PROTOCOL)
        except RecursionError:
            what = "`verifier_parm` has lists that are nested too deeply to be read"
            raise DataError(what, where=where(sample), fix="write plain values") from None
        if self._ready is None:
            self._ready = asyncio.create_task(asyncio.to_thread(ready_to_fork))
        with suppress(OSError):  # reported when a worker is asked
            await asyncio.shield(self._ready)
        question = Question(packed, sample.verifier, asyncio.get_running_loop().create_future())
        if verifier.looks_slow is not None and verifier.looks_slow(reply, sample):
            self._pass_on(question)
        else:
            self._fast.ask(question)
        return await question.verdict

    def _pass_on(self, question: Question) -> None:
        """Move a reply to the slow ones, but only once: two fast workers may have had it."""
        if question.slow or question.verdict.done():
            return
        question.slow = True
        asyncio.get_running_loop().call_later(SLOW_WAIT, self._slow.give_up, question)
        self._slow.ask(question)


def _without_pictures(sample: Sample) -> Sample:
    """The sample without what no verifier reads: copying pictures through the socket costs megabytes.

    A user's own verifier may read everything else in the row, as it does without `in_worker` and in a reward
    service.
    """
    if sample.verifier in OURS[VERIFIERS.kind]:
        question = (Message("user", sample.question),)
        return replace(sample, prompt=question, images=(), evidence=(), extra={})
    blank = tuple(Picture() for _ in sample.images)
    return replace(sample, prompt=(Message("user", IMAGE * len(blank) + sample.question),), images=blank)
