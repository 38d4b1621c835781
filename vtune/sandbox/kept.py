"""Session processes that have forgotten their trajectory and wait for the next one (see `contained`)."""

from collections.abc import Awaitable, Callable

from vtune.sandbox.forkserver import Place
from vtune.sandbox.process import Process, Server
from vtune.sandbox.waiting import is_readable

CPU_SHARE = 0.1
"""Of the CPU seconds of a session that earlier ones may have used up; ours."""


class KeptProcesses:
    """The processes of one sandbox that can be used again.

    Args:
        most: Of them at the same time.
        cpu_seconds: That a process has for all its sessions.
    """

    def __init__(self, most: int, cpu_seconds: int) -> None:
        self._most = most
        self._enough = CPU_SHARE * cpu_seconds
        self._kept: list[tuple[Process, Place]] = []

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, process: Process, place: Place) -> bool:
        """Take a process that is as good as new; False if it is not wanted."""
        if len(self._kept) >= self._most or process.spent > self._enough:
            return False
        process.kept = True
        self._kept.append((process, place))
        return True

    async def take(
        self, server: Server, remove: Callable[[str], Awaitable[None]]
    ) -> tuple[Process, Place] | None:
        """The most recently used process, which is no longer kept; None if there is not one.

        Args:
            server: The current fork server: a process of an earlier one has lost its files.
            remove: Removes the folder of a process that has ended meanwhile.
        """
        # Asked before one is taken, so that none is lost if this is cancelled.
        lives = bool(self._kept) and await server.lives()
        while self._kept:
            process, place = self._kept.pop()
            if lives and process.server is server and not is_readable(process.pidfd):
                return process, place
            # Where the fork server is only late, the process still waits, stopped.
            process.kill()
            process.close()
            await remove(place.folder)
        return None

    def abandon(self) -> None:
        """Let go of all; their folders are left to the sandbox."""
        for process, _ in self._kept:
            process.kill()
            process.close()
        self._kept.clear()
