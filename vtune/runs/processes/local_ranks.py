"""The ranks of a run on this machine alone: a watcher for each, started without importing torch.

DeepSpeed's launcher does the same for many machines, and imports all of DeepSpeed twice before it starts one.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from vtune.runs.processes.watcher import GRACE, LOOK


def start_all(processes: int, port: int, words: Sequence[str]) -> int:
    """Start the watchers and wait for them; in a process of its own.

    Once one of them has failed, the others see it in the run's folder and end their ranks; what is not gone
    some seconds later ends with this process. SIGTERM, which is for the watchers, is blocked here.

    Args:
        processes: How many ranks.
        port: A free one, where the ranks meet.
        words: What a watcher is given.

    Returns:
        0, or the exit status of the first that failed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes)}
    watchers = [
        subprocess.Popen(
            [sys.executable, "-m", "vtune.runs.processes.watcher", *words],
            env={**os.environ, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(processes)
    ]
    first, deadline = 0, float("inf")
    while any(watcher.poll() is None for watcher in watchers) and time.monotonic() < deadline:
        if not first and (failed := [watcher.returncode for watcher in watchers if watcher.returncode]):
            first, deadline = failed[0], time.monotonic() + GRACE
        time.sleep(LOOK)
    first = first or next((watcher.returncode for watcher in watchers if watcher.returncode), 0)
    return first if first >= 0 else 128 - first


if __name__ == "__main__":
    raise SystemExit(start_all(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
