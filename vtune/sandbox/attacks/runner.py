"""Run attacks one after the other, each in a session of its own, and look at what they have done."""

import asyncio
import contextlib
import itertools
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from vtune.errors import DataError, ServiceError
from vtune.sandbox.attacks import checks
from vtune.sandbox.attacks.facts import (
    Entry,
    ProcessFacts,
    descendants,
    descriptors,
    names,
    peak_memory,
    process,
    tree,
    turns,
    usage,
)
from vtune.sandbox.attacks.placeholders import Kind, fill, kinds
from vtune.sandbox.attacks.suite import Attack
from vtune.sandbox.attacks.world import Surroundings, World
from vtune.sandbox.broker import Sandbox
from vtune.sandbox.guest import folders
from vtune.sandbox.session import Session
from vtune.sandbox.types import Execution, Isolation, Layer, Limits

Outcome = Literal["held", "breach", "allowed leak", "skipped", "error"]
"""`error`: the attack itself is wrong, and was not run."""

GRACE = 0.5
WARM = 2
PAUSE_SECONDS = 0.02
"""Time for a process to take a signal before it is looked at."""
WATCH_SECONDS = 0.15
"""How long a session is watched for CPU time after its call."""
STOP_SECONDS = 10.0
"""How long a session may take to stop after its call: on a busy machine it must first get its turn."""
SETTLE_SECONDS = 10.0
"""How long processes may take to end, or to appear in the warm pool."""
LOOK_SECONDS = 0.2
"""Between two looks at what a running attack has written."""
PROBES = 3
"""How often a session may run out of time over a line of code after an attack before it counts as harmed."""
NOTE_CHARS = 200
HUNG_SECONDS = 30.0
"""Beyond its limits, after which a call is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one attack ended."""

    attack: Attack
    outcome: Outcome
    breaches: tuple[str, ...] = ()
    status: str = ""
    """Of the call, as in `Execution`; empty if it was not made."""
    seconds: float = 0.0
    """Of the call."""
    note: str = ""
    stopped_by: str = ""
    """The layer that the attack's header names, else how the call ended; empty where neither tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How a suite went."""

    info: dict[str, Any]
    """Of the sandbox, as `Sandbox.info` gives it."""
    results: tuple[Result, ...]
    """In the order of the suite."""


