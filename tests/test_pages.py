"""The pages are correct: links lead somewhere, commands parse, and named files exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from tests.conftest import ROOT
from tests.pages import PAGES, TOPS, anchors, blocks, command_lines, goal, links, spans
from vtune.cli.main import app
from vtune.config import find, load_recipe, shipped

ROOT_COMMAND = typer.main.get_command(app)
PRESENT = [page for page in PAGES if page != "CHANGELOG.md"]
"""Pages about the present state; the changelog also names things of the past."""


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_a_heading(page: str) -> None:
    for target in links(page):
        file, anchor = goal(page, target)
        assert file.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(file.relative_to(ROOT).as_posix()), f"{page}: {target}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, todo = {"README.md"}, ["README.md"]
    while todo:
        page = todo.pop()
        files = {goal(page, target)[0] for target in links(page)}
        new = {file.relative_to(ROOT).as_posix() for file in files if file.suffix == ".md"} - seen
        seen |= new
        todo += new
    assert len(PAGES) > 20
    assert sorted(seen) == PAGES


@pytest.mark.parametrize("page", PRESENT)
def test_every_command_line_in_a_block_parses(page: str) -> None:
    for args in command_lines(page):
        parsed(args)


def parsed(args: list[str]) -> tuple[str, typer.Context]:
    """The path of the command that the arguments select, and its context; nothing is run."""
    command, path = ROOT_COMMAND, "vtune"
    while isinstance(command, TyperGroup):
        assert args, f"{path} lacks a verb"
        if args[0].startswith("-"):
            break
        assert args[0] in command.commands, f"{path} has no verb {args[0]!r}"
        command, path, args = command.commands[args[0]], f"{path} {args[0]}", args[1:]
    try:
        return path, command.make_context(path, list(args))
    except TyperException as error:
        raise AssertionError(f"{path} {' '.join(args)}: {error}") from None


def test_command_lines_are_found_and_wrong_ones_detected() -> None:
    assert sum(len(list(command_lines(page))) for page in PRESENT) > 50
    for wrong in ("rll", "rl --recipee codev", "data make", "rl --gpus many", "curate"):
        with pytest.raises(AssertionError):
            parsed(wrong.split())


@pytest.mark.parametrize("page", PRESENT)
def test_recipes_and_overrides_in_command_lines_exist(page: str) -> None:
    from vtune.runs.curate.recipe import DataRecipe
    from vtune.runs.evaluate.groups import asked
    from vtune.runs.evaluate.suite import EvalSuite
    from vtune.runs.sweep.recipe import load_sweep
    from vtune.runs.train.rl_recipe import RLRecipe
    from vtune.runs.train.sft_recipe import SFTRecipe

    kinds = {
        "vtune sft": ("recipe", "recipes.sft", SFTRecipe),
        "vtune rl": ("recipe", "recipes.rl", RLRecipe),
        "vtune eval": ("suite", "eval_suites", EvalSuite),
        "vtune curate": ("data_recipe", "data_recipes", DataRecipe),
    }
    for args in command_lines(page):
        path, context = parsed(args)
        if path not in kinds:
            continue
        key, folder, kind = kinds[path]
        if context.params[key] is None or Path(context.params[key]).suffix:
            continue  # the reader's own file
        given = list(context.params["overrides"] or [])
        if path == "vtune eval":
            given += [f"{one}={context.params[one]}" for one in ("agent", "protocol") if context.params[one]]
            names = [named.path for named in asked(context.params[key]).suites]
        else:
            names = [find(context.params[key], folder)]
        if sweep := context.params.get("sweep"):
            load_sweep(shipped("recipes.sweep")[sweep], names[0], given)
            continue
        for name in names:
            load_recipe(name, kind, given)


def test_the_data_recipes_on_the_page_can_be_read(tmp_path: Path) -> None:
    from vtune.runs.curate.recipe import DataRecipe

    complete, pass_rate = (text for text in blocks("data_recipes/README.md") if "filters:" in text)
    path = tmp_path / "recipe.yaml"
    path.write_text(complete)
    assert len(load_recipe(path, DataRecipe).filters) == 4
    path.write_text("records: samples\nsources: {math: {files: [math.parquet]}}\n" + pass_rate)
    (spec,) = load_recipe(path, DataRecipe).filters
    assert spec.filter == "pass_rate"


@pytest.mark.parametrize("page", PAGES)
def test_verbs_and_options_in_the_text_exist(page: str) -> None:
    for span in spans(page):
        if span.startswith("vtune "):
            assert wrong_words(span) == [], f"{page}: `{span}`"


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("cli/")])
def test_every_option_that_a_page_of_a_verb_names_exists(page: str) -> None:
    known = {
        option for command in every_command(ROOT_COMMAND) for param in command.params for option in param.opts
    }
    assert len(known) > 50
    for span in spans(page):
        if span.startswith("--"):
            assert span.split()[0].partition("=")[0] in known | {"--help"}, f"{page}: `{span}`"


def every_command(command: TyperCommand | TyperGroup) -> Iterator[TyperCommand | TyperGroup]:
    """A command and all its subcommands."""
    yield command
    if isinstance(command, TyperGroup):
        for below in command.commands.values():
            yield from every_command(below)


def wrong_words(span: str) -> list[str]:
    """The verbs and options of a command in running text that do not exist; `a|b` means each of both."""
    commands: list[TyperCommand | TyperGroup] = [ROOT_COMMAND]
    wrong = []
    for word in re.sub(r"[\[\]]", " ", span).split()[1:]:
        groups = [command for command in commands if isinstance(command, TyperGroup)]
        if word.startswith("--"):
            known = {option for command in commands for param in command.params for option in param.opts}
            wrong += [] if word.partition("=")[0] in known | {"--help"} else [word]
        elif groups and not (word.isupper() or word == "…"):
            names = {name: command for group in groups for name, command in group.commands.items()}
            wrong += [name for name in word.split("|") if name not in names]
            commands = [names[name] for name in word.split("|") if name in names]
        elif groups:
            break  # a placeholder: VERB, …
    return wrong


def test_wrong_verbs_and_options_are_detected() -> None:
    assert wrong_words("vtune data make lens|shapes --out DIR") == []
    assert wrong_words("vtune data make lens|shape") == ["shape"]
    assert wrong_words("vtune rl --sweeps S") == ["--sweeps"]


@pytest.mark.parametrize("page", PRESENT)
def test_every_file_that_a_page_names_exists(page: str) -> None:
    named = re.compile(rf"(?<![\w./-])(?:{'|'.join(TOPS)})/[\w./-]+\.(?:py|yaml|md|txt)\b")
    for text in [*spans(page), *blocks(page)]:
        for file in named.findall(text):
            assert (ROOT / file).is_file(), f"{page}: {file}"
        for module in re.findall(r"python -m (tests[\w.]+)", text):
            path = ROOT / module.replace(".", "/")
            there = path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
            assert there, f"{page}: {module}"
    for span in spans(page):
        if page.startswith("vtune/") and re.fullmatch(r"\w+\.py", span):
            assert list((ROOT / page).parent.rglob(span)), f"{page}: {span}"


@pytest.mark.parametrize("page", PRESENT)
def test_every_make_target_that_a_page_names_exists(page: str) -> None:
    targets = set(re.findall(r"^([.a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for text in [*spans(page), *blocks(page)]:
        for line in text.splitlines():
            if line.startswith("make "):
                assert line.split()[1] in targets, f"{page}: {line}"
