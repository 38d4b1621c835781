"""Evaluation during training: its results, that it does not affect training, and that it survives a crash."""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml

from tests.reward.test_score import NOWHERE
from tests.runs.commands import Ended, evaluation, numbers, rl, same_weights, setting, sft, vtune
from vtune.errors import DataError, RecipeError, RunFailed, ServiceError
from vtune.runs.agent.tools import ToolsRecipe
from vtune.runs.evaluate.questions import read_questions
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.report.document import run_report
from vtune.runs.train import online_eval, online_suites
from vtune.runs.train.online_eval import OnlineEvaluation
from vtune.runs.train.online_recipe import OnlineEval
from vtune.runs.train.online_suites import check_suites, load_suites
from vtune.sandbox import Isolation
from vtune.tools.exchanges import Budget, Exchanges, Request, WebRules
from vtune.update.ranks import Ranks

pytestmark = pytest.mark.train

WHOLE = "eval/lens/all"


def online(data: Path, *, every: int = 2, limit: int | None = None) -> str:
    suite = {"suite": "lens", "limit": limit, "settings": {"data": [str(data)]}}
    return json.dumps({"every": every, "suites": [suite]})


def training(run: Path) -> dict[tuple[int, str], dict[str, float]]:
    return {key: row for key, row in numbers(run).items() if not key[1].startswith("eval/")}


def evaluations(run: Path) -> dict[int, dict[str, float]]:
    return {step: row for (step, source), row in numbers(run).items() if source == WHOLE}


async def told_to_stop(*_: Any) -> None:
    """A portion that never ends, in a process that gets SIGTERM."""
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.Event().wait()


@pytest.fixture(scope="module")
def runs(
    schooled: Path, unbroken: Path, lens: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, Ended]:
    """One run that is never evaluated, and one that failed in its second evaluation, got SIGTERM in it when
    it was resumed, and was resumed once more."""
    watched = tmp_path_factory.mktemp("online") / "watched"
    keep = "{newest: 1, best: {suite: lens, metric: reward, mode: max}}"
    more = setting(eval=online(lens / "heldout.parquet"), checkpoints__keep=keep)
    words = rl(schooled.resolve(), lens / "train.parquet", watched, *more)
    portion, calls = OnlineEvaluation._portion, []

    async def break_down(self: OnlineEvaluation, *given: Any) -> None:
        await portion(self, *given)
        calls.append(given)
        if len(calls) == 2:
            raise OSError("the power is gone")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OnlineEvaluation, "_portion", break_down)
        with pytest.raises(OSError, match="the power is gone"):
            vtune(*words)
    assert sorted(evaluations(watched)) == [0]
    assert sorted({step for step, _ in training(watched)}) == [0, 1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OnlineEvaluation, "_portion", told_to_stop)
        ended = vtune(*words, "--resume")
    assert ended.code == 130, ended.err
    assert sorted(evaluations(watched)) == [0]
    ended = vtune(*words, "--resume", "--json")
    assert ended.code == 0, ended.err
    return unbroken, watched, ended


def test_training_is_bitwise_the_same_with_and_without_evaluation(runs: tuple[Path, Path, Ended]) -> None:
    plain, watched, _ = runs
    assert training(watched) == training(plain)
    assert same_weights(*(run / "checkpoints/step-000004" for run in (watched, plain)))
    assert evaluations(plain) == {}


def test_evaluation_runs_once_before_training_at_each_interval_and_at_the_end(
    runs: tuple[Path, Path, Ended],
) -> None:
    _, watched, ended = runs
    found = evaluations(watched)
    assert sorted(found) == [0, 2, 4]
    for row in found.values():
        assert row["trajectories"] == 6
        assert {"score", "accuracy", "response_tokens", "reflection_ratio", "faithful_of_all"} <= row.keys()
    assert "eval after step 4: lens" in ended.err
    assert ended.err.count("sandbox: ") == 1
    lines = [json.loads(line) for line in (watched / "metrics.jsonl").read_text().splitlines()]
    assert [line["seconds_eval"] > 0 for line in lines if line["source"] == WHOLE] == [True] * 3
    # Nothing is left to do, and nothing is repeated.
    before = (watched / "metrics.jsonl").read_text()
    again = vtune("rl", "--recipe", watched / "recipe.yaml", "--out", watched, "--resume")
    assert again.code == 0, again.err
    assert (watched / "metrics.jsonl").read_text() == before


