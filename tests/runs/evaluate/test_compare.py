"""`vtune compare` over the folders of two evaluations."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vtune.runs.agent.engines as vtune_engines
from tests.data.benchmarks import make_vstar
from tests.rollout.scripted import ScriptedEngine
from tests.runs.commands import evaluation, setting, vtune
from tests.runs.evaluate.scripted import asked, evaluated, write_script
from tests.runs.habits import Habits
from vtune.metrics.benchmarks import Mark
from vtune.metrics.power import at_best, detectable
from vtune.rollout.engine import Completion, Request
from vtune.runs.evaluate.against import _besides
from vtune.runs.evaluate.items import ITEMS, by_question, read_items
from vtune.schema.parquet import read_samples
from vtune.schema.sample import Sample

SUITE = {
    "scorer": "mean",
    "rollouts": 1,
    "data": ["data/a.parquet"],
    "choices": {"answer_in": "tag", "template": "{question} {options}"},
    "reward": {"judge": None, "iou": None},
    "threads": 1,
}


def mark(name: str, score: float | None, category: str = "one", **more: Any) -> Mark:
    return Mark(name, {"category": category}, score, unreadable=False, source="quiz", **more)


def folder(out: Path, marks: list[Mark], prints: str = "aa", **suite: Any) -> Path:
    """The folder of an evaluation with these marks."""
    out.mkdir()
    results = {
        "model": f"models/{out.name}",
        "limit": None,
        "engine": "transformers",
        "suite": SUITE | suite,
        "environment": {"data": {"data/a.parquet": prints}},
    }
    (out / "results.json").write_text(json.dumps(results | by_question(marks, out / ITEMS)))
    (out / "suite.yaml").write_text("")
    return out


def graded(evaluation: Path, **facts: str) -> Path:
    """The same folder with model-graded answers."""
    file = evaluation / "results.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"grader": facts}))
    return evaluation


def renamed(evaluation: Path, model: str) -> None:
    """The same folder for a model with another name."""
    file = evaluation / "results.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"model": model}))


def compared(a: Path, b: Path) -> Any:
    ended = vtune("compare", a, b, "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def right(count: int, of: int, category: str = "one") -> list[Mark]:
    return [mark(f"{category}/{number}", float(number < count), category) for number in range(of)]


class Better(Habits):
    """Also right in cases where `Habits` is wrong."""

    async def generate(self, request: Request) -> Completion:
        *_, number, _, _ = request.key
        if number % 3 < 2:
            return await super().generate(request)
        text = f"<think>So it is.</think><answer>{self._samples[number].ground_truth}</answer>"
        return await ScriptedEngine(self._chat, [text]).generate(request)


def played(player: type[Habits], samples: list[Sample], policy: Any, **_: object) -> Habits:
    return player(policy.chat, samples)


@pytest.fixture(scope="module")
def evaluations(tiny: Path, lens: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two evaluations on the same six puzzles, with two rollouts each."""
    data = lens / "heldout.parquet"
    samples: list[Sample] = list(read_samples(data))
    found = {}
    for player in (Habits, Better):
        out = found[player.__name__] = tmp_path_factory.mktemp("eval") / player.__name__
        words = setting(rollout__max_new_tokens=90, rollout__max_tokens=900, rollouts=2)
        with pytest.MonkeyPatch.context() as patch:
            engine = partial(played, player, samples)
            patch.setattr(vtune_engines, "TransformersEngine", engine)
            ended = vtune(*evaluation(tiny, data, out, *words))
        assert ended.code == 0, ended.err
    return found


def test_scores_of_questions_are_written_without_the_noise_of_32_bits(tmp_path: Path) -> None:
    by_question([mark("a", float(np.float32(6 / 7))), mark("b", None)], tmp_path / ITEMS)
    rows = [json.loads(line)["scores"] for line in (tmp_path / ITEMS).read_text().splitlines()]
    assert rows == [[0.8571429], [None]]


