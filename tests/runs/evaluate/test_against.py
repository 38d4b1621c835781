"""`vtune eval --against`: each cause is planted separately, and only it is named."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.data.benchmarks import make_vstar
from tests.judge.server import FakeJudge, serve
from tests.runs.commands import vtune
from tests.runs.evaluate.reading import JUDGED, grades, reads
from tests.runs.evaluate.scripted import asked, evaluated, write_script
from vtune.config import find, load_recipe, shipped
from vtune.data.formats.table import FORMATS
from vtune.runs.evaluate import rescored
from vtune.runs.evaluate.causes import Cause, concluded
from vtune.runs.evaluate.published import published_rows
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.evaluate.unjudged import not_judged
from vtune.schema.sample import Sample

CAUSES = ["prompt", "parser", "pixels", "order", "decoding", "judge"]
TEMPLATE = "choices.template='{question} Which one?\n{options}'"
PLANTED = {
    "none": [],
    "prompt": [TEMPLATE],
    "parser": ["choices.letter_rule=strict"],
    "aggregation": ["scorer=mean"],
    "pixels": ["images.max_pixels=20000"],
    "order": ["choices.order=0"],
    "decoding": ["rollout.temperature=0.7"],
    "prompt order": [TEMPLATE, "choices.order=0"],
    "parser pixels": ["choices.letter_rule=strict", "images.max_pixels=20000"],
    "seed": ["seed=5"],
    "protocol": ["protocol=vlmevalkit"],
}
NAMED = {"none": [], "aggregation": ["parser"], "seed": [], "protocol": ["prompt", "parser"]}
"""Planted cause -> named causes, if these differ; a seed has no effect on greedy replies."""
COUNT = 5


def replies(samples: list[Sample]) -> dict[str, list[str]]:
    """Replies that are right, the first only by the loose rule, except for the last."""
    first, *_, last = samples
    said = {sample.id: [sample.ground_truth] for sample in samples}
    wrong = "B" if last.ground_truth == "A" else "A"
    return said | {first.id: [f"I think it is {first.ground_truth}"], last.id: [wrong]}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Evaluations of the same replies that differ only in what was planted."""
    root = tmp_path_factory.mktemp("against")
    data = make_vstar(root / "vstar_bench", COUNT, (300, 200), (40, 40, 60, 60))
    model = write_script(root / "r.jsonl", replies(asked("vstar", data)))
    for name, sets in {"base": [], **PLANTED}.items():
        words = [word for one in sets for word in ("--set", one)]
        evaluated("vstar", model, data, root / name, "--agent", "direct", *words)
    return {name: root / name for name in ("base", *PLANTED)}


def explained(folder: Path, against: Path | str) -> dict[str, Any]:
    ended = vtune("eval", "--out", folder, "--against", against, "--json")
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)
    assert list(found["causes"]) == CAUSES
    return found


@pytest.mark.parametrize("name", PLANTED)
def test_only_the_planted_cause_is_named(name: str, planted: dict[str, Path]) -> None:
    named = NAMED.get(name, name.split())
    for folder, against in ((name, "base"), ("base", name)):
        found = explained(planted[folder], planted[against])
        assert found["named"] == named
        assert found["besides"] == []
        for cause in found["causes"].values():
            new = cause["differs"] and cause["points"] is None
            assert (cause["command"] is not None) == bool(new)


def test_the_effect_of_a_parser_is_computed_from_stored_replies(planted: dict[str, Path]) -> None:
    found = explained(planted["base"], planted["parser"])
    parser = found["causes"]["parser"]
    assert found["difference"] == pytest.approx(1 / 5)
    assert (parser["points"], parser["score"], parser["items"]) == (pytest.approx(1 / 5), 3 / 5, 1)
    assert parser["keys"] == {"choices.letter_rule": ["loose", "strict"]}
    assert (found["explained"], found["rest"]) == (pytest.approx(1 / 5), pytest.approx(0))
    back = explained(planted["parser"], planted["base"])
    assert (back["difference"], back["explained"]) == (pytest.approx(-1 / 5), pytest.approx(-1 / 5))


