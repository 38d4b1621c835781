"""CPU time and page faults of a sandbox session, and of a bare fork after each import.

OMP_NUM_THREADS=1 python -m tests.bench.session_cost
"""

import asyncio
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

SESSIONS, FORKS, AT_ONCE = (80, 480), 200, 8
CODE = 'image.crop((140, 140, 196, 196)).save("look.png")'
CODES = {"contained code": CODE, "code that imports sys": f"import sys\n{CODE}"}
"""Code that runs in a reused process, and code that needs a new process per session."""
LIBRARIES = ("", "numpy", "PIL.Image", "cv2", "matplotlib.pyplot")
"""Imported one after the other in the same process."""


def spent() -> tuple[float, int]:
    """CPU seconds and page faults of this process and of the children that it has waited for."""
    found = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in found), sum(one.ru_minflt for one in found)


def spent_by_children(pid: int) -> tuple[float, int]:
    """The same for live children of a process, which nobody waits for before they are killed."""
    seconds, faults = 0.0, 0
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        faults += int(fields[7])
    return seconds, faults


def forks() -> None:
    """Print the cost of a fork and an exit after each import, in a separate process."""
    for library in LIBRARIES:
        before, _ = spent()
        if library:
            __import__(library)
        loaded = spent()[0] - before
        seconds, faults = _each(FORKS, _fork)
        print(f"fork with {library or 'nothing':18} {seconds * 1000:5.2f} ms {faults:5.0f} faults; "
              f"import {loaded:.2f} s")  # fmt: skip


def _each(count: int, action: Callable[[], None]) -> tuple[float, float]:
    seconds, faults = spent()
    for _ in range(count):
        action()
    after, more = spent()
    return (after - seconds) / count, (more - faults) / count


def _fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


async def sessions(count: int, code: str) -> tuple[float, int]:
    """Open sessions, run code once and close them; return what the processes alive at the end have spent."""
    from PIL import Image

    from vtune.sandbox import Limits
    from vtune.sandbox.broker import Sandbox

    out = io.BytesIO()
    Image.new("RGB", (448, 448), (9, 99, 200)).save(out, "PNG")
    async with Sandbox(Limits(sessions=2 * AT_ONCE), warm=AT_ONCE) as sandbox:

        async def one(seed: int) -> None:
            session = await sandbox.open([out.getvalue()], seed=seed)
            assert (await session.run(code)).status == "ok"
            await session.close()

        for start in range(0, count, AT_ONCE):
            await asyncio.gather(*[one(start + number) for number in range(AT_ONCE)])
        return spent_by_children(sandbox.zygote_pid)


def main() -> None:
    if sys.argv[1:] == ["forks"]:
        forks()
        return
    subprocess.run([sys.executable, "-m", "tests.bench.session_cost", "forks"], check=True)
    for name, code in CODES.items():
        totals = []
        for count in SESSIONS:
            # The sandbox's ended children are counted once the sandbox has ended, too.
            before = spent()
            living = asyncio.run(sessions(count, code))
            totals.append([sum(both) - first for *both, first in zip(spent(), living, before, strict=True)])
        seconds, faults = (
            (more - few) / (SESSIONS[1] - SESSIONS[0]) for few, more in zip(*totals, strict=True)
        )
        print(f"{name:22} {seconds * 1000:5.1f} ms a session, trainer's part included, {faults:5.0f} faults; "
              f"load {os.getloadavg()[0]:.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
