"""Work in the event loop runs for a while, then yields to the loop; the clock is a fake one."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sandbox.pieces import Clock, turns_of_pieces
from vtune.sandbox import Limits, watch
from vtune.sandbox.forkserver import Place
from vtune.sandbox.guest import folders
from vtune.sandbox.session import Session
from vtune.sandbox.turns import AT_A_TIME, Turns
from vtune.sandbox.workspace import Workspace

SESSIONS = 32


def test_work_goes_on_until_its_time_is_up_and_then_the_loop_turns() -> None:
    clock = Clock()
    turns = Turns(clock)
    order: list[int] = []

    async def work(piece: Callable[[], None]) -> None:
        async def one(number: int) -> None:
            await turns.next()
            order.append(number)
            piece()

        await asyncio.gather(*map(one, range(20)))

    pieces = turns_of_pieces(work, clock)
    assert order == list(range(20))
    assert max(pieces.values()) == 3
    assert len(pieces) == 7


def test_an_event_loop_that_ended_in_the_middle_of_its_turn_stops_no_other() -> None:
    clock = Clock()
    turns = Turns(clock)

    async def once() -> None:
        await turns.next()
        clock.now += 2 * AT_A_TIME

    asyncio.run(once())
    asyncio.run(asyncio.wait_for(once(), 5))


class Answering:
    """A process that answers at once, having left a picture."""

    closed, kept, pid, server = False, False, 1, None

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.server = self

    async def ask(self, message: dict[str, Any], *_: object, **__: object) -> dict[str, Any]:
        if "code" not in message:
            return {"ready": True}
        (self.workspace / "look.png").write_bytes(b"picture")
        return {"status": "ok", "error": "", "written": ["look.png"], "broken": [], "crops": []}

    def printed(self) -> str:
        return ""

    def alive(self) -> bool:
        return True


def made(session: Path) -> tuple[Path, Place]:
    """The folders of a session."""
    folders.make_session(str(session), None)
    return session / folders.WORKSPACE, Place(str(session), None)


def session_of(images: Sequence[tuple[str, bytes]], turns: Turns, spawn: Any, decode: Any = None) -> Session:
    """A session that is not kept, and has no pixel files for its inputs."""
    nothing: Any = None
    return Session(
        images, 0, Limits(), turns, spawn, decode, nothing, nothing, nothing, set(), lambda *_: False
    )


def test_answers_of_many_sessions_that_come_at_once_are_read_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    turns = Turns(clock)

    async def work(piece: Callable[[], None]) -> None:
        def told(work: Callable[..., Any]) -> Callable[..., Any]:
            def also(*given: Any, **named: Any) -> Any:
                piece()
                return work(*given, **named)

            return also

        async def decoded(content: bytes, contained: bool) -> bytes:
            piece()
            return content

        async def one(number: int) -> bytes:
            workspace, place = made(tmp_path / f"s{number}")

            async def spawn(_: Place | None) -> Any:
                return Answering(workspace), place

            session = session_of([], turns, spawn, decoded)
            await session.start()
            return (await session.run("1")).images[0]

        monkeypatch.setattr(Workspace, "new_pictures", told(Workspace.new_pictures))
        assert await asyncio.gather(*map(one, range(SESSIONS))) == [b"picture"] * SESSIONS

    pieces = turns_of_pieces(work, clock)
    assert sum(pieces.values()) == 2 * SESSIONS
    assert max(pieces.values()) <= 3


def test_inputs_of_many_sessions_that_start_at_once_are_written_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    turns = Turns(clock)

    async def work(piece: Callable[[], None]) -> None:
        def told(self: Workspace, names: Sequence[str]) -> None:
            piece()
            link(self, names)

        async def one(number: int) -> None:
            workspace, place = made(tmp_path / f"s{number}")

            async def spawn(_: Place | None) -> Any:
                return Answering(workspace), place

            session = session_of([("a.png", b"1")], turns, spawn)
            await session.start()
            assert (workspace.parent / "in/a.png").read_bytes() == b"1"

        link = Workspace.link_inputs
        monkeypatch.setattr(Workspace, "link_inputs", told)
        await asyncio.gather(*map(one, range(SESSIONS)))

    pieces = turns_of_pieces(work, clock)
    assert sum(pieces.values()) == SESSIONS
    assert max(pieces.values()) <= 3


def test_the_files_of_many_running_calls_are_looked_at_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "WATCH_SECONDS", 0.0)
    clock = Clock()
    # If the machine paused for a moment, a check would seem slow, and the next one would wait accordingly.
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=clock))
    turns = Turns(clock)

    async def work(piece: Callable[[], None]) -> None:
        class Running(Answering):
            def waited(self) -> float:
                return 0.0

            def unlinked_bytes(self) -> int:
                piece()
                return 0

        async def one(number: int) -> None:
            workspace, place = made(tmp_path / f"s{number}")
            files = Workspace.of(place.folder, turns, max_files=9, max_bytes=9)
            assert await watch.watch(Running(workspace), files, Limits(), turns, 0.0)() < 1  # type: ignore[arg-type]
            files.close()

        await asyncio.gather(*map(one, range(SESSIONS)))

    pieces = turns_of_pieces(work, clock)
    assert sum(pieces.values()) == SESSIONS
    assert max(pieces.values()) <= 3