def test_scores_with_more_digits_do_not_count_as_a_difference(tmp_path: Path) -> None:
    """As in an older `items.jsonl`: 0.8571428656578064."""
    marks = [mark(str(n), float(np.float32(n % 8 / 7))) for n in range(40)]
    old, new = folder(tmp_path / "old", marks), folder(tmp_path / "new", marks)
    rows = [json.loads(line) for line in (old / ITEMS).read_text().splitlines()]
    long = [row | {"scores": [one.score]} for row, one in zip(rows, marks, strict=True)]
    (old / ITEMS).write_text("".join(json.dumps(row) + "\n" for row in long))
    assert (old / ITEMS).read_text() != (new / ITEMS).read_text()
    for a, b in ((old, new), (new, old)):
        found = compared(a, b)["overall"]
        assert (found["difference"]["value"], found["p"]) == (0.0, 1.0)
        assert (found["better_a"], found["better_b"]) == (0, 0)
        assert found["verdict"].startswith("no difference could be shown")


def test_two_evaluations_are_compared_question_by_question(evaluations: dict[str, Path]) -> None:
    found = compared(evaluations["Habits"], evaluations["Better"])
    overall = found["overall"]
    assert (overall["n"], overall["clusters"], overall["test"]) == (6, 6, "exact McNemar")
    assert (overall["a"], overall["b"]) == (pytest.approx(2 / 3), 1.0)
    assert (overall["better_a"], overall["better_b"], overall["p"]) == (0, 2, 0.5)
    assert overall["verdict"].startswith("no difference could be shown")
    assert (found["differs"], found["a"]["rollouts"], found["items"]["both"]) == ([], 2, 6)
    table = vtune("compare", evaluations["Habits"], evaluations["Better"])
    assert table.code == 0
    assert "+33.3 [" in table.out
    assert table.out.splitlines()[-1] == (
        "no difference could be shown; these questions can detect one of 96.3 points with 80 % power"
    )


def test_rollouts_of_a_question_count_once_in_results_and_report(evaluations: dict[str, Path]) -> None:
    results = json.loads((evaluations["Better"] / "results.json").read_text())
    assert (results["score"]["n"], results["score"]["clusters"]) == (12, 6)
    # All right, counted over six questions, not twelve.
    sure = results["score"]["intervals"]["score"]
    assert (sure["value"], sure["low"], sure["high"]) == pytest.approx((1.0, 0.6097, 1.0), abs=1e-4)
    assert results["faithfulness"]["accuracy"] == pytest.approx(sure)
    assert (results["faithfulness"]["n"], results["faithfulness"]["clusters"]) == (12, 6)
    assert results["repeated"]["pass@2"] == pytest.approx(sure)
    assert results["power"]["clusters"] == 6
    items = read_items(evaluations["Better"])
    assert [item.scores for item in items.values()] == [(1.0, 1.0)] * 6
    shown = vtune("report", evaluations["Better"]).out
    assert "score" in shown
    assert "1 [0.6097, 1]" in shown
    assert "avg@2" in shown
    assert "6 independent questions" in shown


def test_the_better_evaluation_is_named_in_either_order(tmp_path: Path) -> None:
    worse, better = folder(tmp_path / "w", right(60, 100)), folder(tmp_path / "b", right(75, 100))
    there, back = compared(worse, better), compared(better, worse)
    assert there["overall"]["verdict"] == "B is better, by 15.0 points"
    assert back["overall"]["verdict"] == "A is better, by 15.0 points"
    assert back["overall"]["difference"]["low"] == pytest.approx(-there["overall"]["difference"]["high"])
    assert there["overall"]["p"] == pytest.approx(2 / 2**15)


def test_a_tiny_p_value_is_given_as_a_bound(tmp_path: Path) -> None:
    """With sampled flips, p cannot be below 1 / 100,001, however small the exact value."""
    a, b = (
        folder(tmp_path / name, [replace(m, cluster=f"picture {n // 2}") for n, m in enumerate(right(k, 80))])
        for name, k in (("a", 0), ("b", 60))
    )
    assert compared(a, b)["overall"]["p"] == pytest.approx(1 / 100_001)
    out = vtune("compare", a, b).out
    assert "< 0.0001" in " ".join(out.split())
    assert "e-0" not in out


def test_a_small_difference_is_reported_with_the_detectable_one(tmp_path: Path) -> None:
    found = compared(folder(tmp_path / "a", right(170, 191)), folder(tmp_path / "b", right(173, 191)))
    said = found["overall"]["verdict"]
    assert said == (
        "no difference could be shown; these questions can detect one of 4.1 points with 80 % power"
    )
    assert found["overall"]["p"] == 0.25


