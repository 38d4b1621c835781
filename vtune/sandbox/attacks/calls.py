"""Calls of sessions under attack: made as the attack's, watched while they run, and checked afterwards."""

import asyncio
import secrets
import time
from dataclasses import dataclass

from vtune.errors import ServiceError
from vtune.sandbox.attacks import checks
from vtune.sandbox.attacks.facts import ProcessFacts, process, turns, usage
from vtune.sandbox.session import Session
from vtune.sandbox.types import Execution, Limits

PAUSE_SECONDS = 0.02
"""Time for a signal to take effect before the process is checked."""
STOP_SECONDS = 10.0
"""Time for a session to stop after its call: on a busy machine it must first be scheduled."""
LOOK_SECONDS = 0.2
"""Between two checks of what a running attack has written."""
PROBES = 3
"""Timeouts of a one-line probe after an attack before the session counts as harmed."""
HUNG_SECONDS = 30.0
"""Seconds beyond its limits after which a call is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """An attack's call, and what was observed in the meantime."""

    execution: Execution
    entries: int
    """The largest number of files and folders in its workspace."""
    taken: int
    """The largest number of bytes on disk."""
    slowdown: float
    """Slowdown of its process for want of a core, when last observed."""
    waited: float
    """Seconds for which the process had waited for a core by then."""
    lag: float
    """Seconds for which our own process waited for a core, not for the call."""


async def watched_call(session: Session, code: str, limits: Limits) -> Watched:
    """Run code, observing its workspace and its process in the meantime.

    Args:
        session: Where to run it.
        code: The attack's code.
        limits: Limits of the session.

    Raises:
        ServiceError: If the call never returns.
    """
    most = checks.ENTRIES_FACTOR * limits.workspace_files + 1
    ends = time.monotonic() + limits.seconds + limits.grace + HUNG_SECONDS
    call = asyncio.ensure_future(session.run(code, raw=True))
    entries = taken = 0
    lag = 0.0
    pid, before = session.pid, turns(session.pid)
    slowdown, waited = 1.0, 0.0
    try:
        while not call.done():
            if time.monotonic() > ends:
                raise ServiceError("the call never came back")
            began, busy = time.monotonic(), time.thread_time()
            await asyncio.wait({call}, timeout=LOOK_SECONDS)
            # Time that this thread spent computing may be the attack's doing, so it does not count as lag.
            spent = LOOK_SECONDS + time.thread_time() - busy
            lag += max(0.0, time.monotonic() - began - spent)
            seen = usage(session.workspace, most=most)
            entries, taken = max(entries, seen[0]), max(taken, seen[1])
            now = turns(pid)
            if before is not None and now is not None:
                slowdown, waited = now.slowdown_since(before), (now.waited - before.waited) / 1e9
        return Watched(
            execution=_finished(call),
            entries=entries,
            taken=taken,
            slowdown=slowdown,
            waited=waited,
            lag=lag,
        )
    finally:
        call.cancel()


async def stopped(pid: int, first: ProcessFacts | None) -> ProcessFacts | None:
    """A process that has stopped, ended, worked on, or had time to stop; `first` is its earlier state."""
    now = first
    ends = time.monotonic() + STOP_SECONDS
    while (
        first is not None
        and now is not None
        and now.state not in "Tt"
        and now.ticks <= first.ticks + checks.SPARE_TICKS
        and time.monotonic() < ends
    ):
        await asyncio.sleep(PAUSE_SECONDS)
        now = same(process(pid), first)
    return now


async def ran(session: Session, code: str) -> Execution:
    """Run code in a session, as attacks are run."""
    call = asyncio.ensure_future(session.run(code, raw=True))
    await asyncio.wait({call})
    return _finished(call)


async def answer(session: Session, code: str) -> Execution:
    """Run a short probe; if it times out, as it may on a busy machine, try again."""
    for _ in range(PROBES):
        execution = await ran(session, code)
        if execution.status not in ("timeout", "limit"):
            break
    return execution


def _finished(call: "asyncio.Future[Execution]") -> Execution:
    """The outcome of a call; code must never be able to make `Session.run` raise.

    Raises:
        ServiceError: If it did.
    """
    error = call.exception()
    if error is not None:
        raise ServiceError(f"the call raised {error!r} in the trainer") from error
    return call.result()


def same(now: ProcessFacts | None, before: ProcessFacts) -> ProcessFacts | None:
    """The process if it is still the same one: process ids are reused."""
    return now if now is not None and now.started == before.started else None


def riddle() -> tuple[str, str]:
    """Code, and what it prints; the output cannot be guessed."""
    a, b = secrets.randbelow(10**6), secrets.randbelow(10**6)
    return f"print({a} * {b})", str(a * b)
