"""Two processes of one training, on this machine."""

import subprocess
import sys
from pathlib import Path

from tests.conftest import HANGS, ROOT
from tests.runs.commands import environment
from tests.update.test_deepspeed import free_port


def both_end_well(code: str, folder: Path) -> None:
    """Run code as ranks 0 and 1, until both have ended with status 0."""
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=environment(PYTHONPATH=str(ROOT), RANK=str(rank), LOCAL_RANK=str(rank), **meeting),
            cwd=folder,
        )
        for rank in range(2)
    ]
    try:
        assert [rank.wait(HANGS) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
