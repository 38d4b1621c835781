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
from vtune.signals import ignore_ends_of_terminals, starting_undisturbed
from vtune.uses import Used, broken, take, used
from vtune.verifiers import verdict_on

PATIENCE = 4
"""Wall-clock limit on one question, as a multiple of `timeout_s`, for a process that was kept waiting; ours:
with the 30 s of `Verifying`, as long as a run waits for a score."""

AGAIN = 0.05
"""Seconds of CPU time after which a reply that used up its slice is interrupted again, if a library swallowed
the first interruption; ours."""

STARTS, PAUSE = 5, 0.02
"""How often a worker is started if the server that forks it has died, and seconds in between; ours: the
server is replaced as soon as its death is noticed, moments later."""

NICENESS = 10
"""Niceness of a process for slow replies; ours: if cores are scarce, it yields to the others."""

MEMORY_BYTES = 4 * 2**30
"""Limit on a worker's data; ours: an answer such as 9^(9^9) costs a worker, never the machine."""

_LENGTH = struct.Struct("!I")
"""Precedes each outcome that a worker sends: its size in bytes."""


@dataclass(slots=True, eq=False)
class Question:
    """A reply for a worker to verify."""

    packed: bytes
    verifier: str
    verdict: asyncio.Future[Verdict]
    copied: bool = False
    """Whether a second worker was asked too; the first verdict counts."""
    slow: bool = False
    """Whether it used up a fast worker's time slice."""


@dataclass(frozen=True, slots=True)
class Fast:
    """How long a fast worker works on one question, and where longer ones go."""

    slice_s: float
    """Seconds of CPU time after which its process interrupts itself."""
    stuck_s: float
    """Wall-clock seconds after which the process is checked for a hang: whether it has used too much
    CPU time without interrupting itself. If the machine is merely busy, it is left alone."""
    pass_on: Callable[[Question], None]


