"""A process that verifies what it is sent over a socket."""

import asyncio
import os
import pickle
import resource
import signal
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from types import FrameType

from vtune.errors import ServiceError, VtuneError
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.signals import starting_without_sigint
from vtune.uses import Used, broken, take, used
from vtune.verifiers import verdict_on

PATIENCE = 4
"""Times `timeout_s` that a process may be at one question by the clock, where it was kept waiting; ours: with
the 30 s of `Verifying`, as long as a run waits for a score."""

AGAIN = 0.05
"""Seconds of processor time after which a reply that used up its slice is interrupted once more, where the
first time was lost in a library; ours."""

STARTS, PAUSE = 5, 0.02
"""How often a worker is started where the server that forks it has died, and seconds in between; ours: the
server is replaced as soon as its end is seen, moments later."""

NICENESS = 10
"""Of a process for slow replies; ours: where cores are few, it waits for the others."""

MEMORY_BYTES = 4 * 2**30
"""Data that a worker may hold, ours: an answer such as 9^(9^9) costs a worker, never the machine."""

_LENGTH = struct.Struct("!I")
"""Before each outcome that a worker sends: its bytes."""


@dataclass(slots=True, eq=False)
class Question:
    """A reply that a worker has to verify."""

    packed: bytes
    verifier: str
    verdict: asyncio.Future[Verdict]
    copied: bool = False
    """Whether a second worker was asked too; the first verdict counts."""
    slow: bool = False
    """Whether it used up the time that a fast worker has for it."""


@dataclass(frozen=True, slots=True)
class Fast:
    """How long a fast worker stays with one question, and who takes those that need more."""

    slice_s: float
    """Seconds of processor time, after which its process interrupts itself."""
    stuck_s: float
    """Seconds of the clock after which it is looked whether the process hangs: whether it uses so much
    processor time without interrupting itself. Where the machine is merely busy, it is left alone."""
    pass_on: Callable[[Question], None]


class Worker:
    """One process at the other end of a socket, started when it is first asked.

    Args:
        timeout_s: Seconds of processor time for one question; by the clock `PATIENCE` times as many.
        leave: Told, whenever there is room, what another has to be asked.
        fast: How it gets rid of questions that take long; None lets it work on each up to `timeout_s`.
    """

    def __init__(
        self, timeout_s: float, leave: Callable[[Sequence[Question]], None], fast: Fast | None = None
    ) -> None:
        self._timeout_s = timeout_s
        self._leave = leave
        self._fast = fast
        self._answered = False
        """Whether this process has, so that it is known to have started."""
        self.asked: deque[Question] = deque()
        """The first of them is being verified."""
        self._began = 0.0
        """When that began, by the loop's clock."""
        self._used = 0.0
        """Seconds of processor time that the process had used by then."""
        self._seen: tuple[Question, float] | None = None
        """What it was at when it was first looked whether it hangs, and the processor time used by then."""
        self._alarm: asyncio.TimerHandle | None = None
        self._process: BaseProcess | None = None
        self._line: socket.socket | None = None
        self._unsent = bytearray()
        self._received = bytearray()

    def ask(self, question: Question) -> None:
        """Have the process verify one more reply.

        Raises:
            OSError: If it has to be started and cannot be; nothing is asked then.
        """
        line = self._line or self.start()
        loop = asyncio.get_running_loop()
        self.asked.append(question)
        if len(self.asked) == 1:
            self._begin()
        if self._alarm is None:
            self._alarm = loop.call_later(self._limit(), self._look_at_the_clock)
        if not self._unsent:
            # At the end of this turn of the loop: what else is asked in it goes along.
            loop.call_soon(self._send, line)
        self._unsent += question.packed

    def start(self) -> socket.socket:
        """Start the process, without waiting until it can be asked.

        Raises:
            OSError: If the machine has no process or no file descriptor left, or no fork server that lives.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            process = _context().Process(
                target=_work,
                args=(theirs, self._fast and self._fast.slice_s, used()),
                daemon=True,
                name="vtune-verifier",
            )
            try:
                _start(process)
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        asyncio.get_running_loop().add_reader(ours, self._receive)
        self._process, self._line, self._answered = process, ours, False
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
        self._silence()
        self._process = self._line = None
        self._unsent.clear()
        self._received.clear()

    def _silence(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

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
            self._fail("the worker of {} died")
            return
        self._received += data
        while (end := self._whole()) <= len(self._received):
            question, outcome = self.asked.popleft(), pickle.loads(self._received[_LENGTH.size : end])
            del self._received[:end]
            if outcome is None and self._fast is not None:
                self._fast.pass_on(question)
            else:
                tell(question.verdict, outcome)
        if not self._answered:  # the alarm counts on the longer time of a process that starts
            self._answered = True
            self._silence()
        self._begin()
        if self._alarm is None and self.asked:
            self._alarm = asyncio.get_running_loop().call_later(self._limit(), self._look_at_the_clock)
        self._leave(())

    def _begin(self) -> None:
        """It is at another question now."""
        self._began = asyncio.get_running_loop().time()
        if self._fast is None or not self._answered:  # a fast one is watched in another way, and often asked
            self._used = _processor_time(self._process.pid or 0) if self._process is not None else 0.0

    def _over(self) -> bool:
        """Whether the time for a question is used up; where the machine is merely busy, it is not so soon."""
        if asyncio.get_running_loop().time() - self._began >= PATIENCE * self._timeout_s:
            return True
        pid = self._process.pid if self._process is not None else None
        return _processor_time(pid or 0) - self._used >= self._timeout_s

    def _whole(self) -> int:
        """Bytes of the next outcome, those of its length included."""
        if len(self._received) < _LENGTH.size:
            return _LENGTH.size
        return _LENGTH.size + int(_LENGTH.unpack_from(self._received)[0])

    def _hangs(self) -> bool:
        """Whether the process continued for long with what it should have left, or stands still for good."""
        if self._fast is None or self._process is None:
            return False
        first, used = self.asked[0], _processor_time(self._process.pid or 0)
        if self._seen is None or self._seen[0] is not first:
            self._seen = first, used
        for_long = asyncio.get_running_loop().time() - self._began > self._timeout_s
        return for_long or used - self._seen[1] > 2 * self._fast.slice_s

    def _limit(self) -> float:
        """Seconds that it may be at one question; a process that starts has the longer time."""
        return self._fast.stuck_s if self._fast is not None and self._answered else self._timeout_s

    def _look_at_the_clock(self) -> None:
        loop = asyncio.get_running_loop()
        self._alarm = None
        if not self.asked:
            return
        left = self._began + self._limit() - loop.time()
        if left > 0:
            self._alarm = loop.call_later(left, self._look_at_the_clock)
        elif self._fast is not None and self._answered and not self._hangs():
            self._alarm = loop.call_later(self._fast.stuck_s / 5, self._look_at_the_clock)
        elif self._fast is not None and self._answered:
            self._end()
            slow, *others = self.asked
            self.asked.clear()
            self._fast.pass_on(slow)
            self._leave(others)
        elif self._over():
            self._fail(f"{{}} gave no verdict in {loop.time() - self._began:.0f} s")
        else:
            self._alarm = loop.call_later(self._timeout_s / 30, self._look_at_the_clock)

    def _fail(self, why: str) -> None:
        """Give up the process: the reply that it was at is unscored, the others go elsewhere."""
        self._end()
        questions = list(self.asked)
        self.asked.clear()
        if questions:
            first = questions.pop(0)
            tell(first.verdict, ServiceError(why.format(called(first.verifier))))
        self._leave(questions)


def _context() -> ForkServerContext:
    # A fork of this process would copy the threads' locks and the accelerator state of a trainer. A new
    # process would import what verifies, half a second each time: the fork server does so once.
    context = get_context("forkserver")
    context.set_forkserver_preload(["vtune.verifiers.preload"])
    return context


def ready_to_fork() -> None:
    """Wait until the fork server has imported what verifies: whoever starts a worker before waits as long.

    Raises:
        OSError: If the machine has no process or no file descriptor left, or no fork server that lives.
    """
    process = _context().Process(target=_nothing, daemon=True)
    _start(process)
    process.join()


def _nothing() -> None:
    pass


def _start(process: BaseProcess) -> None:
    for _ in range(STARTS):
        try:
            with starting_without_sigint():  # it imports for a second
                forkserver.ensure_running()
            process.start()
            return
        except (EOFError, ConnectionError):  # the fork server died: as it was asked, or a moment before
            time.sleep(PAUSE)
    raise OSError("the server that forks workers dies again and again")


def called(verifier: str) -> str:
    """A verifier in words; of a user's own with its file."""
    file = next((file.name for file in used() if ("verifier", verifier) in file.parts), None)
    return f"verifier `{verifier}`" + (f" of {file}" if file else "")


