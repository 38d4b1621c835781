"""`uses`: a user's file adds parts, is copied into the run folder, and is the same in every process."""

import asyncio
import json
import pickle
import re
import subprocess
import sys
from collections import abc
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import get_args, get_origin

import pytest
import yaml
from pydantic import ValidationError

from tests.conftest import ROOT
from tests.runs.commands import vtune
from tests.runs.data.test_validating import encoded
from tests.schema.records import SAMPLE, TRAJECTORY
from tests.verifiers.cases import sample, wrap
from vtune.advantage.credit import transfer_credit
from vtune.advantage.recipe import Credit
from vtune.advantage.tool_types import tool_types
from vtune.config import Uses, load_recipe
from vtune.data.formats.table import FORMATS
from vtune.errors import BrokenPart, RecipeError, VtuneError
from vtune.registry import _CALL, TABLES
from vtune.reward.wire import recipe_of, settings_of
from vtune.runs.agent.tools import ToolsRecipe, check_indexes, check_tools, tools_of
from vtune.runs.curate.curation import run_curate
from vtune.runs.curate.recipe import DataRecipe
from vtune.runs.curate.rows import Rows
from vtune.runs.evaluate.questions import Source, read_questions
from vtune.runs.folder import running, start_run
from vtune.runs.kept_uses import check_uses
from vtune.runs.parts.parts import ROOMS, check_parts
from vtune.runs.report.document import run_report
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.parquet import read_samples, write_samples
from vtune.schema.pixels import size_of
from vtune.schema.reward import Reward
from vtune.schema.trajectory import Call, Trajectory
from vtune.sections import Strict
from vtune.tools.calls import Asked
from vtune.tools.observation import Observation
from vtune.tools.result_cache import ResultCache
from vtune.tools.tool import Scene
from vtune.update.ranks import Ranks
from vtune.uses import Used, forget, prints, take, use, used
from vtune.verifiers import VERIFIERS, check_ground_truth, verdict_on
from vtune.verifiers.verifying import Verifying

ANLS = ROOT / "tests/own/anls.py"


class Plan(Strict):
    uses: Uses = ()
    steps: int


pytestmark = pytest.mark.usefixtures("forgetting")


