"""Verdicts for a running loop: cheap verifiers inline, the others in processes of their own."""

import asyncio
import logging
import pickle
import resource
import signal
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Self

from vtune.errors import DataError, ServiceError, VtuneError
from vtune.schema.message import Message
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import verifier_of
from vtune.verifiers.judge import decide, judged
from vtune.verifiers.verifier import where

AskJudge = Callable[[str, Sample], Awaitable[bool]]
"""(answer, sample) -> whether a model finds it to mean the same as the ground truth.

Raises ServiceError where the model gives no usable reply."""

AHEAD = 4
"""Replies that a worker has at most, with the one that it verifies; ours: on a busy machine a worker would
else stand still until the loop that feeds it gets its turn."""

_LENGTH = struct.Struct("!I")
"""Before each outcome that a worker sends: its bytes."""

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
        self._waiting: deque[_Question] = deque()
        self._workers = [_Worker(timeout_s, self._take_back) for _ in range(workers)]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.stop()
        for question in self._waiting:
            question.verdict.cancel()

    def start(self) -> None:
        """Start all workers, so that the first replies need not wait for theirs; inside the running loop."""
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
            ServiceError: If a worker died or did not answer in time, or none can be started, or the judge did
                not answer, or there is none: the reply is unscored.
        """
        verifier = verifier_of(sample)
        if verifier.asks_judge and judge is not None:
            outcome = decide(reply, sample)
            if isinstance(outcome, Verdict):
                return outcome
            return judged(outcome, sample, same=await judge(outcome, sample))
        if not verifier.in_worker:
            return verifier.verify(reply, sample)
        try:
            packed = pickle.dumps((reply, _without_pictures(sample)), pickle.HIGHEST_PROTOCOL)
        except RecursionError:
            what = "`verifier_parm` has lists in lists in lists, too many to be read"
            raise DataError(what, where=where(sample), fix="write plain values") from None
        question = _Question(packed, sample.verifier, asyncio.get_running_loop().create_future())
        self._waiting.append(question)
        self._deal()
        return await question.verdict

    def _deal(self) -> None:
        """Give what waits to the workers that have least to do, of those that run or can be started."""
        able = list(self._workers)
        while self._waiting:
            worker = min(able, key=lambda one: len(one.asked))
            if len(worker.asked) >= AHEAD:
                return
            question = self._waiting.popleft()
            if question.verdict.done():
                continue  # nobody waits for it any more
            try:
                worker.ask(question)
            except OSError as error:
                able.remove(worker)
                if able:
                    self._waiting.appendleft(question)
                else:
                    _tell(question.verdict, ServiceError(f"no worker can be started: {error}"))
                    able = list(self._workers)

    def _take_back(self, questions: Sequence["_Question"]) -> None:
        """A worker has room again; it leaves some questions untouched."""
        self._waiting.extendleft(reversed(questions))
        self._deal()
        self._help()

    def _help(self) -> None:
        """Have an idle worker verify a reply that waits at another, whose first may take long.

        Each reply is copied once at most, the last in a line first, for its own worker comes to it last.
        """
        idle = next((one for one in self._workers if not one.asked), None)
        if idle is None:
            return
        behind = [question for one in self._workers for question in list(one.asked)[:0:-1]]
        question = next((one for one in behind if not (one.copied or one.verdict.done())), None)
        if question is None:
            return
        question.copied = True
        with suppress(OSError):  # it cannot be started: the reply stays where it waits
            idle.ask(question)


@dataclass(slots=True, eq=False)
class _Question:
    """A reply that a worker has to verify."""

    packed: bytes
    verifier: str
    verdict: asyncio.Future[Verdict]
    copied: bool = False
    """Whether a second worker was asked too; the first verdict counts."""


class _Worker:
    """One process at the other end of a socket, started when it is first asked.

    Args:
        timeout_s: For one question.
        leave: Told, whenever there is room, what another has to be asked.
    """

    def __init__(self, timeout_s: float, leave: Callable[[Sequence[_Question]], None]) -> None:
        self._timeout_s = timeout_s
        self._leave = leave
        self.asked: deque[_Question] = deque()
        """The first of them is being verified."""
        self._began = 0.0
        """When that began, by the loop's clock."""
        self._alarm: asyncio.TimerHandle | None = None
        self._process: BaseProcess | None = None
        self._line: socket.socket | None = None
        self._unsent = bytearray()
        self._received = bytearray()

    def ask(self, question: _Question) -> None:
        """Have the process verify one more reply.

        Raises:
            OSError: If it has to be started and cannot be; nothing is asked then.
        """
        line = self._line or self.start()
        loop = asyncio.get_running_loop()
        self.asked.append(question)
        if len(self.asked) == 1:
            self._began = loop.time()
        if self._alarm is None:
            self._alarm = loop.call_later(self._timeout_s, self._look_at_the_clock)
        if not self._unsent:
            # At the end of this turn of the loop: what else is asked in it goes along.
            loop.call_soon(self._send, line)
        self._unsent += question.packed

    def start(self) -> socket.socket:
        """Start the process, without waiting until it can be asked.

        Raises:
            OSError: If the machine has no process or no file descriptor left.
        """
        # spawn: a fork would copy the threads' locks and the accelerator state of a trainer.
        context = get_context("spawn")
        ours, theirs = socket.socketpair()
        with theirs:
            process = context.Process(target=_work, args=(theirs,), daemon=True, name="vtune-verifier")
            try:
                process.start()
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        asyncio.get_running_loop().add_reader(ours, self._receive)
        self._process, self._line = process, ours
        return ours

    def stop(self) -> None:
        """End the process, whatever it does; who waits for it waits no longer."""
        self._end()
        for question in self.asked:
            question.verdict.cancel()
        self.asked.clear()

    def _end(self) -> None:
        if self._process is None or self._line is None:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._line)
        loop.remove_writer(self._line)
        self._line.close()
        self._process.kill()
        self._process.join()
        if self._alarm is not None:
            self._alarm.cancel()
        self._process = self._line = self._alarm = None
        self._unsent.clear()
        self._received.clear()

    def _send(self, line: socket.socket) -> None:
        if line is not self._line:
            return  # its process was given up meanwhile
        try:
            del self._unsent[: line.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()  # it is dead: what is received from it will tell
        loop = asyncio.get_running_loop()
        if self._unsent:
            loop.add_writer(line, self._send, line)
        else:
            loop.remove_writer(line)

    def _receive(self) -> None:
        if self._line is None:
            return
        try:
            data = self._line.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._fail("the worker of verifier `{}` died")
            return
        self._received += data
        while (end := self._whole()) <= len(self._received):
            _tell(self.asked.popleft().verdict, pickle.loads(self._received[_LENGTH.size : end]))
            del self._received[:end]
        self._began = asyncio.get_running_loop().time()
        self._leave(())

    def _whole(self) -> int:
        """Bytes of the next outcome, those of its length included."""
        if len(self._received) < _LENGTH.size:
            return _LENGTH.size
        return _LENGTH.size + int(_LENGTH.unpack_from(self._received)[0])

    def _look_at_the_clock(self) -> None:
        loop = asyncio.get_running_loop()
        self._alarm = None
        if not self.asked:
            return
        left = self._began + self._timeout_s - loop.time()
        if left > 0:
            self._alarm = loop.call_later(left, self._look_at_the_clock)
        else:
            self._fail(f"verifier `{{}}` gave no verdict in {self._timeout_s:g} s")

    def _fail(self, why: str) -> None:
        """Give up the process: the reply that it was at is unscored, the others go elsewhere."""
        self._end()
        questions = list(self.asked)
        self.asked.clear()
        if questions:
            first = questions.pop(0)
            _tell(first.verdict, ServiceError(why.format(first.verifier)))
        self._leave(questions)


def _tell(verdict: asyncio.Future[Verdict], outcome: object) -> None:
    if verdict.done():
        return
    if isinstance(outcome, Verdict):
        verdict.set_result(outcome)
    elif isinstance(outcome, VtuneError):
        verdict.set_exception(outcome)
    else:
        verdict.set_exception(TypeError(f"a worker sent {type(outcome).__name__}, not a verdict"))


def _work(line: socket.socket) -> None:
    """Verify whatever comes through the line until it is closed (runs in the worker)."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    soft = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which then stops its workers
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it reports every slow answer on stderr
    with line, line.makefile("rb") as questions:
        while True:
            try:
                reply, sample = pickle.load(questions)
            except (EOFError, ConnectionError):
                return
            try:
                outcome: Verdict | VtuneError = verifier_of(sample).verify(reply, sample)
            except VtuneError as error:
                outcome = error
            packed = pickle.dumps(outcome, pickle.HIGHEST_PROTOCOL)
            line.sendall(_LENGTH.pack(len(packed)) + packed)


def _without_pictures(sample: Sample) -> Sample:
    """The sample without what no verifier reads: pictures are megabytes that the pipe would copy."""
    return replace(sample, prompt=(Message("user", sample.question),), images=(), evidence=(), extra={})
