"""The ranks of a run on one machine, each with a watcher, started without importing torch.

`vtune` starts this module directly for a run on one machine, and through pdsh on every machine of a hostfile.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial

from vtune.runs.processes.watcher import GRACE, LOOK, die_with_parent, note_killed
from vtune.signals import orders_to_stop


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """The number of processes in a run, and where they meet."""

    port: int
    """Port on which the first process listens; free on the machine that starts the run."""
    processes: int
    """Number of processes on each machine."""
    address: str = "127.0.0.1"
    """Address of the first machine."""
    machines: int = 1
    gpus: str = ""
    """GPUs of each machine, in the form of `CUDA_VISIBLE_DEVICES`; empty: as the environment says."""

    def environment(self, machine: int, local: int) -> dict[str, str]:
        """The variables that torch and DeepSpeed read in a rank: number `local` on the given machine."""
        return {
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
            "WORLD_SIZE": str(self.processes * self.machines),
            "RANK": str(machine * self.processes + local),
            "LOCAL_RANK": str(local),
            **({"CUDA_VISIBLE_DEVICES": self.gpus} if self.gpus else {}),
        }


def command(rendezvous: Rendezvous, words: Sequence[str], *, machine: str = "0") -> list[str]:
    """The command that starts the ranks on one machine.

    Args:
        rendezvous: The rendezvous of all ranks.
        words: Arguments of the watchers.
        machine: The machine's number, or a placeholder for it.
    """
    module = "vtune.runs.processes.local_ranks"
    return [sys.executable, "-m", module, machine, json.dumps(asdict(rendezvous)), *words]


def start_all(machine: int, rendezvous: Rendezvous, words: Sequence[str]) -> int:
    """Start the watchers and wait for them; runs in a separate process.

    Once one of them has failed, the others see it in the run's folder and end their ranks; whatever is left
    some seconds later ends with this process. Orders to stop are for the watchers, and are blocked here.

    Args:
        machine: The number of this machine.
        rendezvous: The rendezvous of all ranks.
        words: Arguments of the watchers.

    Returns:
        0, or the exit status of the first watcher that failed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, orders_to_stop())
    watchers = [
        subprocess.Popen(
            [sys.executable, "-m", "vtune.runs.processes.watcher", *words],
            env={**os.environ, **rendezvous.environment(machine, local)},
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
        for local in range(rendezvous.processes)
    ]
    first, deadline, over = 0, float("inf"), False
    while not over and time.monotonic() < deadline:
        codes = [watcher.poll() for watcher in watchers]
        over = None not in codes
        failed = [(local, code) for local, code in enumerate(codes) if code]
        if not first and failed:
            first, deadline = failed[0][1], time.monotonic() + GRACE
            for local, code in failed:
                if code < 0:
                    note_killed(words, machine * rendezvous.processes + local, code)
        if not over:
            time.sleep(LOOK)
    return first if first >= 0 else 128 - first


if __name__ == "__main__":
    raise SystemExit(start_all(int(sys.argv[1]), Rendezvous(**json.loads(sys.argv[2])), sys.argv[3:]))