def test_online_evaluation_matches_an_evaluation_of_the_checkpoint(
    runs: tuple[Path, Path, Ended], lens: Path, tmp_path: Path
) -> None:
    _, watched, _ = runs
    words = evaluation(watched, lens / "heldout.parquet", tmp_path / "eval", "--json")
    ended = vtune(*words)
    assert ended.code == 0, ended.err
    whole = json.loads(ended.out)
    row = evaluations(watched)[4]
    assert row["score"] == whole["score"]["score"]
    # An evaluation reads its rewards from a file, which stores them in float32.
    named = whole["sources"]["all"]
    assert {name: row[name] for name in named} == pytest.approx(named, rel=1e-6)
    assert row["faithful_of_all"] == whole["faithfulness"]["faithful_of_all"]["value"]
    by_chance = whole["faithfulness"]["faithful_by_chance"]
    assert row.get("faithful_by_chance") == (by_chance and by_chance["value"])


def test_the_best_checkpoint_is_kept_and_linked(runs: tuple[Path, Path, Ended]) -> None:
    _, watched, _ = runs
    curve = {step: row["reward"] for step, row in evaluations(watched).items() if step}
    assert len(set(curve.values())) == 2
    best = min(step for step, score in curve.items() if score == max(curve.values()))
    root = watched / "checkpoints"
    assert (root / "best").resolve() == (root / f"step-{best:06d}").resolve()
    assert (root / "newest").resolve().name == "step-000004"
    written = yaml.safe_load((watched / "recipe.yaml").read_text())["checkpoints"]["keep"]
    assert written["best"] == {"suite": "lens", "metric": "reward", "mode": "max"}


def test_the_report_shows_the_curve_of_each_suite(runs: tuple[Path, Path, Ended]) -> None:
    _, watched, _ = runs
    (run,) = run_report([watched])["runs"]  # type: ignore[misc]
    curve = run["sources"][WHOLE]["reward"]
    assert curve["steps"] == [0, 2, 4]
    assert curve["values"] == [row["reward"] for _, row in sorted(evaluations(watched).items())]
    assert curve["best"] == max(curve["values"])


def test_a_changed_suite_does_not_continue_the_same_curve(runs: tuple[Path, Path, Ended], lens: Path) -> None:
    _, watched, _ = runs
    before = (watched / "recipe.yaml").read_text()
    other = setting(eval=online(lens / "heldout.parquet", limit=3), checkpoints__keep=1)
    ended = vtune("rl", "--recipe", watched / "recipe.yaml", "--out", watched, *other, "--resume")
    assert ended.code == 2
    assert "the eval suite lens is not the one" in ended.err
    assert "it differs in limit" in ended.err
    assert (watched / "recipe.yaml").read_text() == before


def test_sft_is_evaluated_without_being_affected(tiny: Path, lens: Path, tmp_path: Path) -> None:
    settings = setting(epochs="null", steps=3, batch_size=4, checkpoints__every=1, update__warmup_steps=0)
    for name, more in (
        ("plain", []),
        ("watched", setting(eval=online(lens / "heldout.parquet", limit=2))),
    ):
        ended = vtune(*sft(tiny, lens / "traces.parquet", tmp_path / name, *settings, *more))
        assert ended.code == 0, ended.err
        # Code runs only in evaluations, of which there are three.
        assert ended.err.count("sandbox: ") == (name == "watched")
    plain, watched = tmp_path / "plain", tmp_path / "watched"
    assert training(watched) == training(plain)
    assert same_weights(*(run / "checkpoints/newest" for run in (watched, plain)))
    assert sorted(evaluations(watched)) == [0, 2, 3]
    assert {row["trajectories"] for row in evaluations(watched).values()} == {2}


