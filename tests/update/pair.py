"""Two processes of one training, on this machine."""

import socket
import subprocess
import sys
from pathlib import Path

from tests.conftest import HANGS, ROOT
from tests.runs.commands import environment


def both_end_well(code: str, folder: Path) -> None:
    """Run code as ranks 0 and 1, until both have ended with status 0."""
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    said = [folder / f"said-{rank}" for rank in range(2)]
    ranks = []
    for rank, path in enumerate(said):
        settings = environment(
            PYTHONPATH=str(ROOT), TORCHDYNAMO_DISABLE="1", RANK=str(rank), LOCAL_RANK=str(rank), **meeting
        )
        with path.open("wb") as file:
            command = [sys.executable, "-c", code]
            ranks.append(subprocess.Popen(command, env=settings, cwd=folder, stdout=file, stderr=file))
    try:
        codes = [rank.wait(HANGS) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert codes == [0, 0], "".join(path.read_text() for path in said)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
