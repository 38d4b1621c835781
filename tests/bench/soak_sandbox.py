"""Random honest and hostile code in many sessions while sandbox processes are killed at random.

python tests/bench/soak_sandbox.py --minutes 5 --sessions 64 --seed 0

The right answer of every honest call is known. An outcome is wrong if the status is "ok" with another answer,
if honest code in an undisturbed session does not end as expected, or if a call that ended with the fork
server is blamed on the code. At the end nothing may be left behind. Prints a summary as JSON; exits with 1 if
anything was wrong or left behind.
"""

import argparse
import asyncio
import contextlib
import io
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import PIL.Image

from vtune.errors import ServiceError
from vtune.sandbox import Execution, Limits, Sandbox, Session

LIMITS = Limits(seconds=3.0, grace=2.0, memory_mb=512, workspace_files=200, workspace_mb=160)
"""Tight limits, so that many calls hit them."""
CALLS = (1, 12)
"""Minimum and maximum calls per session."""
HOSTILE_SHARE, CANCELLED_SHARE = 0.25, 0.02
THINK_SECONDS = 0.02
"""Longest pause between calls of a session."""
BUSY_CALLS = 6
"""Maximum concurrent calls that only burn CPU; with more, honest code times out on a small machine."""
SHOT_SECONDS = (0.05, 0.6)
"""Minimum and maximum seconds between kills of session processes."""
DYING_SECONDS = 1.0
"""Seconds after a server is killed in which a new session may still come from it."""
SETTLE_SECONDS = 10.0
"""Seconds for the last processes to end."""
THREADS = 4
"""Threads of the event loop, which encode pictures."""
SHOWN = 50
"""Maximum number of wrong answers quoted in the summary."""
NEVER_FOUND = -1
"""A process id that matches no process; never passed to kill, where -1 means every process."""


@dataclass(frozen=True, slots=True)
class Hostile:
    """Hostile code, and how its call may end in an otherwise undisturbed session."""

    name: str
    code: str
    statuses: tuple[str, ...]
    busy: bool = False
    """Whether it burns CPU up to its limit."""
    spoils: bool = False
    """Whether it damages its own session so that later honest calls fail."""


HOSTILE = (
    Hostile("endless loop", "while True: pass", ("timeout", "limit"), busy=True),
    Hostile("sleep", "import time\ntime.sleep(60)", ("timeout", "limit")),
    Hostile(
        "swallowed limit",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        ("timeout", "limit", "killed"),
        busy=True,
    ),
    Hostile(
        "blocked signals",
        "import signal\nsignal.pthread_sigmask(0, range(1, 65))\nwhile True: pass",
        ("killed",),
        busy=True,
    ),
    Hostile("stop oneself", "os.kill(os.getpid(), 19)\nwhile True: pass", ("killed",)),
    Hostile("leave", "os._exit(0)", ("killed",)),
    Hostile("crash", "import ctypes\nctypes.string_at(0)", ("killed",)),
    Hostile("kill oneself", "os.kill(os.getpid(), 9)", ("killed",)),
    Hostile("kill the parent", "os.kill(os.getppid(), 9)", ("error",)),
    Hostile("kill everybody", "os.kill(-1, 9)", ("error",)),
    Hostile("fork", "while True: os.fork()", ("error",)),
    Hostile("thread", "import threading\nthreading.Thread(target=print).start()", ("error",)),
    Hostile("program", "import subprocess\nsubprocess.run(['true'])", ("error",)),
    Hostile("network", "import socket\nsocket.create_connection(('127.0.0.1', 9))", ("error",)),
    Hostile("read the host", "open('/etc/shadow').read()", ("error",)),
    Hostile("write the host", "open('../escape', 'w')", ("error",)),
    Hostile("spoil the input", "open(image_path, 'r+b')", ("error",)),
    Hostile("memory", "a = np.ones(4 << 30, np.uint8)", ("limit",)),
    Hostile("flood", "while True: print('x' * 1000)", ("limit",)),
    Hostile(
        "large file", "open('large', 'wb').write(bytes(65 << 20))", ("error", "killed", "timeout", "limit")
    ),
    Hostile("files", "for n in range(3000): open(f'f{n}', 'w').close()", ("killed", "timeout", "limit")),
    Hostile("forged answer", "os.write(10, b'\\0\\0\\0\\2{}')", ("killed",)),
    Hostile("endless answer", "os.write(10, b'\\xff' * 100)\nwhile True: pass", ("killed",), busy=True),
    Hostile("no channel", "os.closerange(3, 64)", ("killed",)),
    Hostile("no built-ins", "import builtins\nbuiltins.len = None", ("ok", "error", "killed"), spoils=True),
    Hostile("no output", "os.close(1)\nprint(1)", ("ok", "error", "killed"), spoils=True),
    Hostile("no names", "globals().clear()", ("ok", "error", "killed"), spoils=True),
    Hostile(
        "late alarm",
        "import signal\nsignal.setitimer(0, 0.01, 0.01)",
        ("ok", "timeout", "limit", "killed"),
        spoils=True,
    ),
    Hostile("seek", "os.lseek(1, 1 << 40, 0)", ("ok", "error", "killed"), spoils=True),
)