async def run_suite(
    attacks: Sequence[Attack],
    *,
    isolation: Isolation,
    without: frozenset[Layer],
    done: Callable[[Result], None],
) -> Tally:
    """Run attacks against real sandboxes, one for each soft limit, with everything at stake.

    What an attack breaks is mended before the next one.

    Args:
        attacks: What to run.
        isolation: Tier of the sandbox.
        without: Layers to leave out. Attacks that are not `weak_ok` are then skipped.
        done: Called after each attack.

    Raises:
        DataError: If the folder for temporary files has too long a name for a socket in it.
        ServiceError: If the sandbox does not start.
    """
    results: dict[str, Result] = {}
    order = sorted(attacks, key=lambda attack: attack.soft)
    info: dict[str, Any] = {}
    with World() as world:
        for soft, group in itertools.groupby(order, key=lambda attack: attack.soft):
            limits = Limits(seconds=soft, grace=GRACE)
            async with Range(world, limits, isolation, without) as place:
                info = place.sandbox.info()
                for attack in group:
                    result = await place.run(attack)
                    results[attack.name] = result
                    done(result)
    return Tally(info=info, results=tuple(results[attack.name] for attack in attacks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The world, and the sandbox's own processes and folders, at one time."""

    world: Surroundings
    server: ProcessFacts | None
    root: set[str]
    """Files in the sandbox's folder that belong to no session."""
    neighbour: dict[str, Entry]
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """An attack's call, and what was seen meanwhile."""

    execution: Execution
    entries: int
    """The most files and folders that were in its workspace."""
    taken: int
    """The most bytes on disk."""
    slowdown: float
    """Of its process for want of a core, when it was last seen."""
    lag: float
    """Seconds for which our own process waited for a core, not for the call."""


class Range:
    """A sandbox to be shot at, with a neighbour session; a fresh one takes its place after a breach."""

    def __init__(self, world: World, limits: Limits, isolation: Isolation, without: frozenset[Layer]) -> None:
        self._world = world
        self._limits = limits
        self._isolation: Isolation = isolation
        self._without = without
        self._others = descendants(os.getpid())
        """Processes that this one had already started."""

    async def __aenter__(self) -> Self:
        await self._set_up()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._clear()

    async def _clear(self) -> None:
        """End the sandbox, and what an attack started that has outlived it."""
        folder = self.sandbox.folder
        try:
            await self._stack.aclose()
        finally:
            for pid in self._started(folder):
                with contextlib.suppress(ProcessLookupError):  # ended by itself
                    os.kill(pid, signal.SIGKILL)

    async def run(self, attack: Attack) -> Result:
        """Run one attack and mend what it broke."""
        if self._without and not attack.weak_ok:
            return Result(attack=attack, outcome="skipped", note="not to be run with a layer left out")
        try:
            kinds(attack.source, attack.path)
        except DataError as error:
            return Result(attack=attack, outcome="error", note=f"{error.what}; {error.fix}")
        before = self._look()
        try:
            result, strays = await self._shoot(attack, before)
        except (ServiceError, OSError) as error:
            what = f"the sandbox failed: {' '.join(str(error).split())}"
            result, strays = Result(attack=attack, outcome="breach", breaches=(what,)), []
        if result.outcome == "breach":
            await self._clear()
            self._world.mend(before.world, strays)
            await self._set_up()
        return result

    async def _set_up(self) -> None:
        """Start the sandbox and the neighbour, and wait until the warm pool is full."""
        async with AsyncExitStack() as stack:
            sandbox = Sandbox(self._limits, isolation=self._isolation, warm=WARM, without=self._without)
            self.sandbox = await stack.enter_async_context(sandbox)
            self._group = self._server_facts(self.sandbox).group
            self._neighbour = await self.sandbox.open([self._world.picture], seed=1)
            self._secret = secrets.token_hex(8)
            made = await self._neighbour.run(
                f"mine = '{self._secret}'\nopen('mine.txt', 'w').write(mine)", raw=True
            )
            if made.status != "ok":
                raise ServiceError(f"the sandbox does not run honest code: {made.error}")
            self._writable = await self._open_folders()
            self._standing = await self._steady()
            self._stack = stack.pop_all()

    @staticmethod
    def _server_facts(sandbox: Sandbox) -> ProcessFacts:
        facts = process(sandbox.zygote_pid)
        if facts is None:
            raise ServiceError("the sandbox's fork server has gone")
        return facts

    async def _open_folders(self) -> set[Path]:
        """The public folders of this machine in which a session can make a file."""
        name = f"vtune-probe-{secrets.token_hex(8)}"
        public = self._world.look().public
        code = (
            f"for path in {[str(folder / name) for folder in public]}:\n"
            "    try:\n        open(path, 'x').close()\n    except OSError:\n        pass"
        )
        await _ran(self._neighbour, code)
        found = {folder for folder in public if (folder / name).exists()}
        for folder in found:
            (folder / name).unlink()
        return found

    async def _steady(self, wanted: int | None = None) -> int:
        """The number of processes that no session accounts for, as soon as two looks agree on it.

        The fork server knows its own, and may make some at any time. `wanted` is waited for, at most
        `SETTLE_SECONDS`.
        """
        ends = time.monotonic() + SETTLE_SECONDS
        before = None
        while True:
            children = await self.sandbox.children()
            now = len(self._started(self.sandbox.folder)) - children
            if (now == before and wanted in (None, now)) or time.monotonic() > ends:
                return now
            before = now
            await asyncio.sleep(PAUSE_SECONDS)

    def _started(self, folder: Path) -> set[int]:
        """The processes of the sandbox in this folder, and of attacks on it."""
        found = descendants(os.getpid(), group=self._group, below=folder)
        return found - self._others - {self._world.victim.pid}

    def _look(self) -> Moment:
        root = self.sandbox.folder
        return Moment(
            world=self._world.look(),
            server=process(self.sandbox.zygote_pid),
            root=_foreign(root),
            neighbour=tree(self._neighbour.workspace.parent),
            memory=peak_memory(),
        )

    async def _shoot(self, attack: Attack, before: Moment) -> tuple[Result, list[Path]]:
        """Run one attack and check everything; also the files that it left in public folders.

        Raises:
            ServiceError: If the sandbox fails.
        """
        session = await self.sandbox.open([self._world.picture], seed=0)
        try:
            return await self._shoot_in(session, attack, before)
        finally:
            await session.close()

    async def _shoot_in(self, session: Session, attack: Attack, before: Moment) -> tuple[Result, list[Path]]:
        pid, folder = session.pid, session.workspace.parent
        idle, open_before = process(pid), descriptors(pid)
        if idle is None:
            raise ServiceError("the session ended before any code ran")
        beside, inputs = names(folder), tree(folder / "in")
        code = fill(attack.source, attack.path, self._values(session))

        began = time.monotonic()
        watched = await self._watched(session, code)
        took = time.monotonic() - began
        execution = watched.execution

        await asyncio.sleep(PAUSE_SECONDS)
        first = _same(process(pid), idle)
        now = await _stopped(pid, first)
        await asyncio.sleep(WATCH_SECONDS)
        later = _same(process(pid), idle)
        after = self._look()
        strays = list(
            checks.strays(
                before.world,
                after.world,
                text=code + execution.output,
                token8=self._world.token[:8],
                uid=self._own_uid(session.workspace),
                writable=self._writable,
            )
        )
        breaches = [
            *self._outside(before, after, strays),
            *checks.leaked(
                execution,
                session.workspace,
                needle=self._world.needle,
                picture=self._world.secret_picture(),
            ),
            *checks.told(execution, attack, command_line=_command_line()),
            *checks.inputs(inputs, tree(folder / "in") if (folder / "in").is_dir() else {}),
            *checks.beside(beside, names(folder)),
            *checks.late(took - watched.lag, self._limits, slowdown=watched.slowdown),
            *checks.too_much(execution, self._limits),
            *checks.overfilled(watched.entries, watched.taken, self._limits),
            *checks.running(first, now, later, killed=execution.status == "killed"),
            *checks.inherited(open_before or {}, folder),
            *checks.confined(idle, now),
        ]
        if execution.status == "infra":
            breaches.append(f"the sandbox failed: {execution.error[:200]}")
        breaches += await self._sessions_after(session)
        leak = list(checks.metadata(execution, attack))
        layers = self.sandbox.info()["layers"]
        allowed = bool(leak) and not breaches and not layers["namespaces"]
        unparsed = checks.never_ran(execution)
        outcome: Outcome = "held"
        note = ""
        if allowed:
            outcome, note = "allowed leak", "metadata can be read where there is no mount namespace"
        elif breaches or leak:
            outcome = "breach"
        elif unparsed:
            note = f"the code never ran: {unparsed}"
        stopped = stopped_by(attack, execution, layers) if outcome == "held" else ""
        if outcome == "held" and not (stopped or note) and execution.error:
            # A slip of the attack's own looks like this, too.
            note = f"the code raised {execution.error.splitlines()[-1][:NOTE_CHARS]}"
        return (
            Result(
                attack=attack,
                outcome=outcome,
                breaches=tuple(breaches + leak),
                status=execution.status,
                seconds=took,
                note=note,
                stopped_by=stopped,
            ),
            strays,
        )

    async def _watched(self, session: Session, code: str) -> Watched:
        """Run code, and look at its workspace and at its process meanwhile.

        Raises:
            ServiceError: If the call never comes back.
        """
        most = checks.ENTRIES_FACTOR * self._limits.workspace_files + 1
        ends = time.monotonic() + self._limits.seconds + self._limits.grace + HUNG_SECONDS
        call = asyncio.ensure_future(session.run(code, raw=True))
        entries = taken = 0
        lag = 0.0
        pid, before = session.pid, turns(session.pid)
        slowdown = 1.0
        try:
            while not call.done():
                if time.monotonic() > ends:
                    raise ServiceError("the call never came back")
                began, busy = time.monotonic(), time.thread_time()
                await asyncio.wait({call}, timeout=LOOK_SECONDS)
                # What this thread has computed meanwhile an attack may have given it to do, so it is no lag.
                spent = LOOK_SECONDS + time.thread_time() - busy
                lag += max(0.0, time.monotonic() - began - spent)
                seen = usage(session.workspace, most=most)
                entries, taken = max(entries, seen[0]), max(taken, seen[1])
                now = turns(pid)
                if before is not None and now is not None:
                    slowdown = now.slowdown_since(before)
            return Watched(
                execution=_finished(call), entries=entries, taken=taken, slowdown=slowdown, lag=lag
            )
        finally:
            call.cancel()

    def _outside(self, before: Moment, after: Moment, strays: Iterable[Path]) -> list[str]:
        """What was harmed outside the session."""
        return [
            *checks.canary(before.world, after.world),
            *checks.victim(before.world, after.world),
            *checks.runtime(before.world, after.world),
            *checks.devices(before.world, after.world),
            *(f"left {path}" for path in strays),
            *checks.shared(before.world, after.world),
            *checks.reached(self._world.listeners.reached()),
            *checks.server(before.server, after.server),
            *checks.neighbour(before.neighbour, after.neighbour),
            *(f"the sandbox's own folder: {name} is new" for name in after.root - before.root),
            *checks.memory(before.memory, after.memory),
        ]

    async def _sessions_after(self, session: Session) -> list[str]:
        """Whether this session, its neighbour and a new one answer truly, and what is left of this one."""
        code, expected = _riddle()
        breaches = list(checks.answered(expected, await _ran(session, code)))
        await session.close()
        mine = await _answer(self._neighbour, "print(mine, open('mine.txt').read())")
        breaches += checks.works("another session", f"{self._secret} {self._secret}", mine)
        code, expected = _riddle()
        fresh = await self.sandbox.open([self._world.picture], seed=0)
        try:
            breaches += checks.works("a new session", expected, await _answer(fresh, code))
        finally:
            await fresh.close()
        breaches += checks.left_over(self._standing, await self._steady(self._standing))
        return breaches

    def _own_uid(self, workspace: Path) -> int | None:
        """The session's user number, if it has one of its own."""
        uid = workspace.stat().st_uid
        return None if uid == os.getuid() else uid

    def _values(self, session: Session) -> dict[Kind, str]:
        world = self._world
        return {
            "canary": str(world.canary),
            "victim_file": str(world.canary / "victim.txt"),
            "secret_file": str(world.canary / "secret.txt"),
            "token8": world.token[:8],
            "port": str(world.listeners.port),
            "stream_socket": str(world.listeners.stream_path),
            "datagram_socket": str(world.listeners.datagram_path),
            "abstract_socket": world.listeners.abstract,
            "broker_pid": str(os.getpid()),
            "zygote_pid": str(self.sandbox.zygote_pid),
            "victim_pid": str(world.victim.pid),
            "sibling_pid": str(self._neighbour.pid),
            "sibling_workspace": str(self._neighbour.workspace),
            "root": str(self.sandbox.folder),
            "workspace": str(session.workspace),
            "home": str(Path.home()),
            "tmp": tempfile.gettempdir(),
            "site_packages": str(world.site_packages),
            "python": sys.executable,
        }


async def _stopped(pid: int, first: ProcessFacts | None) -> ProcessFacts | None:
    """A process once it is stopped, has ended, works on, or has had the time to stop; `first` as it was."""
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
        now = _same(process(pid), first)
    return now


async def _ran(session: Session, code: str) -> Execution:
    """Run code in a session, as attacks are run."""
    call = asyncio.ensure_future(session.run(code, raw=True))
    await asyncio.wait({call})
    return _finished(call)


async def _answer(session: Session, code: str) -> Execution:
    """Run a short probe; one that ran out of time is tried again, as a busy machine makes it do."""
    for _ in range(PROBES):
        execution = await _ran(session, code)
        if execution.status not in ("timeout", "limit"):
            break
    return execution


def _finished(call: "asyncio.Future[Execution]") -> Execution:
    """The outcome of a call; code must never make `Session.run` raise.

    Raises:
        ServiceError: If it did.
    """
    error = call.exception()
    if error is not None:
        raise ServiceError(f"the call raised {error!r} in the trainer") from error
    return call.result()


def stopped_by(attack: Attack, execution: Execution, layers: Mapping[str, Any]) -> str:
    """The layer that the attack's header names, where it is in force; else what its end tells."""
    return attack.layer if layers.get(attack.layer, bool(attack.layer)) else ended_by(execution)


def ended_by(execution: Execution) -> str:
    """What stopped a call, as far as its end tells."""
    error = execution.error.lower()
    if execution.status == "timeout" or (execution.status == "limit" and error.startswith("timeouterror")):
        return "soft limit"
    if execution.status == "killed":
        causes = {"wrote": "quota", "left": "quota", "interfered": "protocol", "longer": "hard limit"}
        return next((layer for word, layer in causes.items() if word in error), "end of its process")
    refusals = ("refused", "PermissionError", "Operation not permitted", "Permission denied")
    return "kernel" if any(word in execution.output + execution.error for word in refusals) else ""


def _same(now: ProcessFacts | None, before: ProcessFacts) -> ProcessFacts | None:
    """The process if it is still the one it was: numbers are used again."""
    return now if now is not None and now.started == before.started else None


def _riddle() -> tuple[str, str]:
    """Code, and what it prints."""
    a, b = secrets.randbelow(10**6), secrets.randbelow(10**6)
    return f"print({a} * {b})", str(a * b)


def _foreign(root: Path) -> set[str]:
    """Everything in the sandbox's folder but the sessions' folders, and those set aside to be removed."""
    tops = [path for path in root.iterdir() if not _of_a_session(path)] if root.is_dir() else []
    inner = [path for top in tops if top.is_dir() and not top.is_symlink() for path in top.rglob("*")]
    return {path.relative_to(root).as_posix() for path in (*tops, *inner)}


def _of_a_session(path: Path) -> bool:
    of_one = path.name[:1] == "s" and path.name[1:].isdigit()
    return of_one or path.name.startswith(folders.ASIDE)


def _command_line() -> str:
    """The start of this process's command line, as another process would read it."""
    return Path("/proc/self/cmdline").read_text(errors="replace")[:60]
