"""Session processes that forget their trajectory and wait for the next one (see `contained`)."""

import asyncio
from collections.abc import Awaitable, Callable

from vtune.sandbox.forkserver import Place
from vtune.sandbox.process import Process, ProtocolError, Server, for_seconds

FORGET_SECONDS = 20.0
"""Time for a process to forget a trajectory; ours, generous for a busy machine."""
CPU_SHARE = 0.1
"""Share of a session's CPU seconds that earlier sessions may have used up; ours."""


class KeptProcesses:
    """The processes of one sandbox that can be used again.

    Args:
        most: How many to keep at the same time.
        cpu_seconds: CPU seconds that a process has for all its sessions.
    """

    def __init__(self, most: int, cpu_seconds: int) -> None:
        self._most = most
        self._enough = CPU_SHARE * cpu_seconds
        self._kept: list[tuple[Process, Place]] = []
        self._asking: asyncio.Future[bool] | None = None
        """Whether the fork server is alive, while that question is pending."""

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, process: Process, place: Place) -> bool:
        """Take a process that has been told to forget its trajectory; False if it is not wanted."""
        if len(self._kept) >= self._most:
            return False
        process.kept = True
        self._kept.append((process, place))
        return True

    async def take(
        self, server: Server, remove: Callable[[str], Awaitable[None]]
    ) -> tuple[Process, Place] | None:
        """The most recently used process that is as good as new, no longer kept; None if there is none.

        Args:
            server: The current fork server; processes of an earlier one have lost their files.
            remove: Removes the folder of a process that has ended in the meantime.
        """
        # Ask before taking one, so that none is lost if this is cancelled.
        lives = bool(self._kept) and await self._lives(server)
        while self._kept:
            process, place = self._kept.pop()
            try:
                usable = lives and process.server is server and await self._has_forgotten(process)
            except BaseException:
                # The caller was cancelled: put the process back, unless everything has ended in the meantime.
                if not self.keep(process, place):
                    process.kill()
                    process.close()
                raise
            if usable:
                return process, place
            process.kill()
            process.close()
            await remove(place.folder)
        return None

    async def _lives(self, server: Server) -> bool:
        """As `server.lives`, but asked only once for all callers at the same moment."""
        if self._asking is None:
            self._asking = asyncio.ensure_future(server.lives())
            self._asking.add_done_callback(self._answered)
        return await asyncio.shield(self._asking)

    def _answered(self, _: object) -> None:
        self._asking = None

    async def _has_forgotten(self, process: Process) -> bool:
        """Whether a process has forgotten its trajectory, and may serve another."""
        try:
            answer = await process.told(for_seconds(FORGET_SECONDS))
        except (OSError, EOFError, ProtocolError):
            return False
        spent = answer.get("spent")
        return answer.get("ready") is True and isinstance(spent, float) and spent <= self._enough

    def abandon(self) -> None:
        """Kill all kept processes and accept no more; their folders are left to the sandbox."""
        self._most = 0
        for process, _ in self._kept:
            process.kill()
            process.close()
        self._kept.clear()
