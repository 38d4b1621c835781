"""What a worker of the tests runs where math-verify is to have less time than it has."""

import socket
from collections.abc import Sequence

from vtune.uses import Used
from vtune.verifiers import limit, worker


def work(line: socket.socket, slice_s: float | None, files: Sequence[Used]) -> None:
    """The work of a worker whose limit is 1.5 seconds of processor time (runs in the worker)."""
    limit.SECONDS = 1.5
    worker._work(line, slice_s, files)
