"""Verdicts for a running loop: cheap verifiers inline, the others in processes of their own."""

import asyncio
import logging
import resource
import signal
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Self

from vtune.errors import ServiceError, VtuneError
from vtune.schema.message import Message
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import verifier_of
from vtune.verifiers.judge import decide, judged

AskJudge = Callable[[str, Sample], Awaitable[bool]]
"""(answer, sample) -> whether a model finds it to mean the same as the ground truth.

Raises ServiceError where the model gives no usable reply."""

MEMORY_BYTES = 4 * 2**30
"""Data that a worker may hold, ours: an answer such as 9^(9^9) costs a worker, never the machine."""


class Verifying:
    """Judges replies; an async context manager that owns its worker processes.

    Workers start when the first reply needs one. A reply that makes its worker die or hang costs only
    that worker: the next reply gets a new one.
    """

    def __init__(self, *, workers: int = 2, timeout_s: float = 30.0) -> None:
        """Prepare, without starting a process.

        Args:
            workers: Processes that verify at the same time.
            timeout_s: How long one reply may take, in seconds, the start of a worker included; ours, well
                above what math-verify allows itself: only a hang in C code or a starved machine gets there.
        """
        self._workers = [_Worker(timeout_s) for _ in range(workers)]
        self._free: asyncio.Queue[_Worker] = asyncio.Queue()
        for worker in self._workers:
            self._free.put_nowait(worker)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.stop()

    def start(self) -> None:
        """Start all workers, so that the first replies need not wait for theirs."""
        for worker in self._workers:
            worker.start()

    async def verify(self, reply: str, sample: Sample, *, judge: AskJudge | None = None) -> Verdict:
        """The verdict of the sample's own verifier.

        Args:
            reply: Everything that the policy wrote.
            sample: What was asked.
            judge: Asked by verifier `judge`; without one, what no rule decides is unscored.

        Raises:
            DataError: If the sample names no verifier, or its ground truth cannot be read.
            ServiceError: If a worker died or did not answer in time, or the judge did not answer, or there is
                none: the reply is unscored.
        """
        verifier = verifier_of(sample)
        if verifier.asks_judge and judge is not None:
            outcome = decide(reply, sample)
            if isinstance(outcome, Verdict):
                return outcome
            return judged(outcome, sample, same=await judge(outcome, sample))
        if not verifier.in_worker:
            return verifier.verify(reply, sample)
        worker = await self._free.get()
        try:
            return await asyncio.to_thread(worker.ask, reply, _without_pictures(sample))
        finally:
            self._free.put_nowait(worker)


class _Worker:
    """One process at the other end of a pipe, started when it is first asked."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._turn = (
            threading.Lock()
        )  # a cancelled task leaves its thread behind, still waiting for the reply
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def ask(self, reply: str, sample: Sample) -> Verdict:
        """Have the process verify one reply, and wait for it (blocks)."""
        with self._turn:
            pipe = self._pipe or self.start()
            try:
                pipe.send((reply, sample))
                if not pipe.poll(self._timeout_s):
                    self.stop()
                    raise ServiceError(
                        f"verifier `{sample.verifier}` gave no verdict in {self._timeout_s:g} s"
                    )
                outcome = pipe.recv()
            except (EOFError, OSError):
                self.stop()
                raise ServiceError(f"the worker of verifier `{sample.verifier}` died") from None
        if isinstance(outcome, VtuneError):
            raise outcome
        if not isinstance(outcome, Verdict):
            raise TypeError(f"a worker sent {type(outcome).__name__}, not a verdict")
        return outcome

    def stop(self) -> None:
        """End the process, whatever it does."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if process is not None:
            process.kill()
            process.join()
        if pipe is not None:
            pipe.close()

    def start(self) -> Connection:
        """Start the process, without waiting until it can be asked."""
        # spawn: a fork would copy the threads' locks and the accelerator state of a trainer.
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs,), daemon=True, name="vtune-verifier")
        process.start()
        theirs.close()
        self._process, self._pipe = process, ours
        return ours


def _work(pipe: Connection) -> None:
    """Verify whatever comes through the pipe until it is closed (runs in the worker)."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    soft = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which then stops its workers
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it reports every slow answer on stderr
    while True:
        try:
            reply, sample = pipe.recv()
        except EOFError:
            return
        try:
            outcome: Verdict | VtuneError = verifier_of(sample).verify(reply, sample)
        except VtuneError as error:
            outcome = error
        pipe.send(outcome)


def _without_pictures(sample: Sample) -> Sample:
    """The sample without what no verifier reads: pictures are megabytes that the pipe would copy."""
    return replace(sample, prompt=(Message("user", sample.question),), images=(), evidence=(), extra={})