def written(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_recipe_finds_a_verifier_file_in_its_own_folder(tmp_path: Path) -> None:
    written(tmp_path, ANLS.read_text(), "anls.py")
    recipe = load_recipe(written(tmp_path, "uses: [./anls.py]\nsteps: 1\n", "mine.yaml"), Plan)
    assert recipe.uses == (str(tmp_path / "anls.py"),)
    check_ground_truth(sample("anls", "NO PARKING"))
    verdict = VERIFIERS["anls"].verify(wrap("no barking"), sample("anls", "NO PARKING"))
    assert verdict.score == pytest.approx(0.9)
    assert list(VERIFIERS)[-1] == "anls"


def test_a_path_given_with_set_is_relative_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    written(tmp_path / "here", ANLS.read_text(), "anls.py")
    recipe = written(tmp_path, "steps: 1\n", "mine.yaml")
    monkeypatch.chdir(tmp_path / "here")
    load_recipe(recipe, Plan, ["uses=[anls.py]"])
    assert "anls" in VERIFIERS


def test_a_recipe_without_uses_is_written_without_the_key() -> None:
    assert Plan(steps=1).model_dump() == {"steps": 1}


def test_a_verifier_works_in_a_separate_process(tmp_path: Path) -> None:
    text = ANLS.read_text().replace("partial_credit=True", "partial_credit=True, in_worker=True")
    path = written(tmp_path, text)
    use([path])
    path.write_text("raise SystemExit  # a worker has what was loaded, whatever becomes of the file")

    async def asked() -> float:
        async with Verifying(workers=1) as verifying:
            return (await verifying.verify(wrap("no parkin"), sample("anls", "NO PARKING"))).score

    assert asyncio.run(asked()) == pytest.approx(0.9)


def test_the_same_text_is_loaded_once_whatever_its_path(tmp_path: Path) -> None:
    use([ANLS])
    use([written(tmp_path, ANLS.read_text(), "copy.py")])
    assert [file.name for file in used()] == ["anls.py"]


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("x = 1\ny = (\n", "SyntaxError", 2),
        ("\n\nimport nothing_of_the_kind\n", "ModuleNotFoundError", 3),
        ("def f():\n    return 1 / 0\nf()\n", "ZeroDivisionError", 2),
        ("import sys\nsys.exit(3)\n", "SystemExit", 2),
        ("x = 1\n", "adds no part", None),
        (ANLS.read_text().replace('"anls",', '"exact",'), "`exact` is the name of vtune's own verifier", 46),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_with_its_line(
    tmp_path: Path, text: str, what: str, line: int | None
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(RecipeError, match=what) as told:
        use([path])
    assert told.value.where == (f"{path}:{line}" if line else str(path))
    assert told.value.fix
    assert not used()
    assert set(VERIFIERS) == {name for name, one in VERIFIERS.items()}


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("import helper", "mine.py imports helper.py, which is next to it, but a run keeps mine.py alone"),
        ("from helper.deep import f", "mine.py imports helper.py, which is next to it"),
        ("from stuff.deep import f", "mine.py imports stuff/, which is next to it"),
        ("from .helper import f", "mine.py has a relative import, but a run keeps mine.py alone"),
    ],
)
def test_importing_a_neighbouring_file_is_refused_with_an_explanation(
    tmp_path: Path, line: str, what: str
) -> None:
    written(tmp_path, "def f(): ...\n", "helper.py")
    (tmp_path / "stuff").mkdir()
    with pytest.raises(RecipeError) as told:
        use([written(tmp_path, f"{line}\n{ANLS.read_text()}")])
    assert told.value.what.startswith(what)
    assert told.value.where == f"{tmp_path / 'mine.py'}:1"
    assert told.value.fix.startswith("parts are one file: write what it takes from elsewhere into mine.py")
    with pytest.raises(RecipeError, match="adds no part") as listed:
        use([tmp_path / "helper.py"])
    assert "a file that others import is not a file of parts: write its code into them" in listed.value.fix


def test_output_of_a_users_file_stays_out_of_the_list(tmp_path: Path) -> None:
    path = written(tmp_path, f"print('loaded')\n{ANLS.read_text()}")
    ended = vtune("parts", "list", path, "--json")
    assert "verifier" in {part["kind"] for part in json.loads(ended.out)["parts"]}
    assert "loaded" in ended.err


def test_two_files_may_not_add_the_same_name(tmp_path: Path) -> None:
    use([ANLS])
    other = written(tmp_path, ANLS.read_text() + "\n# another\n")
    with pytest.raises(RecipeError, match=r"line \d+ of .*anls\.py already adds verifier `anls`"):
        use([other])
    assert VERIFIERS["anls"].partial_credit


def test_a_missing_file_exits_with_2(tmp_path: Path) -> None:
    recipe = written(tmp_path, "uses: [./none.py]\nsteps: 1\n", "mine.yaml")
    with pytest.raises(RecipeError, match=r"none\.py: No such file"):
        load_recipe(recipe, Plan)


