"""A part with a missing `async` or decorator: the error says so with the line."""

from pathlib import Path

import pytest

from tests.runs.commands import vtune
from tests.runs.parts.test_parts import OWN

pytestmark = pytest.mark.usefixtures("forgetting")


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("rotate.py", "    async def run", "    def run", "`run` is not `async`: it returns Observation"),
        ("maze.py", "async def open_maze", "def open_maze", "`open_maze` is not `async`: it returns Maze"),
        ("maze.py", "    async def observe", "    def observe", "`observe` is not `async`: it returns list"),
        ("maze.py", "    async def outcome", "    def outcome", "`outcome` is not `async`: it returns Outc"),
        (
            "maze.py",
            "    def drawn",
            "    def close(self) -> None:\n        pass\n\n    def drawn",
            "`close` is not `async`: it returns NoneType at once",
        ),
        ("brief.py", "async def brief", "def brief", "`brief` is not `async`: it returns Verdict at once"),
        ("near.py", "    async def judge", "    def judge", "`judge` is not `async`: it returns Verdict"),
        ("near.py", "    async def shows_small", "    def shows_small", "`shows_small` is not `async`: it"),
    ],
)  # fmt: skip
def test_a_forgotten_async_is_named_with_its_line(
    tmp_path: Path, file: str, old: str, new: str, said: str
) -> None:
    text = (OWN / file).read_text()
    assert old in text
    path = tmp_path / "mine.py"
    text = text.replace(old, new)
    if "`judge`" in said:
        text = text.replace("if await self.shows_target(sample, trajectory, k):", "if k == 0:")
    path.write_text(text)
    name = said.split("`")[1]
    line = next(
        number
        for number, one in enumerate(text.splitlines(), 1)
        if f" {name}(" in f" {one}" and "def " in one
    )
    ended = vtune("parts", "check", path)
    assert ended.code == 1, ended.err
    lines = ended.out.splitlines()
    at, *_ = [number for number, one in enumerate(lines) if "BROKEN" in one]
    assert said in lines[at]
    assert f"(mine.py:{line})" in lines[at]
    assert lines[at + 1].split() == ["fix", "write", "`async", "def", f"{name}(…)`"]


@pytest.mark.parametrize(
    ("old", "new", "given"),
    [
        ("@asynccontextmanager\n", "", "async_generator"),
        ("async def opened", "def opened", "generator"),
        ("    yield Rotate()", "    return Rotate()", "coroutine"),
        ("@asynccontextmanager\nasync def", "def", "generator"),
    ],
)
def test_a_tool_that_cannot_be_entered_says_how_it_is_opened(
    tmp_path: Path, old: str, new: str, given: str
) -> None:
    text = (OWN / "rotate.py").read_text()
    assert old in text
    path = tmp_path / "mine.py"
    path.write_text(text.replace(old, new))
    ended = vtune("parts", "check", path)
    assert ended.code == 1, ended.err
    assert f"`opened` returns {given}, not an asynchronous context manager (mine.py)" in ended.out
    assert "fix  write `@asynccontextmanager` above `async def opened(section, record)`, and" in ended.out