def test_an_effect_that_needs_new_replies_comes_with_its_command(planted: dict[str, Path]) -> None:
    found = explained(planted["base"], planted["order"])
    order = found["causes"]["order"]
    assert (order["items"] > 0, order["points"], found["explained"]) == (True, None, None)
    assert found["rest"] == pytest.approx(found["difference"])
    assert vtune(*shlex.split(order["command"])[1:]).code == 0
    measured = explained(planted["base"].with_name("base-order"), planted["order"])
    assert (measured["named"], measured["difference"]) == ([], 0)


@pytest.mark.parametrize(("here", "there"), [("base", "protocol"), ("protocol", "base")])
def test_another_protocols_prompt_comes_with_its_command(
    here: str, there: str, planted: dict[str, Path]
) -> None:
    prompt = explained(planted[here], planted[there])["causes"]["prompt"]
    assert prompt["items"] == COUNT
    ended = vtune(*shlex.split(prompt["command"])[1:])
    assert ended.code == 0, ended.err
    measured = explained(planted[here].with_name(f"{here}-prompt"), planted[there])
    assert (measured["named"], measured["difference"]) == ([], 0)


def test_a_prompt_that_differs_is_shown_at_its_first_difference(planted: dict[str, Path]) -> None:
    prompt = explained(planted["prompt order"], planted["base"])["causes"]["prompt"]
    assert prompt["items"] == COUNT
    assert "Which one?" in prompt["example"]["ours"]
    assert "Which one?" not in prompt["example"]["theirs"]


def test_pictures_are_compared_by_the_size_seen(
    planted: dict[str, Path],
) -> None:
    pixels = explained(planted["pixels"], planted["base"])["causes"]["pixels"]
    assert (pixels["items"], pixels["keys"]) == (COUNT, {"images.max_pixels": [20000, 12845056]})


