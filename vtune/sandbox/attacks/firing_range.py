"""A sandbox to attack: what one attack does in it, and what it harms around it."""

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from vtune.errors import ServiceError
from vtune.sandbox.attacks import checks
from vtune.sandbox.attacks.calls import (
    PAUSE_SECONDS,
    Watched,
    answer,
    ran,
    riddle,
    same,
    stopped,
    watched_call,
)
from vtune.sandbox.attacks.facts import (
    Entry,
    ProcessFacts,
    descendants,
    descriptors,
    names,
    peak_memory,
    process,
    tree,
)
from vtune.sandbox.attacks.placeholders import Kind, fill
from vtune.sandbox.attacks.suite import Attack
from vtune.sandbox.attacks.world import Surroundings, World
from vtune.sandbox.broker import Sandbox
from vtune.sandbox.guest import folders
from vtune.sandbox.session import Session
from vtune.sandbox.types import Execution, Isolation, Layer, Limits

WARM = 2
WATCH_SECONDS = 0.15
"""How long a session is observed for CPU time after its call."""
SETTLE_SECONDS = 10.0
"""How long processes may take to end, or to appear in the warm pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The state of the world, and of the sandbox's own processes and folders, at one time."""

    world: Surroundings
    server: ProcessFacts | None
    root: set[str]
    """Files in the sandbox's folder that belong to no session."""
    neighbour: dict[str, Entry]
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """What one attack did."""

    execution: Execution
    seconds: float
    """Duration of the call."""
    breaches: tuple[str, ...]
    leaks: tuple[str, ...]
    """What it learned about other files from their metadata; allowed if there is no mount namespace."""
    strays: tuple[Path, ...]
    """Files that it left in public folders."""


