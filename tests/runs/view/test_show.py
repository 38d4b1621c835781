import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reward.build import recipe
from tests.runs.commands import vtune
from tests.schema.records import SAMPLE
from tests.view.runs import LOOKED, MISSED, make_run, png
from vtune.runs.start import locked
from vtune.runs.view.films import film
from vtune.runs.view.opened import Opened, weights_behind
from vtune.schema.message import Message, Picture
from vtune.schema.parquet import write_samples, write_trajectories
from vtune.schema.trajectory import Trajectory
from vtune.view.place import find_places, runs_below

HOSTILE = "\x1b]0;title\x07\x1b[2J\u202eevil <script>alert(1)</script>"


def hostile() -> Trajectory:
    return replace(
        MISSED,
        source=HOSTILE,
        messages=(Message("user", "<image>?", (0,)), Message("assistant", HOSTILE)),
        calls=(replace(MISSED.calls[0], output=HOSTILE, error=HOSTILE, crops=()),),
        answer=HOSTILE,
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", {0: [LOOKED, MISSED], 4: [hostile()]})


def test_show_prints_a_list_and_a_single_trajectory(run: Path, tmp_path: Path) -> None:
    listed = vtune("show", str(run), "--where", "right:no sort:-step", "--json")
    found = json.loads(listed.out)
    assert [row["key"] for row in found["trajectories"]] == ["step-000004/0", "step-000000/1"]
    assert (found["found"], found["all"]) == (2, 3)
    one = json.loads(vtune("show", str(run), "step-000000/1", "--json").out)
    assert (one["sample"], one["right"]) == ("lens/7", False)
    assert [row["key"] for row in one["siblings"]] == ["step-000000/0", "step-000000/1"]
    assert vtune("show", str(run), "lens/7", "--where", "rollout:0").out.startswith("step-000000/0  right")


def test_a_list_of_an_unfinished_evaluation_says_so(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").touch()
    (tmp_path / "started.json").write_text('{"total": 6}')
    shown = " ".join(vtune("show", str(tmp_path)).out.split())
    assert shown.endswith(
        "0 of 0 the evaluation is not finished: 0 of 6 rollouts are generated; run the same command "
        "again with "
        "--resume"
    )
    write_trajectories(tmp_path / "trajectories/from-00000000.parquet", [LOOKED, MISSED])
    found = json.loads(vtune("show", str(tmp_path), "--json").out)
    assert (found["all"], "2 of 6 rollouts are generated" in found["unfinished"]) == (2, True)
    (tmp_path / "results.json").write_text("{}")
    assert json.loads(vtune("show", str(tmp_path), "--json").out)["unfinished"] is None


def test_an_unfinished_evaluation_is_noted_everywhere(tmp_path: Path) -> None:
    folder = tmp_path / "eval"
    folder.mkdir()
    (folder / "suite.yaml").touch()
    write_trajectories(folder / "trajectories/from-00000000.parquet", [LOOKED, MISSED])

    def said(total: str) -> str:
        (folder / "started.json").write_text(f'{{"total": {total}}}')
        text: str = json.loads(vtune("show", str(tmp_path), "--json").out)["unfinished"]
        return text

    assert "2 of 6 rollouts are generated; run the same command again with --resume" in said("6")
    assert "2 rollouts are generated" in said('"6"')
    with locked(folder):
        assert said("6").endswith("2 of 6 rollouts are generated; wait for the process that is working there")


@pytest.mark.parametrize("name", ["Größe/1", "图表-7", "a\\b", 'say "a"', "x" * 1200])
def test_rollouts_of_a_group_are_found_whatever_their_sample_is_called(name: str, tmp_path: Path) -> None:
    group = [replace(one, sample_id=name) for one in (LOOKED, MISSED)]
    place = Opened(*find_places(make_run(tmp_path / "run", {0: group})))
    found = place.document("step-000000/1")["siblings"]
    assert [row["key"] for row in found] == ["step-000000/0", "step-000000/1"]
    assert [row["key"] for row in film([place], name)] == ["step-000000/0", "step-000000/1"]


def test_a_damaged_file_beside_runs_is_named_and_hides_no_run(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    make_run(runs / "one", {0: [LOOKED]})
    (runs / "notes.parquet").write_bytes(b"")
    assert [place.name for place in runs_below(runs)] == ["one"]
    damaged, run = (Opened(place) for place in find_places(runs))
    assert "not a Parquet file" in " ".join(damaged.problems)
    assert run.document("step-000000/0")["sample"] == "lens/7"
    assert "notes.parquet" in vtune("show", str(runs)).err


def test_a_partial_score_is_shown_and_not_rounded_up(tmp_path: Path) -> None:
    assert LOOKED.reward is not None
    partial = replace(LOOKED, reward=replace(LOOKED.reward, accuracy=0.83))
    place = str(make_run(tmp_path / "run", {0: [partial, MISSED]}))
    assert vtune("show", place, "step-000000/0").out.startswith("step-000000/0  accuracy 0.83  ")
    listed = vtune("show", place).out
    assert "0.83" in listed
    assert json.loads(vtune("show", place, "step-000000/0", "--json").out)["right"] is True


def test_evidence_comes_from_the_data_that_are_named(run: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.parquet"
    write_samples(data, [replace(SAMPLE, id="lens/7", images=(Picture(data=png()),))])
    words = ("show", str(run), "step-000000/0", "--json", "--data", str(data))
    without = json.loads(vtune(*words[:4]).out)
    assert without["asked"] is None
    assert without["why_not_asked"]
    # The recipe of this run is empty, so nothing tells how to read the data.
    (run / "recipe.yaml").unlink()
    file = run / "trajectories" / "step-000000.parquet"
    unknown = json.loads(vtune("show", str(file), *words[2:4]).out)
    assert "give the Parquet file of the samples with --data" in unknown["why_not_asked"]
    found = json.loads(vtune("show", str(file), *words[2:]).out)
    assert found["asked"]["evidence"] == [{"label": "sign", "picture": 0, "box": [1.0, 2.0, 30.0, 40.0]}]


def test_samples_are_shown_too(tmp_path: Path) -> None:
    data = tmp_path / "data.parquet"
    write_samples(data, [replace(SAMPLE, images=(Picture(data=png()),))])
    assert "Which glyph?" in vtune("show", str(data), "signs/1").out


def test_the_folder_of_a_curation_shows_its_rows(tmp_path: Path) -> None:
    """It has a `recipe.yaml`, and used to be taken for a run without trajectories."""
    folder = tmp_path / "cur"
    folder.mkdir()
    for name in ("recipe.yaml", "curation.json"):
        (folder / name).touch()
    write_samples(folder / "samples.parquet", [SAMPLE])
    assert [place.kind for place in find_places(folder)] == ["samples"]
    assert runs_below(tmp_path) == []
    assert "1 of 1" in vtune("show", folder).out


def test_trajectory_text_cannot_control_the_terminal(run: Path) -> None:
    for words in (("show", str(run)), ("show", str(run), "step-000004/0"), ("show", str(run), "x\x1b[2J")):
        shown = vtune(*words)
        assert not set(shown.out + shown.err) & {"\x1b", "\x07", "\u202e"}
    assert "\\u202eevil" in vtune("show", str(run), "step-000004/0").out


def test_a_missing_item_is_reported(run: Path) -> None:
    for words, said in (
        ((str(run), "step-000000/7"), "has no trajectory"),
        ((str(run), "nobody"), "there is no trajectory nobody"),
        ((str(run / "none"),), "there is no file or folder"),
        ((str(run), "--where", "rihgt:no"), "did you mean `right`"),
    ):
        shown = vtune("show", *words)
        assert shown.code == 2
        assert said in shown.err


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("wrong", "`right:no`"),
        ("right", "`right:yes`"),
        ("repeated_crop", "`flag:repeated_crop`"),
        ("python", "`call:python`"),
        ('"judge erred"', '`label:"judge erred"`'),
        ("timeout", "`status:timeout`"),
        ("advantage", "`advantage:VALUE`"),
    ],
)
def test_a_search_word_that_is_a_fact_gets_the_right_query(asked: str, meant: str, run: Path) -> None:
    word = asked.strip('"')
    hint = f"`{word}` is looked for in the conversations; did you mean {meant}?"
    asked += " zebra"
    assert json.loads(vtune("show", str(run), "--where", asked, "--json").out)["hint"] == hint
    assert hint in " ".join(vtune("show", str(run), "--where", asked).out.split())


def test_an_excluded_word_or_one_found_elsewhere_gets_no_hint(run: Path) -> None:
    def hint(asked: str) -> str | None:
        found: str | None = json.loads(vtune("show", str(run), "--where", asked, "--json").out)["hint"]
        return found

    assert "right:no" in (hint("Wrong step:9") or "")
    assert hint("-wrong step:9") is None
    assert hint("answer step:9") is None, "stands in conversations, of other steps"


def test_non_empty_lists_and_ordinary_words_get_no_hint(run: Path) -> None:
    for asked in ("", "right:no", "zebra", "right:no sort:step"):
        assert json.loads(vtune("show", str(run), "--where", asked, "--json").out)["hint"] is None


@pytest.mark.parametrize(
    ("recipe", "why", "remedy"),
    [
        ("epochs: 2.0\n", "a run of `vtune sft` keeps no trajectories", "`vtune report"),
        ("rollout: {}\n", "has kept no trajectories yet", "`trajectories_every`"),
    ],
)
def test_a_run_without_trajectories_says_why(recipe: str, why: str, remedy: str, tmp_path: Path) -> None:
    """It used to be an empty list, without an error."""
    run = make_run(tmp_path / "run", {})
    (run / "recipe.yaml").write_text(recipe)
    for verb in ("show", "faithfulness"):
        ended = vtune(verb, run)
        assert (ended.code, ended.out) == (2, "")
        assert why in ended.err
        assert remedy in ended.err


@pytest.mark.parametrize(("count", "said"), [(30, "seed-29"), (60, " and 20 more")])
def test_a_folder_of_many_runs_names_all_or_how_many_more(count: int, said: str, tmp_path: Path) -> None:
    for number in range(count):
        make_run(tmp_path / f"seed-{number}", {})
    ended = vtune("show", tmp_path)
    assert ended.code == 2
    assert f"holds {count} things to look at" in ended.err
    assert ended.err.rstrip().endswith(said)


@pytest.mark.parametrize("name", ["metrics.jsonl", "recipe.yaml", "replies/step-000000.jsonl"])
def test_a_runs_log_file_gets_advice_to_give_its_folder(name: str, run: Path) -> None:
    """The remedy was an import of JSON lines."""
    file = run / name
    file.parent.mkdir(exist_ok=True)
    file.touch()
    for verb in ("show", "view", "faithfulness"):
        ended = vtune(verb, file)
        assert ended.code == 2
        assert f"fix  give the folder: {run}\n" in ended.err


def test_a_list_does_not_load_torch(run: Path) -> None:
    code = (
        "import sys; from vtune.cli.main import app; sys.argv = ['vtune', 'show', sys.argv[1], '--json']\n"
        "try: app()\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'transformers', 'cv2'} & set(sys.modules)), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(run)], capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout)["all"] == 3
    assert ended.stderr.splitlines()[-1] == "[]"


def test_weights_are_shown_if_they_give_the_total() -> None:
    parts = {"accuracy": 1.0, "format": 1.0, "tool": 0.25, "consistency": None}
    weights = {"accuracy": 1.0, "format": 0.3, "tool": 0.5}
    assert weights_behind({"total": 1.425, "parts": parts}, recipe()) == weights
    # Scored by another recipe, by the sample's own weights, not scored, or with an unknown part.
    assert weights_behind({"total": 1.5, "parts": parts}, recipe()) is None
    assert weights_behind({"total": 1.425, "parts": parts}, recipe(weighting="sample")) is None
    assert weights_behind({"total": None, "parts": parts}, recipe()) is None
    assert weights_behind({"total": 1.425, "parts": parts | {"own": 0.0}}, recipe()) is None
