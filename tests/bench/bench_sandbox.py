"""The cost of the sandbox: against fresh interpreters, at start, with many sessions, idle, and at limits.

python tests/bench/bench_sandbox.py                   # everything, three to four minutes
python tests/bench/bench_sandbox.py calls starts      # some parts
python tests/bench/bench_sandbox.py --json

Not a test: it prints numbers. Compared numbers come from the same run and alternate, so that a busy machine
slows both sides.
"""

import argparse
import asyncio
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import PIL.Image

from vtune.sandbox import Limits, Sandbox, Session

LOAD = "import cv2, numpy as np\nfrom PIL import Image\n"
OPEN = "image = Image.open('image_0.jpg')\n"
CROP = "image.crop((1000, 800, 1400, 1100)).save('crop.{}')"
CALLS = {
    "print": ("print(1)", "print(1)"),
    "crop and save as jpg, 4K": (CROP.format("jpg"), OPEN + CROP.format("jpg")),
    "crop and save as png, 4K": (CROP.format("png"), OPEN + CROP.format("png")),
}
"""Name -> what a session runs, and what a fresh interpreter runs after its imports."""
ROUNDS, FRESH_CALLS, OURS_SECONDS = 3, 4, 1.0
"""The two sides alternate; each round gives one rate, and the median over rounds is reported."""
STARTS, STARTS_4K, COLD_STARTS = 150, 80, 3
REFILL_SECONDS = 0.06
"""A pause for the pool to prepare its next session; forking and confining it takes about 10 ms."""
CROWDS = (1, 16, 64, 256)
CROWD_SECONDS = 3.0
IDLE_SESSIONS = 256
KILLS, LARGE_KILLS, TIMEOUTS = 100, 20, 100
SHORT = Limits(seconds=0.2, grace=0.1, memory_mb=1024)
STUBBORN = {
    "loop deaf to signals": "import signal\nsignal.pthread_sigmask(0, range(1, 65))\nwhile True: pass",
    "loop inside C": "import collections, itertools\ncollections.deque(itertools.count(), maxlen=0)",
}
LARGE = "held = np.ones(500 << 20, np.uint8)\n"


@dataclass(frozen=True, slots=True)
class Row:
    """One number."""

    part: str
    what: str
    value: float
    unit: str


Part = Callable[[], Awaitable[list[Row]]]


async def calls() -> list[Row]:
    """Calls in one session against fresh interpreters that import the libraries for each call."""
    image = photograph()
    ours: dict[str, list[float]] = {name: [] for name in CALLS}
    fresh: dict[str, list[float]] = {name: [] for name in CALLS}
    async with Sandbox() as sandbox, await sandbox.open([image], seed=0) as session:
        await answer(session, CROP.format("jpg"))  # warm-up: decodes the picture
        for number in range(ROUNDS):
            say(f"calls: round {number + 1} of {ROUNDS}")
            for name, (code, alone) in CALLS.items():
                ours[name].append(await rate(session, code))
                fresh[name].append(await asyncio.to_thread(fresh_rate, alone, image))
    rows = []
    for name in CALLS:
        a, b = float(np.median(ours[name])), float(np.median(fresh[name]))
        rows += [
            Row("calls", f"{name}: sandbox", a, "1/s"),
            Row("calls", f"{name}: fresh interpreter", b, "1/s"),
            Row("calls", f"{name}: ratio", a / b, "x"),
        ]
    return rows


async def starts() -> list[Row]:
    """Time to open a session, with a full warm pool and from a cold start."""
    rows = []
    async with Sandbox() as sandbox:
        for name, images, count in (("no picture", [], STARTS), ("a 4K picture", [photograph()], STARTS_4K)):
            say(f"starts: {count} with {name}")
            times = []
            for _ in range(count):
                await asyncio.sleep(REFILL_SECONDS)
                began = time.perf_counter()
                session = await sandbox.open(images, seed=0)
                times.append(time.perf_counter() - began)
                await session.close()
            rows += spread("starts", f"warm, {name}", times)
    say("starts: cold")
    cold = []
    for _ in range(COLD_STARTS):
        began = time.perf_counter()
        async with Sandbox() as sandbox:
            session = await sandbox.open([], seed=0)
            cold.append(time.perf_counter() - began)
            await session.close()
    return [*rows, Row("starts", "cold, sandbox and first session", 1e3 * float(np.median(cold)), "ms")]


