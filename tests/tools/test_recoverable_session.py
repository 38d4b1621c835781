"""A conversation does not notice if its sandbox dies."""

import asyncio
import os
import signal
from collections.abc import Sequence

import pytest

from tests.sandbox.conftest import encoded, picture
from vtune.errors import ServiceError
from vtune.sandbox import Execution, Sandbox, Session
from vtune.tools.recoverable_session import ATTEMPTS, RecoverableSession

CALLS = (
    "x = 1; import random; open('note.txt', 'w').write('kept')",
    "x += 1; print(x, open('note.txt').read(), random.random())",
    "x += 1; print(x, image.size); image.crop((0, 0, 4, 4)).save('crop.png')",
)


async def talk(sandbox: Sandbox, deaths: int) -> tuple[list[Execution], int]:
    """Run the calls, killing the fork server before the third; also return how often a session was lost."""
    lost: list[None] = []
    session = await RecoverableSession.open(
        sandbox, [encoded(picture())], seed=7, lost=lambda: lost.append(None)
    )
    found = [await session.run(code) for code in CALLS[:2]]
    for _ in range(deaths):
        os.kill(sandbox.zygote_pid, signal.SIGKILL)
        await asyncio.sleep(0.2)
    found.append(await session.run(CALLS[2]))
    await session.close()
    return found, len(lost)


def test_a_session_continues_unchanged_after_its_sandbox_dies() -> None:
    async def story() -> list[tuple[list[Execution], int]]:
        async with Sandbox() as sandbox:
            return [await talk(sandbox, deaths) for deaths in (0, 1)]

    (calm, none), (shaken, once) = asyncio.run(story())
    assert (none, once) == (0, 1)
    assert [e.status for e in shaken] == ["ok"] * 3
    assert calm[2].output.startswith("3 (")
    for one, other in zip(calm, shaken, strict=True):
        assert (one.output, one.images, one.crops) == (other.output, other.images, other.crops)


class Dying(Sandbox):
    """Its fork server dies while the first sessions are being opened."""

    deaths = 0

    async def open(self, images: Sequence[bytes], *, seed: int) -> Session:
        if self.deaths:
            self.deaths -= 1
            raise ServiceError("the sandbox's session did not start")
        return await super().open(images, seed=seed)


def test_a_session_lost_while_opening_is_opened_again() -> None:
    async def opened(sandbox: Dying, deaths: int) -> None:
        lost: list[None] = []
        sandbox.deaths = deaths
        session = await RecoverableSession.open(sandbox, [], seed=0, lost=lambda: lost.append(None))
        assert (await session.run("print(1)")).output == "1"
        assert len(lost) == deaths
        await session.close()

    async def story() -> None:
        async with Dying() as sandbox:
            await opened(sandbox, ATTEMPTS - 1)
            with pytest.raises(ServiceError, match="did not start"):
                await opened(sandbox, ATTEMPTS)

    asyncio.run(story())


class Dead(Sandbox):
    async def open(self, images: object, *, seed: int) -> "DeadSession":  # type: ignore[override]
        return DeadSession()


class DeadSession:
    runs = 0

    async def run(self, code: str) -> Execution:
        DeadSession.runs += 1
        return Execution(status="infra", error="no memory")

    async def close(self) -> None:
        return None


def test_a_sandbox_that_never_starts_is_given_up() -> None:
    async def ask() -> Execution:
        lost: list[None] = []
        session = await RecoverableSession.open(Dead(), [], seed=0, lost=lambda: lost.append(None))
        found = await session.run("print(1)")
        assert len(lost) == ATTEMPTS - 1
        return found

    DeadSession.runs = 0
    assert asyncio.run(ask()) == Execution(status="infra", error="no memory")
    assert DeadSession.runs == ATTEMPTS