@dataclass(frozen=True, slots=True)
class Honest:
    """Honest code with its right answer."""

    name: str
    code: str
    status: str = "ok"
    output: str = ""
    error_end: str = ""
    """How its error message must end."""
    pixels: np.ndarray | None = None
    """The only picture that must be returned, shape (height, width, 3)."""
    box: tuple[int, int, int, int] | None = None
    """The only crop that must be reported."""

    def matches(self, run: Execution) -> bool:
        """Whether a call ended as expected, with the right answer."""
        if (run.status, run.output) != (self.status, self.output) or not run.error.endswith(self.error_end):
            return False
        if self.pixels is None:
            return run.images == ()
        if len(run.images) != 1 or [crop.bbox for crop in run.crops] != [self.box]:
            return False
        shown = np.array(PIL.Image.open(io.BytesIO(run.images[0])).convert("RGB"))
        return np.array_equal(shown, self.pixels)


@dataclass(slots=True)
class Slot:
    """Holds one session at a time, and what we did to it."""

    session: Session | None = None
    total: int | None = None
    """The number that the session keeps across calls; None when its state is lost."""
    shot: bool = False
    """We have killed its process, and no call has reported that yet."""
    doomed: bool = False
    """We have killed its fork server or guardian, or did so just before it was opened."""