def test_a_run_keeps_the_file_and_resumes_with_no_other(tmp_path: Path) -> None:
    path = written(tmp_path, ANLS.read_text())
    out = tmp_path / "runs/mine"
    recipe = load_recipe(written(tmp_path, "uses: [mine.py]\nsteps: 1\n", "mine.yaml"), Plan)
    start_run(out, recipe, [], resume=False)
    assert (out / "uses/mine.py").read_bytes() == path.read_bytes()
    assert json.loads((out / "environment.json").read_text())["uses"] == prints()
    assert yaml.safe_load((out / "recipe.yaml").read_text())["uses"] == ["uses/mine.py"]

    # Also with the copy, which the recipe in the run folder names.
    forget(used())
    start_run(out, load_recipe(out / "recipe.yaml", Plan), [], resume=True)
    forget(used())
    path.write_text(ANLS.read_text() + "\n# changed\n")
    changed = load_recipe(tmp_path / "mine.yaml", Plan)
    with pytest.raises(RecipeError, match=r"mine\.py is not the file") as told:
        start_run(out, changed, [], resume=True)
    assert "uses/mine.py" in told.value.fix
    assert told.value.fix.endswith("another --out")
    (out / "checkpoints/newest").mkdir(parents=True)
    with pytest.raises(RecipeError, match=r"mine\.py is not the file") as told:
        start_run(out, changed, [], resume=True)
    assert told.value.fix.endswith(f"--set model={out}/checkpoints/newest")

    forget(used())
    (out / "uses/mine.py").write_text(ANLS.read_text() + "\n# changed\n")
    with pytest.raises(RecipeError, match=r"mine\.py is not the file") as told:
        start_run(out, load_recipe(out / "recipe.yaml", Plan), [], resume=True)
    assert told.value.fix.startswith(f"undo what was changed in {out / 'uses/mine.py'}, or start a new")
    (out / "uses/mine.py").write_text(ANLS.read_text())

    (out / "metrics.jsonl").write_text("")
    kept = run_report([out])["runs"][0]["uses"]["mine.py"]  # type: ignore[index]
    assert kept["kept"]
    assert kept["sha256"] != prints()["mine.py"]
    (out / "uses/mine.py").write_text("")
    assert not run_report([out])["runs"][0]["uses"]["mine.py"]["kept"]  # type: ignore[index]


def begun(tmp_path: Path, text: str = ANLS.read_text()) -> tuple[Path, Path, Plan]:
    """A user's file, a run that was started with it, and its recipe."""
    path, out = written(tmp_path, text), tmp_path / "runs/mine"
    recipe = load_recipe(written(tmp_path, "uses: [mine.py]\nsteps: 1\n", "mine.yaml"), Plan)
    start_run(out, recipe, [], resume=False)
    return path, out, recipe


