"""Two processes of one training, on this machine."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.conftest import HANGS, ROOT
from tests.runs.commands import environment

RANKS = """
import gc, os, sys

from vtune.cli.ending import Ending

imports, code = sys.argv[1:]
exec(imports, {})
others = [task for task in os.listdir("/proc/self/task") if int(task) != os.getpid()]
threads = {open(f"/proc/self/task/{task}/comm").read().strip() for task in others}
# Arrow's allocator makes another in each rank; any other thread is one that they would wait for.
assert threads <= {"jemalloc_bg_thd"}, threads
# Nobody looks for garbage among them.
gc.collect()
gc.freeze()
ranks = []
for rank in "01":
    ranks.append(os.fork())
    if ranks[-1] == 0:
        os.environ |= {"RANK": rank, "LOCAL_RANK": rank}
        said = os.open(f"said-{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        # As the command does: gloo's threads may abort a process that is being torn down.
        ending = Ending()
        exec(code, {})
        ending.code = 0
        sys.exit()
ended = [os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]
assert ended == [0, 0], ended
"""


def both_end_well(code: str, folder: Path, *, imports: str = "") -> None:
    """Run code as ranks 0 and 1, until both have ended with status 0.

    What they import takes longer than most of what they do: both are forks of a process that has imported
    what `imports` says.
    """
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    settings = environment(PYTHONPATH=str(ROOT), TORCHDYNAMO_DISABLE="1", **meeting)
    said = folder / "said"
    with said.open("wb") as file:
        both = subprocess.Popen(
            [sys.executable, "-c", RANKS, imports, code],
            env=settings,
            cwd=folder,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        status = both.wait(HANGS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(both.pid, signal.SIGKILL)
        both.wait()
    assert status == 0, "".join(path.read_text() for path in sorted(folder.glob("said*")))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
