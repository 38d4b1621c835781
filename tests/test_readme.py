"""The pages are complete: one for every folder and verb, and a map with one line for every file."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from tests.conftest import ROOT
from tests.pages import TOPS, text_of
from vtune.cli.main import app

MAP = "vtune/README.md"
LARGE = 12
"""A package with at least this many modules must have a page."""


def modules(package: Path) -> list[Path]:
    """The files of a package, without its subpackages."""
    return sorted(path for path in package.glob("*.py") if path.name != "__init__.py")


def packages() -> list[Path]:
    """Every package of `cli/` and `vtune/`, by its path."""
    return sorted(init.parent for top in ("cli", "vtune") for init in (ROOT / top).rglob("__init__.py"))


def opening(path: Path) -> str:
    """The first paragraph of a module's docstring, on one line."""
    found = re.match(r'r?"""(.+?)(?:\n\n|""")', path.read_text(encoding="utf-8"), re.DOTALL)
    return " ".join(found[1].split()) if found else ""


def lines_of_the_map() -> Iterator[str]:
    """One line for each package, and one for each of its files."""
    for package in packages():
        yield f"{package.relative_to(ROOT).as_posix() + '/':<33} {opening(package / '__init__.py')}"
        for path in modules(package):
            yield f"{'  ' + path.name:<33} {opening(path)}"


def test_the_map_has_the_first_paragraph_of_every_module(request: pytest.FixtureRequest) -> None:
    lines = list(lines_of_the_map())
    assert len(lines) > 50
    assert [line for line in lines if len(line.split()) < 3] == []
    before, title, after = text_of(MAP).partition("## The map\n")
    intro, fence, rest = after.partition("```text\n")
    found, end, behind = rest.partition("```")
    if request.config.getoption("--golden"):
        text = "".join([before, title, intro, fence, *(f"{line}\n" for line in lines), end, behind])
        (ROOT / MAP).write_text(text, encoding="utf-8")
        found = "".join(f"{line}\n" for line in lines)
    assert found.splitlines() == lines, "`pytest tests/test_readme.py --golden` writes the map"


def test_every_folder_and_every_large_package_has_its_page() -> None:
    folders = [ROOT / top for top in TOPS]
    large = [path for path in (ROOT / "vtune").iterdir() if len(modules(path)) >= LARGE]
    assert len(folders) > 4
    assert len(large) > 4
    for folder in [*folders, *large]:
        assert (folder / "README.md").is_file(), f"{folder.relative_to(ROOT)} has no README.md"


def test_the_first_page_is_short() -> None:
    assert len(text_of("README.md").encode()) <= 10 * 1024


def test_every_verb_has_its_page() -> None:
    command = typer.main.get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    verbs = {name: verb for name, verb in command.commands.items() if not verb.hidden}
    assert len(verbs) > 10
    for name, verb in verbs.items():
        page = text_of(f"cli/{name}.md")
        assert page.startswith(f"# `vtune {name}")
        assert f"[`vtune {name}`](cli/{name}.md)" in text_of("README.md")
        if isinstance(verb, typer.core.TyperGroup):
            assert [below for below in verb.commands if below not in page] == []