@dataclass(slots=True)
class Report:
    """What happened."""

    facts: dict[str, Any]
    events: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    before: dict[str, int] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether nothing was wrong and nothing was left behind."""
        return not self.wrong and not self.left

    @property
    def left(self) -> dict[str, int]:
        """What has increased. A decrease is not a leak: an unrelated thread may have ended."""
        return {kind: n - self.before[kind] for kind, n in self.after.items() if n > self.before[kind]}

    def summary(self) -> dict[str, Any]:
        """The report as JSON-compatible values."""
        return {
            **self.facts,
            "events": dict(sorted(self.events.items())),
            "statuses": dict(sorted(self.statuses.items())),
            "wrong": len(self.wrong),
            "wrong_answers": self.wrong[:SHOWN],
            "before": self.before,
            "after": self.after,
            "left": self.left,
            "clean": self.clean,
        }


class Soak:
    """Keeps the slots busy until time is up."""

    def __init__(self, sandbox: Sandbox, report: Report, *, seconds: float, sessions: int, seed: int) -> None:
        self.sandbox = sandbox
        self.report = report
        self.random = random.Random(seed)
        self.slots = [Slot() for _ in range(sessions)]
        self.seconds = seconds
        self.busy = asyncio.Semaphore(min(BUSY_CALLS, max(1, sessions // 8)))
        self.picture = _picture(seed)
        self.image = _encoded(self.picture)

    async def run(self) -> None:
        self.ends = time.monotonic() + self.seconds
        self.server_shot = -DYING_SECONDS
        async with asyncio.TaskGroup() as group:
            for slot in self.slots:
                group.create_task(self._fill(slot))
            group.create_task(self._shoot_sessions())
            group.create_task(self._shoot_servers())

    async def _fill(self, slot: Slot) -> None:
        """Run one session after the other."""
        while time.monotonic() < self.ends:
            slot.total, slot.shot = None, False
            slot.doomed = time.monotonic() - self.server_shot < DYING_SECONDS
            try:
                slot.session = await self.sandbox.open([self.image], seed=self.random.randrange(1000))
            except ServiceError as error:
                self.report.events["open failed"] += 1
                if not slot.doomed:
                    self.report.wrong.append(f"open failed with nothing killed: {error}")
                continue
            self.report.events["opened"] += 1
            try:
                for _ in range(self.random.randint(*CALLS)):
                    if not await self._call(slot, slot.session):
                        break
                    await asyncio.sleep(self.random.uniform(0, THINK_SECONDS))
            finally:
                session, slot.session = slot.session, None
                await session.close()

    async def _call(self, slot: Slot, session: Session) -> bool:
        """Make one call; False if the session should not be used any more."""
        draw = self.random.random()
        if draw < CANCELLED_SHARE:
            return await self._cancel(slot, session)
        if draw < CANCELLED_SHARE + HOSTILE_SHARE:
            return await self._attack(slot, session, self.random.choice(HOSTILE))
        honest = self._honest(slot)
        run = await self._run(session, honest.code, raw=False)
        if run is None:
            return False
        self._count("honest", run)
        known = {honest.status, *self._excuses(slot)}
        if run.status not in known or (run.status == honest.status and not honest.matches(run)):
            self._wrong(honest.name, slot, run)
        return self._survives(slot, run)

    async def _attack(self, slot: Slot, session: Session, hostile: Hostile) -> bool:
        async with self.busy if hostile.busy else contextlib.nullcontext():
            if time.monotonic() > self.ends:
                return False
            run = await self._run(session, hostile.code, raw=True)
        if run is None:
            return False
        self._count("hostile", run)
        if run.status not in {*hostile.statuses, *self._excuses(slot)}:
            self._wrong(hostile.name, slot, run)
        return self._survives(slot, run) and not (hostile.spoils or _crowded(session.workspace))

    async def _run(self, session: Session, code: str, *, raw: bool) -> Execution | None:
        """Make a call; None if it raised, which is always wrong."""
        try:
            return await session.run(code, raw=raw)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is wrong, and the others continue
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.report.wrong.append(f"{code!r} raised {error!r} in {where.filename}:{where.lineno}")
            return None

    async def _cancel(self, slot: Slot, session: Session) -> bool:
        self.report.events["cancelled"] += 1
        call = asyncio.ensure_future(session.run("import time\ntime.sleep(60)"))
        await asyncio.sleep(self.random.uniform(0, THINK_SECONDS))
        call.cancel()
        await asyncio.wait({call})
        # We may have killed a process that the cancellation had ended anyway.
        slot.total = None
        return True

    def _honest(self, slot: Slot) -> Honest:
        choose = self.random
        a, b = choose.randrange(10**9), choose.randrange(10**9)
        kind = choose.choice(("arithmetic", "state", "state", "crop", "numpy", "error", "file"))
        if kind == "arithmetic":
            return Honest(kind, f"print({a} * {b} - {a})", output=str(a * b - a))
        if kind == "state":
            start = "" if slot.total is not None else "total = 0\n"
            slot.total = (slot.total or 0) + a
            return Honest(kind, f"{start}total += {a}\nprint(total)", output=str(slot.total))
        if kind == "numpy":
            n = a % 1000
            return Honest(
                kind,
                f"print(int(np.arange({n}).sum()), cv2.countNonZero(np.eye(9)))",
                output=f"{n * (n - 1) // 2} 9",
            )
        if kind == "error":
            return Honest(kind, f"raise ValueError({a})", status="error", error_end=f"ValueError: {a}")
        if kind == "file":
            code = f"open('note.txt', 'w').write('{a}')\nprint(open('note.txt').read())"
            return Honest(kind, code, output=str(a))
        height, width = self.picture.shape[:2]
        x, y = a % (width - 70), b % (height - 70)
        box = (x, y, x + 20 + a % 50, y + 20 + b % 50)
        return Honest(
            kind,
            f"image.crop({box}).save('crop_{a}.png')",
            pixels=self.picture[box[1] : box[3], box[0] : box[2]],
            box=box,
        )

    @staticmethod
    def _excuses(slot: Slot) -> set[str]:
        """Further statuses allowed because of what we did to the session.

        If we kill a process while code runs in it, the status is "killed", as the code could have done it
        itself. If we kill it before any code runs, that is the sandbox's failure.
        """
        return ({"killed", "infra"} if slot.shot else set()) | ({"infra"} if slot.doomed else set())

    def _survives(self, slot: Slot, run: Execution) -> bool:
        if run.status == "killed":
            self.report.events["killed by us"] += slot.shot
            slot.total, slot.shot = None, False
        return run.status != "infra"

    def _count(self, kind: str, run: Execution) -> None:
        self.report.statuses[f"{kind} {run.status}"] += 1

    def _wrong(self, what: str, slot: Slot, run: Execution) -> None:
        hurt = f"shot: {slot.shot}, doomed: {slot.doomed}"
        said = f"{run.output[-100:]!r} {run.error[-300:]!r}"
        self.report.wrong.append(f"{what} ({hurt}): {run.status} after {run.seconds:.2f} s: {said}")

    async def _shoot_sessions(self) -> None:
        while await self._pause(*SHOT_SECONDS):
            slot = self.random.choice(self.slots)
            if slot.session is not None and self._shoot(slot.session.pid):
                slot.shot = True
                self.report.events["sessions shot"] += 1

    async def _shoot_servers(self) -> None:
        every = min(12.0, max(1.5, self.seconds / 12))
        for name in itertools.cycle(("zygote", "guardian", "zygote")):
            if not await self._pause(0.5 * every, 1.5 * every):
                return
            zygote = self.sandbox.zygote_pid
            if self._shoot(zygote if name == "zygote" else _parent(zygote)):
                self.server_shot = time.monotonic()
                self.report.events[f"{name}s shot"] += 1
                for slot in self.slots:
                    # A session that is being opened may still come from the old server.
                    slot.doomed = True

    async def _pause(self, least: float, most: float) -> bool:
        """Wait; False if time is up."""
        await asyncio.sleep(min(self.random.uniform(least, most), max(0.0, self.ends - time.monotonic())))
        return time.monotonic() < self.ends

    def _shoot(self, pid: int) -> bool:
        """Kill a process only if it belongs to this sandbox."""
        if pid <= 1:
            return False
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            # Checked while the pidfd is open: the kill goes to this process even if its number is reused.
            if str(self.sandbox.folder) not in _command_line(pid):
                return False
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return False
        finally:
            os.close(pidfd)
        return True


async def soak(*, seconds: float, sessions: int, seed: int, limits: Limits = LIMITS) -> Report:
    """Run code of all kinds for a while, and count resources before and after.

    Args:
        seconds: How long new calls are started.
        sessions: Number of concurrent sessions.
        seed: Seeds the choice of actions; the order of events also depends on the machine.
        limits: Limits of a session.
    """
    with _temporary_folder() as folder:
        await _once()
        report = Report({"seconds": seconds, "sessions": sessions, "seed": seed}, before=_count(folder))
        async with Sandbox(limits) as sandbox:
            report.facts["tier"] = sandbox.info()["tier"]
            await Soak(sandbox, report, seconds=seconds, sessions=sessions, seed=seed).run()
        ends = time.monotonic() + SETTLE_SECONDS
        report.after = _count(folder)
        while report.left and time.monotonic() < ends:
            await asyncio.sleep(0.05)
            report.after = _count(folder)
    return report


async def _once() -> None:
    """Open and close a sandbox, so that whatever Python opens once and keeps is there before the first count.

    This includes the event loop's threads, which it starts on demand and keeps.
    """
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    all_there = threading.Barrier(THREADS)
    await asyncio.gather(*(asyncio.to_thread(all_there.wait) for _ in range(THREADS)))
    async with Sandbox() as sandbox, await sandbox.open([_encoded(_picture(0))], seed=0) as session:
        await session.run("image.save('a.png')")


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    """A separate folder for temporary files, so that leftovers can be attributed to this run."""
    kept = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="vtune-soak-") as name:
        folder = Path(name).resolve()
        # Sessions that run as other users must be able to pass through it.
        folder.chmod(0o711)
        tempfile.tempdir = str(folder)
        try:
            yield folder
        finally:
            tempfile.tempdir = kept


def _crowded(workspace: Path) -> bool:
    """Whether a killed call has left so many files that an honest one may exceed the quota."""
    try:
        return len(list(workspace.iterdir())) > LIMITS.workspace_files // 2
    except FileNotFoundError:
        return True


def _count(folder: Path) -> dict[str, int]:
    """Counts that a leak would increase."""
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing's own descriptor
            links.append(str(entry.readlink()))
    return {
        "descriptors": len(links),
        "sockets": sum(link.startswith("socket:") for link in links),
        "processes": sum(str(folder) in _command_line(pid) for pid in _pids()),
        "children": sum(_parent(pid) == os.getpid() for pid in _pids()),
        "threads": threading.active_count(),
        "tasks": len(list(Path("/proc/self/task").iterdir())),
        "files": sum(1 for _ in folder.rglob("*")),
        "SysV objects": sum(
            len((Path("/proc/sysvipc") / kind).read_text().splitlines()) - 1 for kind in ("shm", "sem", "msg")
        ),
    }


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _command_line(pid: int) -> str:
    """The command line; empty if the process has gone. Those of the sandbox contain its folder."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _parent(pid: int) -> int:
    """The parent's process id; `NEVER_FOUND` if the process has gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return NEVER_FOUND


def _picture(seed: int) -> np.ndarray:
    """Blobs of colour, so that every place looks different; shape (height, width, 3)."""
    noise = np.random.default_rng(seed).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    return cv2.resize(noise, (256, 192), interpolation=cv2.INTER_CUBIC)


def _encoded(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    report = asyncio.run(soak(seconds=60 * options.minutes, sessions=options.sessions, seed=options.seed))
    print(json.dumps(report.summary(), indent=2))
    return 0 if report.clean else 1


if __name__ == "__main__":
    sys.exit(main())