def test_the_detectable_difference_is_reported_as_approximate(tmp_path: Path) -> None:
    def of(name: str, marks: list[Mark]) -> Path:
        return folder(tmp_path / name, [replace(m, cluster=f"picture {n // 4}") for n, m in enumerate(marks)])

    a, few = of("a", right(40, 80)), of("few", right(43, 80))
    found = compared(a, few)["overall"]
    assert (found["detectable"], found["better_b"]) == (None, 3)
    assert found["verdict"].endswith(
        "; too few independent questions differ to estimate the smallest detectable difference"
    )
    found = compared(a, of("b", right(0, 80)[:12] + right(56, 80)[12:]))["overall"]
    least = f"{100 * found['detectable']:.1f}"
    assert found["test"] == "sign flips of clusters"
    assert found["verdict"].endswith(
        f"; these questions can detect one of about {least} points with 80 % power"
    )


def test_five_pictures_can_never_show_a_difference(tmp_path: Path) -> None:
    a, b = (
        folder(tmp_path / name, [replace(m, cluster=f"picture {n % 5}") for n, m in enumerate(right(k, 30))])
        for name, k in (("a", 0), ("b", 30))
    )
    found = compared(a, b)["overall"]
    assert (found["p"], found["detectable"]) == (2 / 2**5, None)
    said = (
        "no difference could be shown; the test needs at least 6 independent questions, and has 5; "
        "the interval, an approximation, excludes 0, but the test decides"
    )
    assert found["difference"]["low"] > 0
    assert found["verdict"] == said
    assert " ".join(vtune("compare", a, b).out.split()).endswith(said)


def test_parts_are_compared_with_a_correction_for_multiple_tests(tmp_path: Path) -> None:
    # Six more are right in each of two parts: p is 1/32 in each, and nothing is shown in either.
    parts = ("one", "two")
    a = folder(tmp_path / "a", [m for part in parts for m in right(20, 50, part)])
    b = folder(tmp_path / "b", [m for part in parts for m in right(26, 50, part)])
    found = compared(a, b)
    assert list(found["categories"]) == ["one", "two"]
    for row in found["categories"].values():
        assert (row["p"], row["p_holm"]) == pytest.approx((1 / 32, 1 / 16))
        assert row["verdict"].startswith("no difference could be shown")
    assert found["overall"]["verdict"] == "B is better, by 12.0 points"
    assert found["sources"] == {}
    assert "2 parts were compared as well" in vtune("compare", a, b).out


def test_sources_equal_to_the_categories_are_tested_once(tmp_path: Path) -> None:
    """Like RefCOCO's parts."""

    def of(categories: Mapping[str, str], *, right: int) -> list[Mark]:
        return [
            replace(mark(f"{source}/{n}", float(n < right), category), source=source)
            for source, category in categories.items()
            for n in range(10)
        ]

    for number, categories in enumerate(({"val": "val", "test": "test"}, {"val": "first", "test": "second"})):
        a, b = (
            folder(tmp_path / f"{name}{number}", of(categories, right=n)) for name, n in (("a", 2), ("b", 8))
        )
        found = compared(a, b)
        assert found["categories"] == {}
        assert sorted(found["sources"]) == ["test", "val"]
        for row in found["sources"].values():
            assert row["p_holm"] == pytest.approx(2 * row["p"])


def test_parts_with_the_same_name_have_separate_rows(tmp_path: Path) -> None:
    parts = [("charts", "all"), ("charts", "charts"), ("maps", "charts")]
    a, b = (
        folder(
            tmp_path / name,
            [
                replace(mark(f"{source}/{category}/{n}", float(n < right), category), source=source)
                for source, category in parts
                for n in range(10)
            ],
        )
        for name, right in (("a", 2), ("b", 8))
    )
    rows = [line.split()[1:3] for line in vtune("compare", a, b).out.splitlines() if line.startswith("│")]
    assert rows == [["all", "│"], ["all", "│"], ["charts", "│"], ["charts", "│"], ["maps", "│"]]


