"""A session that survives the death of its sandbox: its calls are replayed in a new one."""

from collections.abc import Callable, Sequence
from typing import Protocol, Self

from vtune.errors import ServiceError
from vtune.sandbox import Execution, Sandbox, Session

ATTEMPTS = 3
"""Sandboxes that may fail during one call before it is given up; ours."""


class Runs(Protocol):
    """Anything that runs code and keeps its state from call to call."""

    async def run(self, code: str) -> Execution:
        """Run code; the status `infra` means that the sandbox itself failed."""


class RecoverableSession:
    """A session that is recreated, with all its calls, if the sandbox fails.

    A session's state is a function of its pictures, its seed and its calls, so the new session is in the same
    state as the old one. Created by `open`.

    Args:
        sandbox: Starts a new fork server if one has died.
        images: The input images as encoded files.
        seed: Seed of the session's random generators.
        lost: Called each time a session is lost.
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
        """Start a session.

        Raises:
            DataError: If an input is not an image.
            ServiceError: If the sandbox cannot start it, even after retries.
        """
        session = cls(sandbox, images, seed, lost)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                session._session = await sandbox.open(images, seed=seed)
                break
            except ServiceError:
                # A fork server that dies takes down the sessions that are just starting.
                if attempt == ATTEMPTS:
                    raise
                lost()
        return session

    async def run(self, code: str) -> Execution:
        """Run code, in a new session if the old one is lost; `infra` if that fails repeatedly."""
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
        """Close the session; may be called repeatedly."""
        if self._session is not None:
            await self._session.close()
