"""Sends weights, or adapters alone, to servers through a folder that they can read."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from vtune.rollout.adapters import Adapters, written
from vtune.rollout.engine import Weights
from vtune.rollout.fleet import Fleet
from vtune.rollout.transfer import send_files


def files_sender(folder: Path, *, first: bool) -> Callable[[Weights, Fleet, str], Awaitable[None]]:
    """Sends weights to servers on CPUs, through a folder that they can read.

    Args:
        folder: For the files in transit.
        first: Whether this process sends; the others only take part in gathering.
    """

    async def send(weights: Weights, fleet: Fleet, label: str) -> None:
        if first:
            await fleet.meet()
            await send_files(weights, fleet, folder, label)
            return
        for _ in weights():
            pass

    return send


def adapters_sender(
    folder: Path, adapters: Adapters, *, first: bool
) -> Callable[[Weights, Fleet, str], Awaitable[None]]:
    """Sends adapters alone to servers, through a folder that they can read; see `files_sender`."""

    async def send(weights: Weights, fleet: Fleet, label: str) -> None:
        if not first:
            for _ in weights():
                pass
            return
        await fleet.meet()
        with written(weights, adapters, folder) as path:
            await fleet.pause()
            await fleet.take_adapters(path, label)
            await fleet.resume()

    return send