class Range:
    """A sandbox to attack, with a neighbour session; after a breach, a fresh one replaces it."""

    def __init__(self, world: World, limits: Limits, isolation: Isolation, without: frozenset[Layer]) -> None:
        self._world = world
        self._limits = limits
        self._isolation: Isolation = isolation
        self._without = without
        self._others = descendants(os.getpid())
        """Processes that this one had started earlier."""
        self._fit = False
        """Whether there is a sandbox that no attack has harmed."""

    async def __aenter__(self) -> Self:
        await self._set_up()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._clear()

    async def _clear(self) -> None:
        """End the sandbox, and anything started by an attack that has outlived it."""
        folder = self.sandbox.folder
        try:
            await self._stack.aclose()
        finally:
            ends = time.monotonic() + SETTLE_SECONDS
            while (left := self._started(folder)) and time.monotonic() < ends:
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):  # it ended by itself
                        os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(PAUSE_SECONDS)

    async def renew(self, before: Moment, strays: Iterable[Path]) -> None:
        """Repair what an attack broke, and remove the files that it left; `ready` starts a fresh sandbox."""
        self._fit = False
        await self._clear()
        self._world.repair(before.world, list(strays))

    async def ready(self) -> None:
        """Start a fresh sandbox if the previous one was cleared away: not done after the last attack."""
        if not self._fit:
            await self._set_up()

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
        self._fit = True

    @staticmethod
    def _server_facts(sandbox: Sandbox) -> ProcessFacts:
        facts = process(sandbox.zygote_pid)
        if facts is None:
            raise ServiceError("the sandbox's fork server is gone")
        return facts

    async def _open_folders(self) -> set[Path]:
        """The public folders of this machine in which a session can make a file."""
        name = f"vtune-probe-{secrets.token_hex(8)}"
        public = self._world.look().public
        code = (
            f"for path in {[str(folder / name) for folder in public]}:\n"
            "    try:\n        open(path, 'x').close()\n    except OSError:\n        pass"
        )
        await ran(self._neighbour, code)
        found = {folder for folder in public if (folder / name).exists()}
        for folder in found:
            (folder / name).unlink()
        return found

    async def _steady(self, wanted: int | None = None) -> int:
        """The number of processes that no session accounts for, once two checks in a row agree on it.

        The fork server knows its own processes, and may start some at any time. Waits for `wanted`, at most
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
        """The processes of the sandbox in this folder, and those started by attacks on it."""
        found = descendants(os.getpid(), group=self._group, below=folder)
        return found - self._others - {self._world.victim.pid}

    def look(self) -> Moment:
        """Everything that an attack must leave unchanged."""
        root = self.sandbox.folder
        return Moment(
            world=self._world.look(),
            server=process(self.sandbox.zygote_pid),
            root=_foreign(root),
            neighbour=tree(self._neighbour.workspace.parent),
            memory=peak_memory(),
        )

    async def shoot(self, attack: Attack, before: Moment) -> Shot:
        """Run one attack in its own session and check everything.

        Raises:
            ServiceError: If the sandbox fails.
        """
        session = await self.sandbox.open([self._world.picture], seed=0)
        try:
            return await self._shoot_in(session, attack, before)
        finally:
            await session.close()

    async def _shoot_in(self, session: Session, attack: Attack, before: Moment) -> Shot:
        pid, folder = session.pid, session.workspace.parent
        idle, open_before = process(pid), descriptors(pid)
        if idle is None:
            raise ServiceError("the session ended before any code ran")
        beside, inputs = names(folder), tree(folder / "in")
        code = fill(attack.source, attack.path, self._values(session))

        began = time.monotonic()
        watched = await watched_call(session, code, self._limits)
        took = time.monotonic() - began
        execution = watched.execution

        await asyncio.sleep(PAUSE_SECONDS)
        first = same(process(pid), idle)
        now = await stopped(pid, first)
        await asyncio.sleep(WATCH_SECONDS)
        later = same(process(pid), idle)
        after = self.look()
        strays = self._strays(before, after, session, text=code + execution.output)
        breaches = [
            *self._outside(before, after, strays),
            *self._said(execution, attack, session),
            *checks.inputs(inputs, tree(folder / "in") if (folder / "in").is_dir() else {}),
            *checks.beside(beside, names(folder)),
            *self._spent(watched, took),
            *checks.running(first, now, later, killed=execution.status == "killed"),
            *checks.inherited(open_before or {}, folder),
            *checks.confined(idle, now),
        ]
        if execution.status == "infra":
            breaches.append(f"the sandbox failed: {execution.error[:200]}")
        breaches += await self._sessions_after(session)
        return Shot(
            execution=execution,
            seconds=took,
            breaches=tuple(breaches),
            leaks=tuple(checks.metadata(execution, attack)),
            strays=tuple(strays),
        )

    def _strays(self, before: Moment, after: Moment, session: Session, *, text: str) -> list[Path]:
        """New files in public folders; `text` is the code and its output, which may name them."""
        return list(
            checks.strays(
                before.world,
                after.world,
                text=text,
                token8=self._world.token[:8],
                uid=self._own_uid(session.workspace),
                writable=self._writable,
            )
        )

    def _said(self, execution: Execution, attack: Attack, session: Session) -> list[str]:
        """Secrets revealed by the call's output."""
        leaked = checks.leaked(
            execution,
            session.workspace,
            needle=self._world.needle,
            picture=self._world.secret_picture(),
        )
        return [*leaked, *checks.disclosed(execution, attack, command_line=_command_line())]

    def _spent(self, watched: Watched, took: float) -> list[str]:
        """Where the call exceeded its limits."""
        return [
            *checks.late(took - watched.lag, self._limits, slowdown=watched.slowdown, waited=watched.waited),
            *checks.too_much(watched.execution, self._limits),
            *checks.overfilled(watched.entries, watched.taken, self._limits),
        ]

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
        """Whether this session, its neighbour and a new one answer correctly, and what this one leaves."""
        code, expected = riddle()
        breaches = list(checks.answered(expected, await ran(session, code)))
        await session.close()
        mine = await answer(self._neighbour, "print(mine, open('mine.txt').read())")
        breaches += checks.works("another session", f"{self._secret} {self._secret}", mine)
        code, expected = riddle()
        fresh = await self.sandbox.open([self._world.picture], seed=0)
        try:
            breaches += checks.works("a new session", expected, await answer(fresh, code))
        finally:
            await fresh.close()
        breaches += checks.left_over(self._standing, await self._steady(self._standing))
        return breaches

    def _own_uid(self, workspace: Path) -> int | None:
        """The session's user id, if it has its own."""
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


def _foreign(root: Path) -> set[str]:
    """Everything in the sandbox's folder except session folders, and those set aside for removal."""
    tops = [path for path in root.iterdir() if not _of_a_session(path)] if root.is_dir() else []
    inner = [path for top in tops if top.is_dir() and not top.is_symlink() for path in top.rglob("*")]
    return {path.relative_to(root).as_posix() for path in (*tops, *inner)}


def _of_a_session(path: Path) -> bool:
    of_one = path.name[:1] == "s" and path.name[1:].isdigit()
    return of_one or path.name.startswith(folders.ASIDE)


def _command_line() -> str:
    """The start of this process's command line, as another process would read it."""
    return Path("/proc/self/cmdline").read_text(errors="replace")[:60]
