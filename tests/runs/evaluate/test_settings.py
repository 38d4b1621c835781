"""The effect of settings on a suite: another protocol, blocked hosts; the interval of a fallback."""

from pathlib import Path

import pytest

from vtune.config import dump_recipe, find, load_recipe, shipped
from vtune.errors import RecipeError
from vtune.metrics.benchmarks import Mark
from vtune.runs.agent.kinds import Kind
from vtune.runs.evaluate import evaluation
from vtune.runs.evaluate.grading import scores_of
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.train.online_recipe import OnlineEval
from vtune.runs.train.online_suites import load_suites


@pytest.mark.parametrize("suite", ["vstar", "mme-realworld-lite", "mmmu"])
def test_a_stored_suite_accepts_any_protocol_and_survives_a_round_trip(suite: str, tmp_path: Path) -> None:
    path, words = find(suite, "eval_suites"), ["agent=direct"]
    plain = load_recipe(path, EvalSuite, words)
    assert plain.choices is not None
    assert plain.choices.template is not None
    stored = tmp_path / "suite.yaml"
    stored.write_text(dump_recipe(load_recipe(path, EvalSuite, [*words, "protocol=vlmevalkit"])))
    kept = load_recipe(stored, EvalSuite)
    assert kept.choices is not None
    assert (kept.choices.template, kept.choices.letter_rule) == (None, None)
    again = load_recipe(stored, EvalSuite, ["protocol=vtune"])
    assert again.choices == plain.choices
    stored.write_text(dump_recipe(again))
    assert load_recipe(stored, EvalSuite, ["protocol=vlmevalkit"]).choices == kept.choices
    assert load_recipe(stored, EvalSuite).choices == again.choices


def test_only_a_suite_with_a_kind_must_set_the_option_format(tmp_path: Path) -> None:
    suite = tmp_path / "open.yaml"
    suite.write_text(
        "data: [held.parquet]\nformat: samples\ndata_from: here\nagent: direct\nscorer: mean\n"
        "seed: 0\nrollouts: 1\n"
    )
    assert load_recipe(suite, EvalSuite).choices is None
    with pytest.raises(RecipeError, match=r"write `choices: \{order: official\}`, or `choices: null`"):
        load_recipe(suite, EvalSuite, ["kind=multiple_choice"])
    assert load_recipe(suite, EvalSuite, ["kind=multiple_choice", "choices=null"]).choices is None


def test_training_blocks_the_pages_of_its_suites_too() -> None:
    hosts = load_recipe(find("mmsearch-plus", "eval_suites"), EvalSuite).blocked_hosts
    assert "huggingface.co" in hosts
    named = {"suite": "mmsearch-plus", "limit": None, "settings": {}}
    recipe = OnlineEval.model_validate({"every": 1, "suites": [named]})
    (one,) = load_suites(recipe, kind="transformers")
    assert one.suite.tools is not None
    assert set(hosts) <= set(one.suite.tools.web.blocked)


def test_the_fallback_score_has_its_own_interval() -> None:
    marks = [Mark(str(number), {}, float(number % 2), number % 2 == 0) for number in range(40)]
    other = [Mark(mark.sample_id, {}, mark.score or 0.25, mark.unreadable) for mark in marks]
    plain, both = scores_of("mean", marks, marks), scores_of("mean", marks, other)
    assert "with_fallback" not in plain
    assert both["with_fallback"] == pytest.approx(0.625)
    interval = both["intervals"]["with_fallback"]
    assert interval["low"] < both["with_fallback"] < interval["high"]
    assert interval["value"] == both["with_fallback"]
    assert both["intervals"]["score"] == plain["intervals"]["score"]


@pytest.mark.parametrize(
    ("gpus", "kind", "model", "said"),
    [
        (2, "transformers", "nowhere", "transformers does not generate on several GPUs"),
        (8, "vllm", "Qwen/Qwen2.5-VL-7B-Instruct", "does not divide the model's 28 attention heads"),
        (64, "vllm", "nowhere", "tensor_parallel is 64, and this machine has"),
    ],
)
def test_an_impossible_gpu_split_is_refused_before_loading(
    gpus: int, kind: Kind, model: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "check_vllm", lambda: None)
    suite = load_recipe(find("lens", "eval_suites"), EvalSuite, [f"rollout.tensor_parallel={gpus}"])
    with pytest.raises(RecipeError, match=said):
        evaluation.plan_eval(suite, model, limit=None, kind=kind)
    with pytest.raises(RecipeError, match=said):
        evaluation.run_eval(suite, model, tmp_path / "out", limit=None, kind=kind)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("gpus", "of_run"), [(2, 1), (2, 4), (1, 4), (4, 4)])
def test_suites_in_training_use_the_runs_gpus(gpus: int, of_run: int) -> None:
    one = {"suite": "lens", "limit": None, "settings": {"rollout.tensor_parallel": gpus}}
    recipe = OnlineEval.model_validate({"every": 1, "suites": [one]})
    if gpus in (1, of_run):
        assert load_suites(recipe, kind="vllm", tensor_parallel=of_run)
        return
    with pytest.raises(RecipeError, match=f"leave it out: evaluations use the run's, which is {of_run}"):
        load_suites(recipe, kind="vllm", tensor_parallel=of_run)


def test_every_search_suite_blocks_the_same_hosts() -> None:
    suites = {name: load_recipe(find(name, "eval_suites"), EvalSuite) for name in shipped("eval_suites")}
    asked = {name: suite.blocked_hosts for name, suite in suites.items() if suite.agent == "search"}
    assert len(asked) > 6
    assert set(asked.values()) == {suites["browsecomp-vl"].blocked_hosts}