class Worker:
    """A process at the other end of a socket, started when it is first asked.

    Args:
        timeout_s: Limit on the CPU seconds per question; in wall-clock time `PATIENCE` times as much.
        leave: Called when there is room, with questions that another worker must take.
        fast: How it hands over questions that take long; None lets it work on each up to `timeout_s`.
    """

    def __init__(
        self, timeout_s: float, leave: Callable[[Sequence[Question]], None], fast: Fast | None = None
    ) -> None:
        self._timeout_s = timeout_s
        self._leave = leave
        self._fast = fast
        self._answered = False
        """Whether this process has answered, so that it is known to have started."""
        self.asked: deque[Question] = deque()
        """The first one is being verified."""
        self._began = 0.0
        """When that began, by the loop's clock."""
        self._used = 0.0
        """CPU seconds that the process had used by then."""
        self._seen: tuple[Question, float] | None = None
        """The question at the first check for a hang, and the CPU time used by then."""
        self._alarm: asyncio.TimerHandle | None = None
        self._process: BaseProcess | None = None
        self._line: socket.socket | None = None
        self._unsent = bytearray()
        self._received = bytearray()

    def ask(self, question: Question) -> None:
        """Have the process verify one more reply.

        Raises:
            OSError: If it must be started and cannot be; then nothing is asked.
        """
        line = self._line or self.start()
        loop = asyncio.get_running_loop()
        self.asked.append(question)
        if len(self.asked) == 1:
            self._begin()
        if self._alarm is None:
            self._alarm = loop.call_later(self._limit(), self._look_at_the_clock)
        if not self._unsent:
            # At the end of this iteration of the loop, so that questions asked meanwhile are sent along.
            loop.call_soon(self._send, line)
        self._unsent += question.packed

    def start(self) -> socket.socket:
        """Start the process, without waiting until it is ready.

        Raises:
            OSError: If the machine is out of processes or file descriptors, or the fork server keeps dying.
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
        """Kill the process, whatever it is doing; waiting callers are cancelled."""
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
            return  # its process was given up in the meantime
        try:
            del self._unsent[: line.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()  # it is dead: `_receive` will notice
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
        if not self._answered:  # the alarm was set for the longer start-up time
            self._answered = True
            self._silence()
        self._begin()
        if self._alarm is None and self.asked:
            self._alarm = asyncio.get_running_loop().call_later(self._limit(), self._look_at_the_clock)
        self._leave(())

    def _begin(self) -> None:
        """Note that it starts on another question."""
        self._began = asyncio.get_running_loop().time()
        if self._fast is None or not self._answered:  # fast ones are checked differently, and often asked
            self._used = _processor_time(self._process.pid or 0) if self._process is not None else 0.0

    def _over(self) -> bool:
        """Whether the time for a question is used up; on a busy machine that takes longer."""
        if asyncio.get_running_loop().time() - self._began >= PATIENCE * self._timeout_s:
            return True
        pid = self._process.pid if self._process is not None else None
        return _processor_time(pid or 0) - self._used >= self._timeout_s

    def _whole(self) -> int:
        """Bytes of the next outcome, including its length prefix."""
        if len(self._received) < _LENGTH.size:
            return _LENGTH.size
        return _LENGTH.size + int(_LENGTH.unpack_from(self._received)[0])

    def _hangs(self) -> bool:
        """Whether the process kept working well beyond its slice, or has been stuck for too long."""
        if self._fast is None or self._process is None:
            return False
        first, used = self.asked[0], _processor_time(self._process.pid or 0)
        if self._seen is None or self._seen[0] is not first:
            self._seen = first, used
        for_long = asyncio.get_running_loop().time() - self._began > self._timeout_s
        return for_long or used - self._seen[1] > 2 * self._fast.slice_s

    def _limit(self) -> float:
        """Seconds until the next check of a question; a process that is starting has the longer time."""
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
        """Give up the process: the reply that it was verifying is unscored, the others go elsewhere."""
        self._end()
        questions = list(self.asked)
        self.asked.clear()
        if questions:
            first = questions.pop(0)
            tell(first.verdict, ServiceError(why.format(called(first.verifier))))
        self._leave(questions)


def _context() -> ForkServerContext:
    # Forking this process would copy its threads' locks and a trainer's accelerator state. A spawned process
    # would import the verifiers, half a second each time; the fork server does that only once.
    context = get_context("forkserver")
    context.set_forkserver_preload(["vtune.verifiers.preload"])
    return context


def ready_to_fork() -> None:
    """Wait until the fork server has imported the verifiers; starting a worker before would take as long.

    Raises:
        OSError: If the machine is out of processes or file descriptors, or the fork server keeps dying.
    """
    process = _context().Process(target=_nothing, daemon=True)
    _start(process)
    process.join()


def _nothing() -> None:
    pass


def _start(process: BaseProcess) -> None:
    for _ in range(STARTS):
        try:
            with starting_undisturbed():  # it imports for about a second
                forkserver.ensure_running()
            process.start()
            return
        except (EOFError, ConnectionError):  # the fork server died, just now or a moment before
            time.sleep(PAUSE)
    raise OSError("the server that forks workers keeps dying")


def called(verifier: str) -> str:
    """A verifier as named in messages; a user's own with its file."""
    file = next((file.name for file in used() if ("verifier", verifier) in file.parts), None)
    return f"verifier `{verifier}`" + (f" of {file}" if file else "")


def tell(verdict: asyncio.Future[Verdict], outcome: object) -> None:
    """Deliver an outcome to the caller, if it is still waiting."""
    if verdict.done():
        return
    if isinstance(outcome, Verdict):
        verdict.set_result(outcome)
    elif isinstance(outcome, VtuneError):
        verdict.set_exception(outcome)
    else:
        verdict.set_exception(TypeError(f"a worker sent {type(outcome).__name__}, not a verdict"))


def _processor_time(pid: int) -> float:
    """CPU seconds that a process has used; 0 if it no longer exists."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            words = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


class _UsedUp(BaseException):
    """The slice of a reply is used up. Not an Exception, so that libraries do not catch it."""


def _work(line: socket.socket, slice_s: float | None, files: Sequence[Used]) -> None:
    """Verify everything that comes through the socket until it is closed (runs in the worker)."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    soft = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    ignore_ends_of_terminals()  # they are for the run, which then stops its workers
    take(files)
    if slice_s is None:
        os.nice(NICENESS)
    else:
        signal.signal(signal.SIGPROF, _interrupt)
        # Otherwise the first answers would import what they need, at the expense of their slices.
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
    """The verdict or the error; None if the slice was too short."""
    try:
        if slice_s is not None:
            # CPU time, not wall-clock time: a busy machine does not make an answer slow.
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
        # math-verify's limit, in case it was interrupted before cleaning up.
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return None