def test_questions_missing_or_unscored_in_one_evaluation_are_left_out_and_listed(tmp_path: Path) -> None:
    a = [mark("q/0", 1.0), mark("q/1", None), mark("q/2", 1.0), mark("q/3", 0.0), mark("q/3", None)]
    b = [mark("q/0", 1.0), mark("q/1", 1.0), mark("q/3", 1.0), mark("q/4", 1.0), mark("q/5", 0.0)]
    found = compared(folder(tmp_path / "a", a), folder(tmp_path / "b", b))
    assert found["items"] == {
        "both": 2,
        "unscored": 1,
        "only_a": 1,
        "only_b": 2,
        "only_a_ids": ["q/2"],
        "only_b_ids": ["q/4", "q/5"],
    }
    assert (found["overall"]["a"], found["overall"]["b"]) == (0.5, 1.0)
    shown = vtune("compare", tmp_path / "a", tmp_path / "b").out
    assert "1 not scored in one of them, 1 only in A (q/2), 2 only in B (q/4, q/5)" in shown


def test_without_common_scores_nothing_is_concluded(tmp_path: Path) -> None:
    a, b = folder(tmp_path / "a", [mark("q/0", None)]), folder(tmp_path / "b", [mark("q/0", 1.0)])
    found = compared(a, b)
    assert (found["overall"], found["items"]["unscored"]) == (None, 1)
    assert vtune("compare", a, b).out.splitlines()[-1] == (
        "no question was scored in both: there is nothing to compare"
    )


def test_different_settings_are_named_and_different_rules_or_data_refused(tmp_path: Path) -> None:
    marks = right(3, 6)
    a = folder(tmp_path / "a", marks)
    tools = folder(tmp_path / "tools", marks, rollouts=4, offers=["python"], data=["other/a.parquet"])
    assert compared(a, tools)["differs"] == ["rollouts", "offers"]
    assert "besides the models, these differ: rollouts, offers" in vtune("compare", a, tools).out
    for one in (a, tools):
        renamed(one, "models/same")
    assert "both name the same model; these differ: rollouts, offers" in vtune("compare", a, tools).out

    choices = SUITE["choices"] | {"answer_in": "reply"}  # type: ignore[operator]
    for other, what in (
        (folder(tmp_path / "rule", marks, choices=choices, scorer="hrbench"), "scorer, choices.answer_in"),
        (folder(tmp_path / "judge", marks, reward={"judge": {"model": "m"}, "iou": None}), "reward.judge"),
        (
            folder(tmp_path / "protocol", marks, protocol="vlmevalkit", reply_space="unit"),
            "protocol, reply_space",
        ),
        (folder(tmp_path / "answer", marks, answer_in="boxed"), "answer_in"),
        (graded(folder(tmp_path / "graded", marks), model="m", prompts="ab"), "grader.model, grader.prompts"),
        (folder(tmp_path / "data", marks, prints="bb"), "the SHA-256 of `data` differ"),
    ):
        ended = vtune("compare", a, other)
        assert (ended.code, ended.out) == (2, "")
        assert what in ended.err


def test_a_folder_of_several_evaluations_names_them(tmp_path: Path) -> None:
    (tmp_path / "several").mkdir()
    for name in ("mmmu", "vstar"):
        folder(tmp_path / "several" / name, right(3, 6))
    ended = vtune("compare", tmp_path / "several", tmp_path / "several")
    assert ended.code == 2
    assert f"such as {tmp_path / 'several' / 'mmmu'}: mmmu, vstar" in ended.err


def test_a_folder_without_an_evaluation_is_refused_with_a_fix(tmp_path: Path) -> None:
    a = folder(tmp_path / "a", right(3, 6))
    old = folder(tmp_path / "old", right(3, 6))
    (old / ITEMS).unlink()
    broken = folder(tmp_path / "broken", right(3, 6))
    lines = (broken / ITEMS).read_text().splitlines()
    for other, what in (
        (tmp_path / "none", "holds no finished evaluation"),
        (old, "evaluate again"),
    ):
        ended = vtune("compare", a, other)
        assert ended.code == 2
        assert what in ended.err
    for bad, what in (
        ("{", "not a question with its scores"),
        ('{"id": "x", "source": "s", "cluster": "c", "category": null, "scores": [2]}', "lie in [0, 1]"),
        ('{"id": 3, "source": "s", "cluster": "c", "category": null, "scores": []}', "are texts"),
        (lines[0], "appears twice"),
    ):
        (broken / ITEMS).write_text("\n".join([*lines[:2], bad]) + "\n")
        ended = vtune("compare", a, broken)
        assert ended.code == 2
        assert f"{ITEMS}, row 2" in ended.err
        assert what in ended.err


