"""The commands in comments of recipes, as `vtune recipes check` reads them, good and bad."""

from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests.runs.commands import vtune
from vtune.cli.main import app
from vtune.runs.recipes.chain.headers import FLAGS, command_of, commands_of, fits
from vtune.runs.recipes.chain.walk import check_joins
from vtune.runs.recipes.shipped import find_shipped, shipped_recipes


def test_several_commands_on_one_line_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        "# Prose.\n#   vtune curate a; vtune curate b --out 'x y'   (both)\nkey: 1  # vtune no command\n"
    )
    assert [(command.words, command.value("--out")) for command in commands_of(file)] == [
        (("curate", "a"), None),
        (("curate", "b"), "x y"),
    ]


def test_every_command_in_a_header_exists() -> None:
    commands = [command for entry in shipped_recipes() for command in commands_of(entry.path)]
    assert len(commands) > 40
    for given in commands:
        command: Any = typer.main.get_command(app)
        rest = list(given.words)
        while hasattr(command, "commands"):
            command = command.commands[rest.pop(0)]
        known = {name for parameter in command.params for name in parameter.opts}
        assert set(given.options) <= known, given.text


def test_capitals_in_a_path_match_any_name() -> None:
    assert fits("data/orsta/SOURCE.parquet", "data/orsta/mm_math.parquet")
    assert not fits("data/orsta/SOURCE.parquet", "data/orsta/more/mm_math.parquet")
    assert not fits("data/orsta.parquet", "data/orstaxparquet")
    assert fits("./runs/a", "runs/a")


def test_a_command_line_is_split_into_words_and_options() -> None:
    command = command_of(["data", "import", "coco", "--strict", "a.json", "--tools", "python", "--tools=x"])
    assert command.words == ("data", "import", "coco", "a.json")
    assert command.options == {"--strict": (), "--tools": ("python", "x")}


def test_the_listed_flags_are_those_of_the_commands() -> None:
    """Otherwise the word after a flag would be read as its value: `vtune demo --compare --out DIR`."""
    seen: set[str] = set()
    rest: list[Any] = [typer.main.get_command(app)]
    while rest:
        command = rest.pop()
        rest.extend(getattr(command, "commands", {}).values())
        seen.update(name for p in command.params if getattr(p, "is_flag", False) for name in p.opts)
    assert seen - {"--version", "--install-completion", "--show-completion"} == set(FLAGS)


def copied(name: str, folder: Path, header: str = "", **changed: str) -> Path:
    """A copy of a shipped file with a comment at the top and changed top-level values."""
    source = find_shipped(name).path
    lines = source.read_text().splitlines()
    for key, value in changed.items():
        (place,) = [number for number, line in enumerate(lines) if line.startswith(f"{key}:")]
        lines[place] = f"{key}: {value}"
    file = folder / source.name
    file.write_text("\n".join([header or "# A copy.", *lines]) + "\n")
    return file


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("data import", "`vtune data import` does not say what"),
        ("data make shape --out data/x", "did you mean `shapes`?"),
        ("data import mars 'x", "not a command line"),
    ],
)
def test_an_invalid_command_is_an_error_in_the_recipe(command: str, what: str, tmp_path: Path) -> None:
    ended = vtune("recipes", "check", copied("data/own", tmp_path, f"#   vtune {command}"))
    assert (ended.code, what in ended.err) == (2, True), ended.err


def test_passages_are_not_accepted_as_samples(tmp_path: Path) -> None:
    header = "#   vtune data make passages wiki.xml.bz2 --out data/mine.parquet"
    found = check_joins([str(copied("rl/orsta-tiny", tmp_path, header, data="[data/mine.parquet]"))])
    whys = [join["why"] for join in found["joins"] if join["level"] == "break"]
    assert whys == ["data make passages writes passages to this path, but samples are read from it"]


def test_a_demo_recipe_may_be_replaced(tmp_path: Path) -> None:
    found = check_joins([str(copied("sft/codev-tiny", tmp_path))])
    assert ("demo", "sft/codev-tiny") in {(join["writer"], join["reader"]) for join in found["joins"]}
    assert found["breaks"] == 0


def test_a_run_that_starts_from_itself_is_a_break(tmp_path: Path) -> None:
    file = copied("rl/orsta-tiny", tmp_path, model="runs/alone").rename(tmp_path / "alone.yaml")
    file.write_text(file.read_text().replace("runs/orsta-tiny", "runs/alone"))
    found = check_joins([str(file)])
    (why,) = {join["why"] for join in found["joins"] if (join["about"], join["level"]) == ("policy", "break")}
    assert why == "the run begins with the folder that it writes itself, and no other run writes there"


def test_runs_that_start_from_each_other_are_named(tmp_path: Path) -> None:
    lines = find_shipped("rl/orsta-tiny").path.read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    (_, model) = next(line for line in text.splitlines() if line.startswith("model:")).split(" ", 1)
    (tmp_path / "one.yaml").write_text(text.replace(model, "runs/other", 1))
    (tmp_path / "other.yaml").write_text(text.replace(model, "runs/one", 1))
    ended = vtune("recipes", "check", tmp_path)
    assert ended.code == 2
    assert "runs begin with one another: rl/o" in ended.err
    assert "rl/one → rl/other" in ended.err