async def crowds() -> list[Row]:
    """Calls per second over many concurrent sessions."""
    rows = []
    image = photograph(width=640, height=480)
    async with Sandbox() as sandbox:
        for count in CROWDS:
            if count > sandbox.capacity:
                say(f"crowds: this machine holds {sandbox.capacity} sessions, not {count}")
                continue
            sessions = [await sandbox.open([image], seed=number) for number in range(count)]
            for name, code in (
                ("print", "print(1)"),
                ("crop and save as jpg", "image.crop((100, 80, 500, 380)).save('crop.jpg')"),
            ):
                say(f"crowds: {count} sessions, {name}")
                await asyncio.gather(*(answer(session, code) for session in sessions))
                times: list[float] = []
                began = time.perf_counter()
                await asyncio.gather(*(keep_calling(session, code, times) for session in sessions))
                took = time.perf_counter() - began
                rows.append(Row("crowds", f"{count} sessions: {name}", len(times) / took, "1/s"))
                rows += spread("crowds", f"{count} sessions: {name}", times)
            await asyncio.gather(*(session.close() for session in sessions))
    return rows


async def idle() -> list[Row]:
    """Memory of idle sessions, and what remains after they are closed."""
    image = photograph(width=640, height=480)
    with own_folder() as folder:
        async with Sandbox(Limits(sessions=IDLE_SESSIONS)) as sandbox:
            count = min(IDLE_SESSIONS, sandbox.capacity)
            sessions = []
            for number in range(count):
                sessions.append(await sandbox.open([image], seed=number))
                await answer(sessions[-1], f"mine = {number}")
                if number % 64 == 63:
                    say(f"idle: {number + 1} sessions")
            await asyncio.sleep(1.0)  # the pool refills
            pids = processes(folder)
            memory = sum(map(pss, pids))
            say("idle: asking each")
            runs = await asyncio.gather(*(session.run("print(mine)") for session in sessions))
            right = sum(run.output == str(number) for number, run in enumerate(runs))
            began = time.perf_counter()
        took = time.perf_counter() - began
        return [
            Row("idle", "sessions", count, ""),
            Row("idle", "processes, guardian, zygote and pool included", len(pids), ""),
            Row("idle", "memory (PSS) of all", memory / 2**20, "MiB"),
            Row("idle", "memory (PSS) a process", memory / 2**20 / len(pids), "MiB"),
            Row("idle", "sessions that answered rightly", right, ""),
            Row("idle", "end of all", 1e3 * took, "ms"),
            Row("idle", "processes left", len(processes(folder)), ""),
            Row("idle", "files left", sum(1 for _ in folder.rglob("*")), ""),
        ]


async def limits() -> list[Row]:
    """How far calls overrun their limits."""
    rows = []
    hard = SHORT.seconds + SHORT.grace
    async with Sandbox(SHORT) as sandbox, await sandbox.open([], seed=0) as session:
        say(f"limits: {TIMEOUTS} timeouts")
        times = [await ended(session, "while True: pass", "timeout") for _ in range(TIMEOUTS)]
        rows += spread("limits", "soft limit, late by", [took - SHORT.seconds for took in times])
        everything: list[float] = []
        for name, code in STUBBORN.items():
            say(f"limits: {KILLS} kills, {name}")
            times = [await ended(session, code, "killed") - hard for _ in range(KILLS)]
            rows += spread("limits", f"hard kill, {name}, late by", times)
            everything += times
        rows += spread("limits", "hard kill, all of these, late by", everything)
        say(f"limits: {LARGE_KILLS} kills with 500 MiB")
        code = LARGE + STUBBORN["loop deaf to signals"]
    async with Sandbox(replace(SHORT, seconds=0.8)) as sandbox, await sandbox.open([], seed=0) as session:
        times = [await ended(session, code, "killed") - 0.8 - SHORT.grace for _ in range(LARGE_KILLS)]
        rows += spread("limits", "hard kill, 500 MiB to give back, late by", times)
    return rows


PARTS: dict[str, Part] = {
    "calls": calls,
    "starts": starts,
    "crowds": crowds,
    "idle": idle,
    "limits": limits,
}