def test_the_verdict_comes_first_and_may_follow_an_evaluation_directly(
    planted: dict[str, Path], tmp_path: Path
) -> None:
    shown = vtune("eval", "--out", planted["base"], "--against", planted["parser pixels"])
    assert shown.out.splitlines()[0] == "+20.0 points: parser (+20.0), pixels differ"
    assert "explained +20.0 points, left +0.0" in shown.out
    results = json.loads((planted["base"] / "results.json").read_text())
    (data,) = results["suite"]["data"]
    words = ["--suite", "vstar", "--agent", "direct", "--data", data, "--model", results["model"]]
    words += ["--set", "published.md5=null", "--against", str(planted["parser"])]
    ended = vtune("eval", *words, "--out", tmp_path / "now", "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert (found["score"]["score"], found["against"]["named"]) == (4 / 5, ["parser"])
    again = vtune("eval", *words, "--out", planted["base"], "--resume", "--json")
    assert json.loads(again.out)["against"]["named"] == ["parser"]


def test_other_data_and_several_suites_are_refused(planted: dict[str, Path], tmp_path: Path) -> None:
    data = make_vstar(tmp_path / "vstar_bench", 2, (200, 200), (40, 40, 60, 60))
    model = write_script(tmp_path / "r.jsonl", {sample.id: ["A"] for sample in asked("vstar", data)})
    evaluated("vstar", model, data, tmp_path / "out", "--agent", "direct")
    ended = vtune("eval", "--out", tmp_path / "out", "--against", planted["base"])
    assert (ended.code, "not on the same data" in ended.err) == (2, True)
    ended = vtune("eval", "--suite", "vstar,treebench", "--model", model, "--against", planted["base"])
    assert (ended.code, "only with a single suite" in ended.err) == (2, True)
    ended = vtune("eval", "--out", tmp_path / "out", "--against", tmp_path / "none")
    assert (ended.code, "holds no finished evaluation" in ended.err) == (2, True)
    words = ("--suite", "vstar", "--data", data, "--model", model, "--out", tmp_path / "not begun")
    ended = vtune("eval", *words, "--against", tmp_path / "none")
    assert (ended.code, "holds no finished evaluation" in ended.err) == (2, True)
    assert not (tmp_path / "not begun").exists()


@pytest.fixture
def judge() -> Iterator[FakeJudge]:
    with serve(reads, greets=True) as running:
        yield running


def test_judges_are_distinguished_from_parsers_and_their_stored_replies_used(
    judge: FakeJudge, tmp_path: Path
) -> None:
    specimen = FORMATS[load_recipe(find("mathvista", "eval_suites"), EvalSuite).format].specimen
    assert specimen is not None
    data = specimen(tmp_path / "data").path
    said = zip(asked("mathvista", data), JUDGED["mathvista"][0], strict=True)
    model = write_script(tmp_path / "r.jsonl", {sample.id: [reply] for sample, reply in said})
    values = {"base_url": judge.endpoint().base_url, "api_key_env": None, "retries": 1}

    def run(name: str, grader: str | None, protocol: str = "vlmevalkit") -> Path:
        words = ["--agent", "direct", "--protocol", protocol]
        if grader is not None:
            words += ["--set", f"grader={json.dumps(values | {'model': grader})}"]
        evaluated("mathvista", model, data, tmp_path / name, *words)
        return tmp_path / name

    alone, first, second = run("alone", None), run("first", "one"), run("second", "two")
    judge.requests.clear()
    found = explained(first, alone)
    assert found["named"] == ["judge"]
    assert found["explained"] == pytest.approx(found["difference"])
    assert found["difference"] > 0
    found = explained(alone, first)  # the same questions about the same replies were answered before
    assert found["explained"] == pytest.approx(found["difference"])
    found = explained(first, second)
    assert (found["named"], found["explained"]) == (["judge"], 0)
    other = run("other", None, "official")
    found = explained(first, other)
    assert {"parser", "judge"} <= set(found["named"])
    assert not judge.requests


def test_another_protocols_grader_prompt_is_a_cause_with_points(tmp_path: Path) -> None:
    def kinder_together(body: dict[str, Any]) -> str:
        *system, user = body["messages"]
        found = grades(user["content"][0]["text"]) if system else {"extracted_answer": "x", "score": 0}
        return json.dumps({key: 1 if "score_T" in key else value for key, value in found.items()})

    specimen = FORMATS[load_recipe(find("charxiv-descriptive", "eval_suites"), EvalSuite).format].specimen
    assert specimen is not None
    (tmp_path / "data").mkdir()
    data = specimen(tmp_path / "data").path
    samples = asked("charxiv-descriptive", data)
    model = write_script(tmp_path / "r.jsonl", {sample.id: ["Growth"] for sample in samples})
    with serve(kinder_together, greets=True) as judge:
        named = {"base_url": judge.endpoint().base_url, "api_key_env": None, "model": "one"}
        for protocol in ("official", "vlmevalkit"):
            words = ["--agent", "direct", "--protocol", protocol, "--set", f"grader={json.dumps(named)}"]
            evaluated("charxiv-descriptive", model, data, tmp_path / protocol, *words)
    for here, there, points in (("official", "vlmevalkit", 1.0), ("vlmevalkit", "official", -1.0)):
        found = explained(tmp_path / here, tmp_path / there)
        assert (found["named"], found["difference"]) == (["judge"], points)
        assert (found["causes"]["judge"]["points"], found["rest"]) == (points, 0)
        assert list(found["causes"]["judge"]["keys"]) == ["grader.prompts"]


def test_a_published_number_says_what_is_unknown_about_it(planted: dict[str, Path]) -> None:
    found = explained(planted["base"], "published:vstar/CodeV-7B-RL")
    assert (found["theirs"]["score"], found["theirs"]["path"]) == (
        0.848,
        "CodeV (Hou et al.), table 3, appendix 10.1",
    )
    assert found["difference"] == pytest.approx(4 / 5 - 0.848)
    # Their agent has tools, ten turns and a judge; ours has a single turn with the same pixels.
    assert found["named"] == ["prompt", "parser", "decoding", "judge"]
    assert (found["unknown"], found["causes"]["pixels"]["differs"]) == (["order"], False)
    assert found["causes"]["decoding"]["keys"] == {"rollout.max_turns": [1, 10]}
    assert found["causes"]["parser"]["points"] is not None
    of_others = explained(planted["base"], "published:vstar/GPT-4o")
    assert (of_others["named"], of_others["unknown"]) == ([], CAUSES)
    assert of_others["besides"] == found["besides"] == ["model", "data (5 of 191 questions)"]
    shown = vtune("eval", "--out", planted["base"], "--against", "published:vstar/GPT-4o").out
    assert "none of the causes is known to differ; not known: prompt, parser" in shown.replace("\n", " ")


def test_an_unlisted_published_number_is_refused(planted: dict[str, Path]) -> None:
    ended = vtune("eval", "--out", planted["base"], "--against", "published:vstar/CodeV-7B-RLL")
    assert (ended.code, "did you mean `vstar/CodeV-7B-RL`" in ended.err) == (2, True)
    ended = vtune("eval", "--out", planted["base"], "--against", "published:mmmu/CodeV-7B-RL")
    assert (ended.code, "number of suite `mmmu`, but this is `vstar`" in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("suite", "row"),
    [
        ("mme-realworld", "mme-realworld-lite"),
        ("hrbench-8k", "hrbench-4k"),
        ("mathvision", "mathvision-mini"),
    ],
)
def test_a_number_of_another_benchmark_is_refused_before_generation(
    suite: str, row: str, tmp_path: Path
) -> None:
    other = load_recipe(find(row, "eval_suites"), EvalSuite)
    assert load_recipe(find(suite, "eval_suites"), EvalSuite).kind == other.kind
    (name, *_) = (name for name in published_rows() if name.startswith(f"{row}/"))
    ended = vtune("eval", "--suite", suite, "--model", "M", "--against", f"published:{name}")
    assert (ended.code, f"is a number of suite `{row}`, but this is `{suite}`" in ended.err) == (2, True)


def test_a_custom_suite_names_its_benchmark_and_a_limit_is_reported(
    planted: dict[str, Path], tmp_path: Path
) -> None:
    own = tmp_path / "mine.yaml"
    assert vtune("recipes", "copy", "eval/vstar", own).code == 0
    results = json.loads((planted["base"] / "results.json").read_text())
    model = tmp_path / "GPT-4o"
    model.write_bytes(Path(results["model"].removeprefix("scripted:")).read_bytes())
    words = ["--suite", own, "--agent", "direct", "--data", *results["suite"]["data"], "--limit", "2"]
    words += ["--model", f"scripted:{model}", "--against", "published:vstar/GPT-4o"]
    ended = vtune("eval", *words, "--out", tmp_path / "out", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["against"]["besides"] == ["limit", "data (5 of 191 questions)"]
    own.write_text(own.read_text().replace("  name: vstar\n", ""))
    ended = vtune("eval", *words, "--out", tmp_path / "again")
    assert ended.code == 2
    assert f"at   {own}" in ended.err
    assert "write `name: vstar` below its `published`" in ended.err
    assert not (tmp_path / "again").exists()


def test_every_suite_with_a_published_number_names_its_benchmark() -> None:
    names = {
        name: load_recipe(find(name, "eval_suites"), EvalSuite).published.name
        for name in shipped("eval_suites")
    }
    assert {name for name, said in names.items() if said not in (name, None)} == set()
    assert {suite for _, suite, _ in published_rows().values()} <= set(names.values())


def test_all_published_numbers_belong_to_shipped_suites() -> None:
    rows = published_rows()
    assert {name.split("/")[0] for name in rows} <= set(shipped("eval_suites"))
    assert all(0 < table.rows[row][suite] < 100 for table, suite, row in rows.values())
    tables = {table.table: table for table, _, _ in rows.values()}
    assert {row for table in tables.values() for row in table.authors} <= {row for _, _, row in rows.values()}
    assert rows["mega-bench-core/Orsta-7B"][0].rows["Orsta-7B"] == {"mega-bench-core": 38.31}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["pixels"], "+5.0 points: pixels differ"),
        (["order"], "+5.0 points: order differs"),
        (["order", "judge"], "+5.0 points: order, judge differ"),
        ([], "+5.0 points: none of the causes differs"),
    ],
)
def test_the_verdict_is_a_sentence(names: list[str], said: str) -> None:
    causes = {name: Cause(differs=name in names, keys={}, items=0) for name in ("pixels", "order", "judge")}
    assert concluded({"score": 0.55}, {"score": 0.5}, causes, [])["verdict"] == said


def test_the_reason_why_there_is_no_reading_names_no_deleted_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unjudged(*given: Any) -> Any:
        raise not_judged(given[-1], {("vstar/0", 0): "no reply"}, 1, why="no reply", model="grader")

    monkeypatch.setattr(rescored, "graded_again", unjudged)
    monkeypatch.setattr(rescored, "read_records", lambda _: [])
    suite = load_recipe(find("vstar", "eval_suites"), EvalSuite, [f"data=[{tmp_path}]"])
    ours: Any = SimpleNamespace(suite=suite, results={"score": {}}, trajectories=list)
    found = rescored.readings(ours, suite, ["parser"], [])
    assert found["parser"].why == "1 of 1 replies have no grade: vstar/0"