async def run_failed(*_: Any) -> None:
    raise RunFailed("the engine is dead")


async def wrong_settings(*_: Any) -> None:
    raise RecipeError("the engine is dead")


def test_a_failed_start_does_not_fix_the_suites_of_the_next(tiny: Path, lens: Path, tmp_path: Path) -> None:
    out, broken = tmp_path / "run", tmp_path / "broken"
    shutil.copytree(tiny, broken)
    (broken / "model.safetensors").unlink()
    once = setting(steps=1, epochs="null", batch_size=2)

    def start(model: Path, limit: int) -> Ended:
        suite = setting(eval=online(lens / "heldout.parquet", every=1, limit=limit))
        return vtune(*sft(model, lens / "traces.parquet", out, *once, *suite))

    failed = start(broken, 3)
    assert "cannot load a model" in failed.err
    assert (out / "eval.json").exists()
    again = start(tiny, 2)
    assert again.code == 0, again.err
    assert {row["trajectories"] for row in evaluations(out).values()} == {2}
    refused = start(tiny, 2)
    assert refused.code == 2
    assert "holds a run already" in refused.err


@pytest.mark.parametrize(
    ("ends", "code", "words"),
    [
        (run_failed, 1, "the engine is dead"),
        (wrong_settings, 1, "the engine is dead"),
        (told_to_stop, 130, "stopped after step 1 of 2; its checkpoint is written"),
    ],
)
def test_sft_progress_is_saved_if_an_evaluation_does_not_end(
    ends: Callable[..., Awaitable[None]],
    code: int,
    words: str,
    tiny: Path,
    lens: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    portion, calls = OnlineEvaluation._portion, []

    async def second_ends(self: OnlineEvaluation, *given: Any) -> None:
        calls.append(given)
        await (ends if len(calls) == 2 else portion)(self, *given)

    monkeypatch.setattr(OnlineEvaluation, "_portion", second_ends)
    settings = setting(epochs="null", steps=2, batch_size=2, checkpoints__every=2, update__warmup_steps=0)
    watched = setting(eval=online(lens / "heldout.parquet", every=1, limit=1))
    ended = vtune(*sft(tiny, lens / "traces.parquet", tmp_path / "run", *settings, *watched))
    assert ended.code == code
    assert words in ended.err
    assert (tmp_path / "run/checkpoints/newest").resolve().name == "step-000001"


@pytest.mark.parametrize("broken", ["here", "elsewhere"])
def test_a_scorer_that_breaks_in_one_process_ends_all_of_them(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it, all processes write a checkpoint together."""
    wrong = DataError("no such table", where="table.csv")

    def score(*_: object) -> dict[str, float]:
        if broken == "here":
            raise wrong
        return {"score": 0.5}

    told: list[RunFailed | None] = []

    def gather(failure: RunFailed | None) -> list[RunFailed | None]:
        told.append(failure)
        return [failure, RunFailed("no such table") if broken == "elsewhere" else None]

    monkeypatch.setattr(online_eval, "scores_of", score)
    here = Mock(_ranks=Mock(gather=gather))
    one = Mock()
    one.name = "lens"
    with pytest.raises(RunFailed, match="no such table"):
        OnlineEvaluation._scores(here, one, [])
    assert [failure is not None for failure in told] == [broken == "here"]


def test_a_suite_with_only_data_uses_all_of_it() -> None:
    (one,) = OnlineEval.model_validate({"every": 1, "suites": [{"suite": "lens"}]}).suites
    assert (one.limit, one.settings) == (None, {})


def test_a_run_and_its_suite_cannot_write_one_web_record(tmp_path: Path) -> None:
    suites = [{"suite": "lens", "limit": None, "settings": {}}]
    recipe = OnlineEval.model_validate({"every": 1, "suites": suites})
    (one,) = load_suites(recipe, kind="transformers")
    tools = ToolsRecipe(web=WebRules(record=str(tmp_path / "web.jsonl")))
    recording = replace(one, suite=one.suite.model_copy(update={"tools": tools}))
    with pytest.raises(RecipeError, match="write to the same record of the web"):
        check_suites([recording], tools, model=None, world=1)
    with pytest.raises(
        RecipeError, match=r"2 processes would write to the same record of the web, .*web\.jsonl"
    ):
        check_suites([recording], model=None, world=2)


def test_suites_have_separate_web_budgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first asks as often as its budget allows, and the second may still ask."""
    recipe = OnlineEval.model_validate({"every": 1, "suites": ["lens", "vstar"]})
    rules = WebRules(budget=Budget(requests=1))
    asked: list[str] = []

    async def answer() -> list[str]:
        return []

    @asynccontextmanager
    async def opened(suite: EvalSuite, *_: object, record: Path, **__: object) -> AsyncIterator[None]:
        async with aclosing(Exchanges(record, rules)) as exchanges:
            await exchanges.get(Request("search", str(suite.data), {}), answer)
        asked.append(record.name)
        raise RunFailed("enough")
        yield

    monkeypatch.setattr(online_eval, "open_agent", opened)
    monkeypatch.setattr(OnlineEvaluation, "_runs_code", lambda *_: False)
    policy = Mock()
    policy.pictures.within.return_value.shown_size = None
    evaluation = OnlineEvaluation(
        recipe,
        [],
        steps=1,
        policy=policy,
        gathered=nullcontext,
        ranks=Ranks(rank=0, world=1, local=0),
        out=tmp_path,
        record=Mock(),
        checkpoints=Mock(),
        done=0,
        stop_requested=lambda: False,
    )
    for one in load_suites(recipe, kind="transformers"):
        with pytest.raises(RunFailed, match="enough"):
            asyncio.run(evaluation._drawn(one, 0, Mock()))
    assert asked == ["search-eval-lens-0.jsonl", "search-eval-vstar-0.jsonl"]


@pytest.mark.parametrize(
    ("of_run", "settings", "found"),
    [("auto", {}, "auto"), ("unsafe", {}, "unsafe"), ("unsafe", {"sandbox.isolation": "flat"}, "flat")],
)
def test_code_in_evaluations_has_the_runs_sandbox_settings(
    of_run: Isolation, settings: dict[str, str], found: str
) -> None:
    recipe = OnlineEval.model_validate(
        {"every": 1, "suites": [{"suite": "lens", "limit": None, "settings": settings}]}
    )
    (one,) = load_suites(recipe, kind="transformers", isolation=of_run)
    assert one.suite.sandbox.isolation == found


def test_a_summariser_of_a_suite_that_does_not_answer_is_found_at_the_start(
    lens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = {
        "url": "http://127.0.0.1:9",
        "top_k": 1,
        "max_chars": 99,
        "patience": {"timeout_s": 1.0, "retries": 0, "deadline_s": 1.0, "concurrency": 1},
        "summariser": NOWHERE.model_dump(),
    }
    settings = {"data": [str(lens / "heldout.parquet")], "tools": {"text_search": text}}
    suites = [{"suite": "lens", "limit": 1, "settings": settings}]
    recipe = OnlineEval.model_validate({"every": 1, "suites": suites})
    with pytest.raises(ServiceError, match="the text search service gave no answer"):
        check_suites(load_suites(recipe, kind="transformers"), model=None, world=1)
    monkeypatch.setattr(online_suites, "check_asking", lambda _: None)  # as if the service answered
    with pytest.raises(ServiceError, match="text searches would have no summary"):
        check_suites(load_suites(recipe, kind="transformers"), model=None, world=1)


def test_a_suite_whose_prompts_leave_no_room_is_refused_at_the_start(
    tiny: Path, lens: Path, tmp_path: Path
) -> None:
    settings = {"data": [str(lens / "heldout.parquet")], "rollout.max_tokens": 40}
    suite = json.dumps({"every": 1, "suites": [{"suite": "lens", "limit": 4, "settings": settings}]})
    words = rl(tiny.resolve(), lens / "train.parquet", tmp_path / "run", *setting(eval=suite))
    for more in ((), ("--dry-run",)):
        refused = vtune(*words, *more)
        assert refused.code == 2
        assert "eval suite lens: 4 of the first 4 prompts leave no room for a reply" in refused.err
        assert "in its `settings`" in refused.err
    assert not (tmp_path / "run").exists()


def test_a_dry_run_checks_the_suites_and_counts_their_rollouts(
    schooled: Path, lens: Path, tmp_path: Path
) -> None:
    words = [*rl(schooled, lens / "train.parquet", tmp_path / "run"), "--dry-run", "--json"]
    ended = vtune(*words, *setting(eval=online(lens / "heldout.parquet", every=3)))
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)["check"]
    # After 0, 3 and 4 steps, 6 questions each; 4 steps of 2 prompts with 4 rollouts.
    wanted = {"evaluations": 3, "eval_rollouts_lens": 6, "eval_rollouts": 18, "eval_share": 18 / (18 + 32)}
    assert {name: found[name] for name in wanted} == wanted
    absent = vtune(*words, *setting(eval=online(tmp_path / "nowhere.parquet")))
    assert absent.code == 0, absent.err
    (missing,) = json.loads(absent.out)["check"]["missing"]
    assert missing.startswith(f"data {tmp_path / 'nowhere.parquet'} of eval suite lens")


@pytest.mark.parametrize(("limit", "world"), [(None, 2), (5, 4), (2, 3)])
def test_processes_divide_the_questions(lens: Path, limit: int | None, world: int) -> None:
    recipe = OnlineEval.model_validate(json.loads(online(lens / "heldout.parquet", limit=limit)))
    (one,) = load_suites(recipe, kind="transformers")
    whole = [sample.id for sample, _ in read_questions(one.suite, limit=one.limit)]
    assert len(whole) == (limit or 6)
    shares = [
        [sample.id for sample, _ in read_questions(one.suite, limit=one.limit, rank=rank, world=world)]
        for rank in range(world)
    ]
    assert shares == [whole[rank::world] for rank in range(world)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"eval": "{every: 2, suites: [lens, lens]}"}, "two suites are called `lens`"),
        ({"eval": "{every: 2, suites: []}"}, "eval.suites"),
        ({"eval": "{every: 2, suites: [nowhere]}"}, "nowhere"),
        ({"checkpoints__keep": "{newest: 1, best: {suite: lens, metric: score, mode: max}}"}, "it is null"),
        (
            {
                "eval": "{every: 3, suites: [lens]}",
                "checkpoints__keep": "{newest: 1, best: {suite: lens, metric: score, mode: max}}",
            },
            "eval.every 3 is not a multiple of checkpoints.every 2",
        ),
        ({"checkpoints__keep": "{newest: 1, every: 3}"}, "keep.every 3 is not a multiple of every 2"),
        ({"checkpoints__keep": 0}, "`checkpoints.keep"),
    ],
)
def test_impossible_settings_are_refused_before_the_start(
    schooled: Path, lens: Path, tmp_path: Path, change: dict[str, object], said: str
) -> None:
    ended = vtune(*rl(schooled, lens / "train.parquet", tmp_path / "run", *setting(**change)))
    assert ended.code == 2
    assert said in ended.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("suite", "settings"),
    [("mathverse", {}), ("mathvista", {"grader": {"base_url": "http://127.0.0.1:9/v1", "model": "judge"}})],
)
def test_training_waits_for_no_model_that_reads_answers(suite: str, settings: dict[str, Any]) -> None:
    def section(name: str, **words: Any) -> OnlineEval:
        one = {"suite": name, "limit": None, "settings": {"protocol": "official", **words}}
        return OnlineEval.model_validate({"every": 1, "suites": [one]})

    with pytest.raises(RecipeError, match="lets a model read answers, but training does not wait"):
        load_suites(section(suite, **settings), kind="transformers")
    assert load_suites(section("mathvista"), kind="transformers")
