"""A few processes of one training on this machine."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.conftest import HANGS, ROOT
from tests.runs.commands import environment
from vtune.models.network import free_port

RANKS = """
import gc, os, sys

from vtune.cli.ending import Ending

imports, code, processes = sys.argv[1:]
# Nobody looks for garbage among what is imported.
gc.disable()
exec(imports, {})
others = [task for task in os.listdir("/proc/self/task") if int(task) != os.getpid()]
threads = {open(f"/proc/self/task/{task}/comm").read().strip() for task in others}
# Arrow's allocator makes another in each rank; any other thread is one that they would wait for.
assert threads <= {"jemalloc_bg_thd"}, threads
gc.collect()
gc.freeze()
gc.enable()
ranks = []
for rank in range(int(processes)):
    ranks.append(os.fork())
    if ranks[-1] == 0:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        said = os.open(f"said-{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        # As the command does: gloo's threads may abort a process that is being torn down.
        ending = Ending()
        exec(code, {})
        ending.code = 0
        sys.exit()
ended = [os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]
assert not any(ended), ended
"""


def both_end_well(code: str, folder: Path, *, imports: str = "") -> None:
    """Run code as ranks 0 and 1, and wait until both have ended with status 0."""
    all_end_well(code, folder, processes=2, imports=imports)


def all_end_well(code: str, folder: Path, *, processes: int, imports: str = "") -> None:
    """Run code as each of these ranks, and wait until all have ended with status 0.

    Imports take longer than most of their work, so they are forked from a process that has already run
    `imports`.
    """
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(processes)}
    settings = environment(PYTHONPATH=str(ROOT), TORCHDYNAMO_DISABLE="1", **meeting)
    said = folder / "said"
    with said.open("wb") as file:
        ranks = subprocess.Popen(
            [sys.executable, "-c", RANKS, imports, code, str(processes)],
            env=settings,
            cwd=folder,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        status = ranks.wait(HANGS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(ranks.pid, signal.SIGKILL)
        ranks.wait()
    assert status == 0, "".join(path.read_text() for path in sorted(folder.glob("said*")))
