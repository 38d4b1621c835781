"""The text of pages, some of which take the extractor minutes or end its process."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from tests.tools.web_server import ARTICLE, FACT
from vtune.errors import ServiceError
from vtune.tools import page_text
from vtune.tools.fetch import NotRead
from vtune.tools.page_text import PageText

GOOD = ARTICLE.format(FACT)
SLOW = "<body>" + "<p>a b" * 600_000
"""Takes the extractor minutes."""


def used(timeout_s: float, body: Callable[[PageText], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with aclosing(PageText(timeout_s)) as text:
            return await body(text)

    return asyncio.run(main())


def test_a_page_that_takes_minutes_is_given_up_and_its_process_is_gone() -> None:
    async def body(text: PageText) -> None:
        with pytest.raises(NotRead, match=r"its text was not found within 0\.5 s") as error:
            await text.of(SLOW)
        assert error.value.passing
        assert not text._all
        text._timeout_s = 60
        assert FACT in await text.of(GOOD)

    used(0.5, body)


def test_one_process_reads_page_after_page() -> None:
    async def body(text: PageText) -> list[str]:
        found = [await text.of(GOOD.replace("Paris", city)) for city in ("Ulm", "Bern \ud83d")]
        assert len(text._all) == 1
        return [*found, await text.of("")]

    ulm, bern, none = used(60, body)
    assert ("Ulm" in ulm, "Bern ?" in bern, none) == (True, True, "")


def test_a_cancelled_page_does_not_answer_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_text, "PROCESSES", 1)

    async def body(text: PageText) -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await text.of(SLOW)
        return await text.of(GOOD)

    assert FACT in used(60, body)


def test_pages_in_progress_do_not_delay_the_end() -> None:
    async def body(text: PageText) -> None:
        task = asyncio.create_task(text.of(SLOW))
        await asyncio.sleep(2)
        await text.aclose()
        # No fault of the page, which a record would keep.
        with pytest.raises(ServiceError, match="no longer read"):
            await task
        with pytest.raises(ServiceError, match="no longer read"):
            await text.of(GOOD)
        assert not text._all

    used(600, body)


def test_a_process_that_was_ended_while_idle_costs_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_text, "PROCESSES", 1)

    async def body(text: PageText) -> str:
        await text.of(GOOD)
        (process,) = text._all
        process.kill()
        await process.wait()
        return await text.of(GOOD)

    assert FACT in used(60, body)


def test_a_page_does_not_wait_long_for_slow_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_text, "PROCESSES", 1)

    async def body(text: PageText) -> None:
        text._timeout_s = 600
        slow = asyncio.create_task(text.of(SLOW))
        await asyncio.sleep(0.1)
        text._timeout_s = 0.5
        with pytest.raises(NotRead, match="not found within") as error:
            await text.of(GOOD)
        assert error.value.passing
        slow.cancel()

    used(600, body)


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", (NotRead, "SIGKILL")),
        ("raise ImportError('lxml')", (ServiceError, "status 1")),
    ],
)
def test_a_process_that_dies_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, problem: tuple[type[Exception], str]
) -> None:
    (tmp_path / "program.py").write_text(program)
    monkeypatch.setattr(page_text, "PROGRAM", tmp_path / "program.py")
    kind, words = problem
    with pytest.raises(kind, match=words):
        used(60, lambda text: text.of(GOOD))


def test_an_extractor_that_fails_on_a_page_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trafilatura.py").write_text("def extract(html):\n    raise RecursionError\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(NotRead, match="RecursionError"):
        used(60, lambda text: text.of(GOOD))


def test_processes_that_cannot_be_started_are_our_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ServiceError, match="pages cannot be read"):
        used(60, lambda text: text.of(GOOD))