def tell(verdict: asyncio.Future[Verdict], outcome: object) -> None:
    """Hand an outcome to whoever waits for it, if anybody does still."""
    if verdict.done():
        return
    if isinstance(outcome, Verdict):
        verdict.set_result(outcome)
    elif isinstance(outcome, VtuneError):
        verdict.set_exception(outcome)
    else:
        verdict.set_exception(TypeError(f"a worker sent {type(outcome).__name__}, not a verdict"))


def _processor_time(pid: int) -> float:
    """Seconds of processor time that a process has used; 0 where it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            words = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


class _UsedUp(BaseException):
    """The slice of a reply is used up. No library that catches every Exception catches it."""


def _work(line: socket.socket, slice_s: float | None, files: Sequence[Used]) -> None:
    """Verify whatever comes through the line until it is closed (runs in the worker)."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    soft = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which then stops its workers
    take(files)
    if slice_s is None:
        os.nice(NICENESS)
    else:
        signal.signal(signal.SIGPROF, _interrupt)
        # Else the first answers would load what they need, at the price of their slices.
        from vtune.verifiers import preload  # noqa: F401
    with line, line.makefile("rb") as questions:
        while True:
            try:
                reply, sample = pickle.load(questions)
            except (EOFError, ConnectionError):
                return
            packed = pickle.dumps(_outcome(reply, sample, slice_s), pickle.HIGHEST_PROTOCOL)
            line.sendall(_LENGTH.pack(len(packed)) + packed)


def _interrupt(_: int, __: FrameType | None) -> None:
    raise _UsedUp


def _outcome(reply: str, sample: Sample, slice_s: float | None) -> Verdict | VtuneError | None:
    """The verdict or the error; None where the slice did not suffice."""
    try:
        if slice_s is not None:
            # Processor time, not that of the clock: on a busy machine an answer is no slower by itself.
            signal.setitimer(signal.ITIMER_PROF, slice_s, AGAIN)
        try:
            return verdict_on(reply, sample)
        except VtuneError as error:
            return error
        except MemoryError:
            raise  # an answer that is too large costs a worker
        except Exception as error:
            if (failed := broken(error)) is None:
                raise
            return failed
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except _UsedUp:
        signal.setitimer(signal.ITIMER_PROF, 0)
        # The limit of math-verify, should that have lost its cleaning up.
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return None