def test_a_resumed_run_says_which_file_was_edited_since(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out, _ = begun(tmp_path)
    for text, said in ((ANLS.read_text(), False), (ANLS.read_text() + "\n# edited\n", True), (None, False)):
        path.unlink() if text is None else path.write_text(text)
        forget(used())
        start_run(out, load_recipe(out / "recipe.yaml", Plan), [], resume=True)
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == said
        assert all(f"warning: {path} is not what {out} began with" in line for line in lines)


def test_a_part_that_fails_in_a_run_says_that_the_run_uses_its_copy(tmp_path: Path) -> None:
    _, out, recipe = begun(
        tmp_path, ANLS.read_text().replace("    said, right", "    1 / 0\n    said, right")
    )
    for learnt, way in ((False, "another --out, or remove that folder"), (True, "--set model=")):
        if learnt:
            (out / "checkpoints/newest").mkdir(parents=True)
        with (
            pytest.raises(BrokenPart) as told,
            running(out, recipe, [], resume=True, ranks=Ranks.of_this_process()),
        ):
            verdict_on(wrap("no parking"), sample("anls", "NO PARKING"))
        assert told.value.fix.startswith("correct the line; `vtune parts check` of the file tries it.")
        assert f"{out} keeps the files that it began with, and --resume runs those" in told.value.fix
        assert way in told.value.fix


def test_a_verifier_that_exits_is_named_with_its_sample(tmp_path: Path) -> None:
    text = ANLS.read_text().replace("    said, right", "    raise SystemExit(3)\n    said, right")
    use([written(tmp_path, text)])
    with pytest.raises(BrokenPart, match=r"verifier `anls` of mine\.py is broken: SystemExit: 3 \(sample"):
        verdict_on(wrap("no parking"), sample("anls", "NO PARKING"))


def test_a_missing_or_additional_file_is_named(tmp_path: Path) -> None:
    use([ANLS])
    with pytest.raises(RecipeError, match=r"anls\.py was not among the files"):
        check_uses({}, tmp_path)
    with pytest.raises(RecipeError, match=r"other\.py is missing"):
        check_uses({**prints(), "other.py": "00"}, tmp_path)


def test_a_service_without_the_file_refuses_and_never_opens_it(tmp_path: Path) -> None:
    from vtune.config import find
    from vtune.runs.serve.rewards import read_reward

    reward = read_reward(str(find("codev-tiny", "recipes.rl")))
    plain = settings_of(reward)
    (file,) = use([ANLS])
    settings = settings_of(reward)
    assert settings == {**plain, "uses": {"anls.py": file.sha256}}
    judge = reward.judge
    assert recipe_of(settings, judge) == recipe_of(plain, judge)
    forget([file])
    with pytest.raises(RecipeError, match=r"has not loaded 'anls\.py'"):
        recipe_of(settings, judge)
    use([written(tmp_path, f"{ANLS.read_text()}# another\n", "anls.py")])
    with pytest.raises(RecipeError, match=r"has another 'anls\.py', which the run uses"):
        recipe_of(settings, judge)


def test_the_command_says_what_is_wrong_with_a_file_and_exits_with_2(tmp_path: Path) -> None:
    written(tmp_path, "VERIFIERS.add()\n")
    recipe = (ROOT / "recipes/rl/codev-tiny.yaml").read_text()
    path = written(tmp_path, f"uses: [mine.py]\n{recipe}", "own.yaml")
    command = [sys.executable, "-m", "vtune.cli.main", "rl", "--recipe", str(path), "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "NameError" in done.stderr
    assert f"{tmp_path}/mine.py:1\n  fix" in done.stderr


def test_an_error_in_a_users_file_survives_pickling() -> None:
    with pytest.raises(VtuneError, match="cannot be loaded"):
        take([Used("/nowhere/mine.py", b"1/0")])


ROTATE = ROOT / "tests/own/rotate.py"


def test_a_custom_tool_has_a_section_and_runs(tmp_path: Path) -> None:
    use([ROTATE])
    recipe = ToolsRecipe.model_validate({"rotate_tool": {}})
    offered = replace(SAMPLE, tools=("rotate_tool",))
    check_tools([offered], recipe, "tools")
    check_indexes(recipe)

    async def called() -> tuple[Observation, Observation]:
        async with tools_of(recipe, tmp_path / "search.jsonl") as tools:
            assert [schema["function"]["name"] for schema in tools.schemas(offered.tools)] == ["rotate_tool"]
            scene = Scene(offered, (encoded(60, 50),), ())
            good, bad = (Asked("rotate_tool", {"angle": angle}, "", 0) for angle in (90, 45))
            return await tools.run(good, scene, 0, ResultCache()), await tools.run(
                bad, scene, 0, ResultCache()
            )

    good, bad = asyncio.run(called())
    assert (good.status, size_of(good.images[0])) == ("ok", (50, 60))
    assert (bad.status, bad.error) == ("error", "angle is one of 90, 180, 270")


def test_an_unusable_tool_is_an_error_before_the_run() -> None:
    offered = replace(SAMPLE, tools=("rotate_tool",))
    with pytest.raises(RecipeError, match="there is no such tool"):
        check_tools([offered], ToolsRecipe(), "tools")
    with pytest.raises(ValueError, match="rotate_tool"):
        ToolsRecipe.model_validate({"rotate_tool": {}})
    use([ROTATE])
    with pytest.raises(RecipeError, match=r"no section tools\.rotate_tool"):
        check_tools([offered], ToolsRecipe(), "tools")
    with pytest.raises(RecipeError, match=r"no section tools\.rotate_tool"):
        check_tools([offered], ToolsRecipe.model_validate({"rotate_tool": None}), "tools")
    with pytest.raises(ValidationError) as told:
        ToolsRecipe.model_validate({"rotate_tool": {"angle": 3}})
    assert told.value.errors()[0]["loc"] == ("rotate_tool", "angle")


def test_a_custom_format_is_read_by_a_suite_and_by_import(tmp_path: Path) -> None:
    use([ROOT / "tests/own/lines.py"])
    file = FORMATS["lines"].specimen(tmp_path).path  # type: ignore[misc]
    source = Source(data=(str(file),), format="lines", data_from="here", choices=None)
    assert [entry.ground_truth for entry, _ in read_questions(source, limit=None)] == ["red", "no"]
    with pytest.raises(ValueError, match="there is no data format `line`; did you mean `lines`"):
        Source(data=(str(file),), format="line", data_from="here", choices=None)

    forget(used())
    out = tmp_path / "rows.parquet"
    words = ("data", "import", "lines", file, "--uses", ROOT / "tests/own/lines.py", "--out", out)
    assert vtune(*words, "--json").code == 0
    assert [row.ground_truth for row in read_samples(out)] == ["red", "no"]


def test_a_file_can_be_validated_with_a_custom_verifier(tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    row = replace(SAMPLE, images=(Picture(data=encoded(60, 50)),), verifier="anls", choices=())
    write_samples(out, [row])
    assert vtune("data", "validate", out).code == 2
    assert vtune("data", "validate", out, "--uses", ANLS).code == 0


def test_a_custom_filter_drops_rows(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    asked = [Message("user", f"{IMAGE}{text}") for text in ("Which?", "Which of the two is it?")]
    picture = (Picture(data=encoded(60, 50)),)
    write_samples(
        file, [replace(SAMPLE, id=f"s/{n}", prompt=(turn,), images=picture) for n, turn in enumerate(asked)]
    )
    filters = "[{filter: short, words: 3}]"
    text = f"records: samples\nuses: [{ROOT}/tests/own/short.py]\nsources: {{mine: {{files: [{file}]}}}}\n"
    recipe = load_recipe(written(tmp_path, f"{text}filters: {filters}\n", "own.yaml"), DataRecipe)
    result = run_curate(recipe, tmp_path / "out")
    assert result["funnel"]["all"]["short"] == 1
    assert (tmp_path / "out/uses/short.py").is_file()
    assert [row.id for row in read_samples(tmp_path / "out/samples.parquet")] == ["s/0"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            ANLS.read_text() + '\nVERIFIERS.add("anls", VERIFIERS["anls"])\n',
            "line 46 of this file already adds verifier",
        ),
        (ANLS.read_text().replace('"anls",', '"an ls",'), "'an ls' is not a valid name"),
        (ANLS.read_text() + '\nVERIFIERS.add("other", verify)\n', "verifier `other` is of type function"),
        (
            ANLS.read_text().replace("sample: Sample) -> Verdict", "sample: Sample, truth: str) -> Verdict"),
            r"`verify` of verifier `anls` takes \(reply, sample, truth\), but is called as verify\(reply, s",
        ),
        (
            ANLS.read_text().replace("def verify(", "async def verify("),
            "`verify` of verifier `anls` is `async`, but is not awaited",
        ),
        (
            ANLS.read_text().replace("def form(sample: Sample)", "def form()"),
            r"`form` of verifier `anls` takes \(\), but is called as form\(sample\)",
        ),
        ("from vtune.errors import DataError\nraise DataError('no words here')\n", "no words here"),
    ],
)
def test_a_part_that_cannot_be_added_is_an_error_with_its_line(tmp_path: Path, text: str, what: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(RecipeError, match=what) as told:
        use([path])
    assert told.value.where.startswith(f"{path}:")
    assert "anls" not in VERIFIERS


def test_a_function_with_a_wrong_signature_is_reported_with_its_line_and_the_right_one(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, ANLS.read_text().replace("def verify(", "async def verify("))
    with pytest.raises(RecipeError) as told:
        use([path])
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if "def verify" in text)
    assert told.value.where == f"{path}:{line}"
    assert told.value.fix == "write `def verify(reply, sample) -> Verdict`: see cli/parts.md"


WRONG_CALLS = {
    "rotate.py": ("async def opened(", "async def opened(more: str, ", "opened(section, record)"),
    "maze.py": ("async def open_maze(", "async def open_maze(more: str, ", "open(start)"),
    "lines.py": ("def read(", "def read(more: str, ", "read(path, options)"),
    "short.py": ("def long(", "def long(more: str, ", "how(section, item)"),
    "brief.py": ("async def brief(", "async def brief(more: str, ", "score(section, scene)"),
    "near.py": ("def opened(", "def opened(more: str, ", "opened(levels, client)"),
    "pushes.py": ("def pushes(", "def pushes(more: str, ", "terms(tokens, section)"),
    "worst.py": ("def worst(", "def worst(more: str, ", "worst(marks)"),
    "terse.py": ("def terse(", "def terse(more: str,", "turns(sample, names, sizes, schemas, draw)"),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_every_kind_says_how_its_function_is_called(tmp_path: Path, name: str) -> None:
    old, new, called = WRONG_CALLS[name]
    text = (ROOT / "tests/own" / name).read_text()
    assert old in text
    with pytest.raises(RecipeError, match=rf"but is called as {re.escape(called)}"):
        use([written(tmp_path, text.replace(old, new))])


def test_the_signatures_in_tables_match_the_types_of_parts() -> None:
    calls = 0
    for kind, room in ROOMS.items():
        import_module(room)
        table = TABLES[kind]
        for written_call in table._calls if table._made is not None else ():
            _, name, words = _CALL.match(written_call).groups()  # type: ignore[union-attr]
            hint = next(one.type for one in fields(table._made) if one.name == name)
            options = [hint, *get_args(hint)]
            callable_hint = next((one for one in options if get_origin(one) is abc.Callable), None)
            if callable_hint is not None:
                calls += 1
                assert len(get_args(callable_hint)[0]) == len(words.split(", ")), written_call
    assert calls > 15


def test_a_verl_reward_function_gets_advice_on_wrapping_it(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="adds no part") as told:
        use([written(tmp_path, "def compute_score(source, reply, truth, extra=None):\n    return 1.0\n")])
    assert "wrap `compute_score` as a verifier" in told.value.fix


def test_a_verl_reward_function_wrapped_as_on_the_page_is_a_verifier(tmp_path: Path) -> None:
    page = (ROOT / "cli/parts.md").read_text().split("## A function of another trainer\n")[1]
    theirs = (
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        '    return float(f"<answer>{ground_truth}</answer>" in solution_str)\n\n'
    )
    path = written(tmp_path, theirs + page.split("```python\n")[1].split("```")[0])
    found = check_parts([path])
    assert found["ok"], found


def test_parts_added_by_an_imported_module_are_refused_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, ANLS.read_text(), "anls_elsewhere.py")
    monkeypatch.syspath_prepend(tmp_path)
    path = written(tmp_path, ROTATE.read_text() + "\nimport anls_elsewhere\n")
    for _ in range(2):
        with pytest.raises(RecipeError, match="imports anls_elsewhere, which adds parts of its own"):
            use([path])
        assert "anls" not in VERIFIERS
        assert not used()


def test_a_file_that_is_missing_is_an_error_with_the_line_of_the_recipe(tmp_path: Path) -> None:
    recipe = written(tmp_path, "steps: 1\nuses: [./none.py]\n", "mine.yaml")
    with pytest.raises(RecipeError) as told:
        load_recipe(recipe, Plan)
    assert told.value.where == "mine.yaml:2"
    with pytest.raises(RecipeError) as told:
        load_recipe(recipe, Plan, ["uses=[other.py]"])
    assert told.value.where == "--set"


def test_a_custom_filter_section_is_read_as_strictly_as_ours(tmp_path: Path) -> None:
    start = "records: samples\nsources: {mine: {files: [rows.parquet]}}\n"
    use([ROOT / "tests/own/short.py"])
    for section, what in (
        ("{filter: short, word: 3}", "`filters.0.word`; did you mean `words`"),
        ("{filter: short}", "`filters.0.words`: field required"),
        ("{filter: shrt, words: 3}", "unknown filter `shrt` in `filters.0`; did you mean `short`"),
        ("{filter: answer_length, at_mots: 3}", "`filters.0.at_mots`; did you mean `at_most`"),
        ("{words: 3}", "`filters.0.filter`: field required"),
        ("[short]", "`filters.0`: write keys with values"),
    ):
        with pytest.raises(RecipeError) as told:
            load_recipe(written(tmp_path, f"{start}filters: [{section}]\n", "own.yaml"), DataRecipe)
        assert what in str(told.value)
        assert "own.yaml:3" in str(told.value)


RAY = """
import pickle, sys
from vtune.runs.curate.workers import _look_at
found = pickle.loads(_look_at(pickle.loads(open(sys.argv[1], "rb").read()))["found"])
print(*(gone.reason for gone in found.dropped), sep="|")
"""


def test_a_ray_worker_gets_the_file_before_the_task(tmp_path: Path) -> None:
    data = tmp_path / "rows.parquet"
    asked = Message("user", f"{IMAGE}Which of the two is it?")
    write_samples(data, [replace(SAMPLE, prompt=(asked,), images=(Picture(data=encoded(60, 50)),))])
    text = f"records: samples\nuses: [{ROOT}/tests/own/short.py]\nsources: {{mine: {{files: [{data}]}}}}\n"
    path = written(tmp_path, f"{text}filters: [{{filter: short, words: 3}}]\n", "own.yaml")
    recipe = load_recipe(path, DataRecipe)
    (task,) = Rows("samples", recipe.used).tasks([(1, recipe.filters[0])], None)
    row = tmp_path / "row"
    row.write_bytes(pickle.dumps({"task": pickle.dumps(task), "uses": pickle.dumps(used())}))
    command = [sys.executable, "-c", RAY, str(row)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "6 words"


def test_credit_is_assigned_to_the_calls_of_a_custom_tool(tmp_path: Path) -> None:
    credit = """
import json
import pickle
import numpy as np
from vtune.tools.similarity import ToolType

def argument(trajectory, call):
    return json.loads(call.arguments)["angle"]

def alike(angles, pairs):
    angles = np.array(angles)
    return (angles[pairs.left] == angles[pairs.right]).astype(float)

TURNS = ToolType("turns", argument, alike)
"""
    text = ROTATE.read_text().replace(
        'TOOLS.add(NAME, ToolPart("Turn a picture.",',
        f'{credit}\nTOOLS.add(NAME, ToolPart("Turn a picture.", credit=TURNS,',
    )
    use([written(tmp_path, text)])
    assert tool_types()["turns"].tools == ("rotate_tool",)

    def turned(angle: int, score: float) -> Trajectory:
        call = Call(tool="rotate_tool", arguments=f'{{"angle": {angle}}}', status="ok", span=(0, 1))
        reward = Reward(total=score, accuracy=score, format=1.0, tool=0.0, why="")
        return replace(
            TRAJECTORY,
            calls=(call,),
            reward=reward,
            token_ids=(1, 2),
            loss_mask=(True, True),
            logprobs=(0.0, 0.0),
            weight_versions=(),
            advantage=score - 0.5,
            tool_scores=(),
            call_advantages=(),
        )

    right, same, other = turned(90, 1.0), turned(90, 0.0), turned(180, 0.0)
    gate = {"similarity": 1.0, "confidence": 0.5}
    recipe = Credit.model_validate({"beta": 0.25, "tools": {"turns": gate}})
    found = transfer_credit([right, same, other], recipe).call_advantages
    assert found == ((0.5,), (pytest.approx(-0.5 + 0.25 * 0.5),), (-0.5,))