def photograph(*, width: int = 3840, height: int = 2160) -> bytes:
    """A textured picture, as JPEG."""
    noise = np.random.default_rng(0).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    file = io.BytesIO()
    PIL.Image.fromarray(cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)).save(file, "JPEG")
    return file.getvalue()


async def answer(session: Session, code: str) -> None:
    """Run code that must succeed: a failed call would look fast."""
    run = await session.run(code)
    assert run.status == "ok", run


async def ended(session: Session, code: str, status: str) -> float:
    """Seconds that a call takes which must end with a certain status."""
    await answer(session, "pass")
    began = time.perf_counter()
    run = await session.run(code, raw=True)  # unscanned: the scan would block some
    took = time.perf_counter() - began
    assert run.status == status, run
    return took


async def rate(session: Session, code: str) -> float:
    """Calls per second, one after the other."""
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < OURS_SECONDS:
        await answer(session, code)
        count += 1
    return count / (time.perf_counter() - began)


async def keep_calling(session: Session, code: str, times: list[float]) -> None:
    """Make one call after the other and add the seconds of each to `times`."""
    ends = time.perf_counter() + CROWD_SECONDS
    while (began := time.perf_counter()) < ends:
        await answer(session, code)
        times.append(time.perf_counter() - began)


def fresh_rate(code: str, image: bytes) -> float:
    """Calls per second if each starts a new interpreter that imports the libraries."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "image_0.jpg").write_bytes(image)
        command = [sys.executable, "-c", LOAD + code]
        began = time.perf_counter()
        for _ in range(FRESH_CALLS):
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
        return FRESH_CALLS / (time.perf_counter() - began)


def spread(part: str, what: str, seconds: list[float]) -> list[Row]:
    """The usual percentiles."""
    return [
        Row(part, f"{what}: p{percent}", 1e3 * float(np.percentile(seconds, percent)), "ms")
        for percent in (50, 90, 99)
    ]


@contextmanager
def own_folder() -> Iterator[Path]:
    """A separate folder for temporary files, so that the sandbox's processes and files can be identified."""
    kept = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="vtune-bench-") as name:
        folder = Path(name).resolve()
        # Sessions that run as other users must be able to pass through it.
        folder.chmod(0o711)
        tempfile.tempdir = str(folder)
        try:
            yield folder
        finally:
            tempfile.tempdir = kept


def processes(folder: Path) -> list[int]:
    """Processes of the sandbox below `folder`: all have its name in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        if str(folder).encode() in command:
            found.append(int(path.name))
    return found


def pss(pid: int) -> int:
    """Proportional set size of a process in bytes: shared pages are divided among the processes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def say(text: str) -> None:
    """Print progress to stderr; the numbers go to stdout."""
    print(text, file=sys.stderr, flush=True)


def table(rows: list[Row]) -> str:
    """One line per number."""
    width = max(len(row.what) for row in rows)
    lines = []
    for before, row in zip([None, *rows[:-1]], rows, strict=True):
        if before is None or before.part != row.part:
            lines += ["", f"{row.part}: {(PARTS[row.part].__doc__ or '').strip()}"]
        digits = 0 if row.unit in ("", "1/s", "x") and row.value >= 20 else 2
        digits = 0 if row.unit == "" else digits
        lines.append(f"  {row.what:{width}} {row.value:12.{digits}f} {row.unit}".rstrip())
    return "\n".join(lines).strip("\n")


async def machine() -> dict[str, Any]:
    """A description of the machine."""
    async with Sandbox(warm=0) as sandbox:
        info = sandbox.info()
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "tier": info["tier"],
        "layers": info["layers"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all if none is named"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    unknown = set(options.parts) - PARTS.keys()
    if unknown:
        parser.error(f"no part is named {', '.join(sorted(unknown))}")
    facts = asyncio.run(machine())
    rows = [row for name in PARTS if name in (options.parts or PARTS) for row in asyncio.run(PARTS[name]())]
    if options.json:
        print(json.dumps({**facts, "rows": [asdict(row) for row in rows]}, indent=2))
    else:
        print(f"{facts['cores']} cores, load {facts['load']:.1f}, tier {facts['tier']}: {facts['layers']}\n")
        print(table(rows))


if __name__ == "__main__":
    main()
