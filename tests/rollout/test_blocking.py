"""User code that blocks the event loop is named by its line."""

import asyncio
import re
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.environments.worlds import changed, maze, using, way
from tests.rollout.build import FakeSandbox, job, recipe
from tests.rollout.scripted import ScriptedEngine
from tests.verifiers.cases import sample
from vtune import uses
from vtune.models.policy import Policy
from vtune.rollout import blocking
from vtune.rollout.agent import Agent
from vtune.rollout.blocking import Blocking
from vtune.verifiers import VERIFIERS, verdict_on
from vtune.verifiers.verifier import answered

SOURCE = """
import asyncio
import time

async def sleeps(seconds):
    time.sleep(seconds)

async def often(times, seconds):
    for _ in range(times):
        time.sleep(seconds)
        await asyncio.sleep(0)

def plain(seconds):
    time.sleep(seconds)

def verify(reply, sample):
    time.sleep(LONG)
    return answered(1.0, "it is")

async def waits(seconds):
    await asyncio.sleep(seconds)
"""
MAIN = threading.main_thread().ident or 0
TICK = 0.02
LONG = 2 * TICK * blocking.LOOKS


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A user's file, loaded as in a run; the watcher samples it frequently."""
    monkeypatch.setattr(blocking, "TICK", TICK)
    monkeypatch.setattr(uses, "_check_added", lambda file, others: None)  # the file adds no part
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    (file,) = uses.use([path])
    yield sys.modules[file.module]
    uses.forget([file])


def said(*calls: Awaitable[None]) -> list[str]:
    """The messages about calls that run concurrently."""
    lines: list[str] = []
    block = Blocking(lines.append)

    async def all_of_them() -> None:
        with block.watched():
            await asyncio.gather(*calls)

    asyncio.run(all_of_them())
    return lines


def test_a_blocking_line_is_named_while_it_runs(mine: Any) -> None:
    (line,) = said(mine.sleeps(LONG), mine.waits(0))
    assert re.match(
        r"mine\.py:6 \(time\.sleep\(seconds\)\) blocked the event loop for \d+% of the last", line
    )
    assert "asyncio.to_thread" in line


def test_a_verifier_is_advised_to_use_a_worker_and_other_code_to_be_faster(
    mine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine.LONG, mine.answered = LONG, answered
    monkeypatch.setitem(VERIFIERS._added, "mine", replace(VERIFIERS["exact"], verify=mine.verify))

    async def judges() -> None:
        verdict_on("red", sample("mine", "red"))

    async def asks() -> None:
        mine.plain(LONG)

    (line,) = said(judges())
    assert line.endswith("set in_worker=True, so that its verifier runs in its own process")
    (line,) = said(asks())
    assert "it is not awaited: make it faster" in line


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Handle Ctrl-C, which xdist workers ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_after_ctrl_c_a_line_that_does_not_end_is_named(mine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "WAIT", TICK)
    lines: list[str] = []
    before = signal.getsignal(signal.SIGINT)

    async def pressed() -> None:
        await asyncio.sleep(0)
        signal.raise_signal(signal.SIGINT)
        await mine.sleeps(LONG)

    with pytest.raises(KeyboardInterrupt):
        blocking.to_end(pressed(), lines.append)
    (line,) = lines
    assert line.startswith("interrupted, and waiting for mine.py:6 (time.sleep(seconds)) to return; a second")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("interruptible")
def test_a_second_ctrl_c_ends_at_once(mine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "WAIT", TICK)

    async def pressed() -> None:
        signal.raise_signal(signal.SIGINT)
        await mine.sleeps(60.0)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        # The user reads the line and presses Ctrl-C again.
        blocking.to_end(pressed(), lambda line: signal.pthread_kill(MAIN, signal.SIGINT))
    assert time.monotonic() - began < 30.0


@pytest.mark.usefixtures("interruptible")
def test_a_run_that_ends_by_itself_after_ctrl_c_prints_nothing() -> None:
    lines: list[str] = []

    async def pressed() -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(60.0)

    with pytest.raises(KeyboardInterrupt):
        blocking.to_end(pressed(), lines.append)
    assert lines == []


def test_many_short_consecutive_calls_are_named_once(mine: Any) -> None:
    assert len(said(mine.often(40, LONG / 40), mine.often(40, LONG / 40))) == 1


def test_awaiting_and_short_calls_are_not_named(mine: Any) -> None:
    assert said(mine.waits(LONG), mine.sleeps(2 * TICK)) == []


def test_only_user_code_is_named(mine: Any) -> None:
    async def ours() -> None:
        time.sleep(LONG)

    assert said(ours(), mine.waits(0)) == []


def test_nothing_is_watched_without_a_user_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking.threading, "Thread", lambda **_: pytest.fail("a thread was started"))
    assert said(asyncio.sleep(0)) == []


def test_an_environment_that_blocks_is_named_by_the_agent(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking, "TICK", TICK)
    sleeps = ("named = [move", f"import time; time.sleep({LONG})\n        named = [move")
    lines: list[str] = []
    with using(changed(tmp_path, sleeps)):
        engine = ScriptedEngine(policy.chat, way())
        agent = Agent(
            engine, FakeSandbox(), policy.chat, policy.pictures, recipe(max_tokens=2000), warn=lines.append
        )
        asyncio.run(agent.run([job(maze())]))
    assert [one.partition(" blocked")[0] for one in lines] == [
        f"maze.py:35 (import time; time.sleep({LONG}))"
    ]
