"""Reward services in separate processes, as users start them."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests import served


class Served(served.Served):
    def workers(self) -> list[int]:
        """Ids of its verifier processes: live children of the fork server."""
        servers = [pid for pid in children(self.process.pid) if "forkserver" in command(pid)]
        return [pid for server in servers for pid in children(server)]


@contextmanager
def serving(*options: str) -> Iterator[Served]:
    with served.serving("rewards", *options) as one:
        yield Served(one.process, one.facts)


def children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:
        return []


def command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def alive(pid: int) -> bool:
    """Whether a process runs; zombies do not count."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
