"""A session that survives the death of its sandbox: its calls are replayed in a new one."""

from collections.abc import Callable, Sequence
from typing import Protocol, Self

from vtune.errors import ServiceError
from vtune.sandbox import Execution, Sandbox, Session

ATTEMPTS = 3
"""Sandboxes that may fail under one call before the call is given up: ours."""


class Runs(Protocol):
    """Whatever runs code and keeps its state from call to call."""

    async def run(self, code: str) -> Execution:
        """Run code; the status `infra` says that the sandbox itself failed."""


class RecoverableSession:
    """A session that is made again when the sandbox failed under it, and its calls with it.

    A session's state is a function of its pictures, its seed and its calls, so the new one stands where the
    old one stood. Made by `open`.

    Args:
        sandbox: It starts another fork server where one has died.
        images: The input images as encoded files.
        seed: Of the session's random generators.
        lost: Called each time a session was lost.
    """

    def __init__(
        self, sandbox: Sandbox, images: Sequence[bytes], seed: int, lost: Callable[[], object]
    ) -> None:
        self._sandbox = sandbox
        self._images = images
        self._seed = seed
        self._lost = lost
        self._session: Session | None = None
        self._ran: list[str] = []

    @classmethod
    async def open(
        cls, sandbox: Sandbox, images: Sequence[bytes], *, seed: int, lost: Callable[[], object]
    ) -> Self:
        """Start one.

        Raises:
            DataError: If an input is not an image.
            ServiceError: If the sandbox cannot start it, whatever is tried.
        """
        session = cls(sandbox, images, seed, lost)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                session._session = await sandbox.open(images, seed=seed)
                break
            except ServiceError:
                # A fork server that dies takes the sessions along that were on their way.
                if attempt == ATTEMPTS:
                    raise
                lost()
        return session

    async def run(self, code: str) -> Execution:
        """Run code, in a new session where the old one is lost; `infra` if that fails again and again."""
        assert self._session is not None
        execution = await self._session.run(code)
        for _ in range(ATTEMPTS - 1):
            if execution.status != "infra":
                break
            self._lost()
            execution = await self._again(code)
        self._ran.append(code)
        return execution

    async def _again(self, code: str) -> Execution:
        try:
            await self.close()
            self._session = await self._sandbox.open(self._images, seed=self._seed)
        except ServiceError as error:
            return Execution(status="infra", error=str(error))
        for before in self._ran:
            await self._session.run(before)
        return await self._session.run(code)

    async def close(self) -> None:
        """End it; harmless when repeated."""
        if self._session is not None:
            await self._session.close()