def test_questions_about_one_picture_are_one_cluster(tmp_path: Path) -> None:
    a, b = right(0, 40), right(24, 40)
    together = [[replace(m, cluster=f"picture {n // 4}") for n, m in enumerate(one)] for one in (a, b)]
    apart = compared(folder(tmp_path / "a", a), folder(tmp_path / "b", b))["overall"]
    found = compared(folder(tmp_path / "c", together[0]), folder(tmp_path / "d", together[1]))["overall"]
    assert (apart["clusters"], found["clusters"], found["n"]) == (40, 10, 40)
    assert found["test"] == "sign flips of clusters"
    assert found["p"] == pytest.approx(2 / 2**6)
    assert apart["p"] == pytest.approx(2 / 2**24)
    # For ten clusters 67.3 points, for forty questions, 24 of which differ, 35.1 (each by the exact test).
    assert found["detectable"] == pytest.approx(at_best(10))
    assert apart["detectable"] == pytest.approx(detectable(40, 0.6))


def test_with_missing_rollouts_the_score_is_noted_as_another_mean(tmp_path: Path) -> None:
    """The mean over 3 answers differs from that over 2 questions."""
    marks = [mark("q/1", 1.0), mark("q/1", None), mark("q/2", 0.0), mark("q/2", 0.0)]
    a, b = folder(tmp_path / "a", marks), folder(tmp_path / "b", marks)
    for one in (a, b):
        file, score = one / "results.json", {"score": {"score": 1 / 3}}
        sources = {"sources": {"all": {"reward_accuracy": 1 / 3}}}
        file.write_text(json.dumps(json.loads(file.read_text()) | score | sources))
    found = compared(a, b)
    assert found["overall"]["a"] == 0.5
    assert found["scored_by"] == {"scorer": "mean", "a": 1 / 3, "b": 1 / 3, "over_answers": True}
    assert "which is the mean over these answers: A 0.3333, B 0.3333" in vtune("compare", a, b).out


def searched(evaluation: Path, index: str, content: str) -> Path:
    """The same folder with a search index, or with one that was not recorded."""
    file = evaluation / "results.json"
    found = json.loads(file.read_text())
    found["suite"]["tools"] = {"text_search": {"index": index, "top_k": 1, "max_chars": 9}}
    found["environment"] |= {"indexes": {"tools.text_search.index": content}} if content else {}
    file.write_text(json.dumps(found))
    return evaluation


@pytest.mark.parametrize(
    ("index", "content", "differs"),
    [
        ("a", "1", []),
        ("b", "1", []),
        ("a", "2", ["the content of tools.text_search.index"]),
        ("b", "2", ["tools.text_search.index"]),
        ("a", "", []),
        ("b", "", ["tools.text_search.index"]),
    ],
)
def test_an_index_is_identified_by_its_content(
    index: str, content: str, differs: list[str], tmp_path: Path
) -> None:
    a = searched(folder(tmp_path / "a", right(3, 9)), "a", "1")
    b = searched(folder(tmp_path / "b", right(5, 9)), index, content)
    assert compared(a, b)["differs"] == differs
    results = [json.loads((one / "results.json").read_text()) for one in (a, b)]
    assert _besides(*results) == [*differs, "model"]


def test_the_effect_of_tools_can_be_compared_as_the_message_says(tmp_path: Path) -> None:
    data = make_vstar(tmp_path / "vstar", 2, (300, 200), (100, 60, 140, 100))
    names = [sample.id for sample in asked("vstar", data)]
    model = write_script(tmp_path / "script.jsonl", {name: ["<answer>A</answer>"] for name in names})
    ways = {"direct": ["direct"], "with": ["codev"], "without": ["codev", "--set", "offers=[]"]}
    for name, way in ways.items():
        evaluated("vstar", model, data, tmp_path / name, "--agent", *way)
    refused = vtune("compare", tmp_path / "direct", tmp_path / "with")
    assert (refused.code, "the suites differ in answer_in" in refused.err) == (2, True)
    assert "--set 'offers=[]'" in refused.err
    found = compared(tmp_path / "without", tmp_path / "with")
    assert (found["differs"], found["items"]["both"]) == (["offers"], 2)
