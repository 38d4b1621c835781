import csv
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Once
from tests.reward.build import recipe
from tests.runs.commands import evaluation, setting, vtune
from tests.runs.manners import Manner, Manners, playing
from vtune.config import find, load_recipe
from vtune.errors import RecipeError
from vtune.judge.feedback_texts import HELPFUL, UNHELPFUL
from vtune.rollout.agent import Rollout
from vtune.runs.audit.counterfactual import RerunWith, prepared
from vtune.runs.audit.drawn import drawn_as
from vtune.runs.audit.located import Audited
from vtune.runs.audit.rerun_record import NAME
from vtune.runs.data.lens import make_lens
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.runs.view.opened import Opened
from vtune.runs.view.overview import overview
from vtune.schema.parquet import read_trajectories, write_trajectories
from vtune.view.place import find_places

COUNT = 10
MANNERS: tuple[Manner, ...] = ("uses", "ignores", "elsewhere", "none")
EVERY = "shown,black,random,other,inpaint,recolor,glyph,withheld"


def evaluated(model: Path, data: Path, out: Path, manner: Manner, **more: object) -> Path:
    settings = setting(rollout__max_new_tokens=90, rollout__max_tokens=900, rollout__temperature=0.0, **more)
    with playing(manner, data):
        ended = vtune(*evaluation(model, data, out, *settings))
    assert ended.code == 0, ended.err
    return out


@pytest.fixture(scope="session")
def puzzles(once: Once) -> Path:
    """A file of puzzles of level 1."""
    sizes = {"train": 1, "heldout": COUNT, "traces": 1}
    folder = once("lens-10", lambda out: make_lens(out, **sizes, level=1, guessable=0.0, seed=3))
    return folder / "heldout.parquet"


@pytest.fixture(scope="module")
def runs(tiny: Path, puzzles: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Manner, Path]:
    """The folder of an evaluation of each of the four policies."""
    folder = tmp_path_factory.mktemp("manners")
    return {manner: evaluated(tiny, puzzles, folder / manner, manner) for manner in MANNERS}


def audited(model: Path, data: Path, run: Path, manner: Manner, exchanges: str) -> tuple[Any, list[Manners]]:
    with playing(manner, data) as opened:
        ended = vtune("faithfulness", run, "--counterfactual", exchanges, "--model", model, "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out), opened


@pytest.fixture(scope="module")
def found(tiny: Path, puzzles: Path, runs: dict[Manner, Path]) -> dict[Manner, Any]:
    """The audit of each policy, with every exchange."""
    return {manner: audited(tiny, puzzles, runs[manner], manner, EVERY)[0] for manner in MANNERS}


def value(found: Any, *names: str) -> float:
    for name in names:
        found = found[name]
    assert found is not None
    return float(found["value"])


def dependent(audit: Any, exchange: str, of: str = "looked") -> float:
    return value(audit, "counterfactual", "exchanges", exchange, f"dependent_of_{of}")


def test_a_judge_of_looks_cannot_distinguish_reading_from_knowing(found: dict[Manner, Any]) -> None:
    shares = {name: value(audit, "all", "faithful_of_correct") for name, audit in found.items()}
    assert shares == {"uses": 1.0, "ignores": 1.0, "elsewhere": 0.0, "none": 0.0}


def test_an_exchange_distinguishes_reading_from_knowing(found: dict[Manner, Any]) -> None:
    for exchange in ("black", "random", "other", "inpaint", "glyph"):
        assert dependent(found["uses"], exchange) > 0.6, exchange
        for manner in ("ignores", "elsewhere"):
            assert dependent(found[manner], exchange) == 0.0, (exchange, manner)
    # What another picture shows is known: an answer that follows it proves reading.
    for exchange in ("other", "glyph"):
        told = {
            name: value(audit, "counterfactual", "exchanges", exchange, "follows")
            for name, audit in found.items()
            if name in ("uses", "ignores")
        }
        assert told == {"uses": 1.0, "ignores": 0.0}
        assert dependent(found["uses"], exchange) == 1.0


def test_a_question_not_about_colours_does_not_depend_on_them(found: dict[Manner, Any]) -> None:
    assert dependent(found["uses"], "recolor") == 0.0


def test_with_the_same_pictures_nothing_changes(found: dict[Manner, Any]) -> None:
    for manner in ("uses", "ignores", "elsewhere"):
        assert dependent(found[manner], "shown") == 0.0
    beyond = found["uses"]["counterfactual"]["exchanges"]["black"]["beyond_chance"]
    assert beyond["value"] == dependent(found["uses"], "black")


def test_an_answer_that_is_the_same_before_the_call_did_not_need_it(found: dict[Manner, Any]) -> None:
    assert dependent(found["uses"], "withheld") > 0.6
    assert dependent(found["ignores"], "withheld") == 0.0


def test_right_answers_without_a_picture_do_not_depend_on_one(found: dict[Manner, Any]) -> None:
    guesses = found["none"]["counterfactual"]["exchanges"]["black"]
    assert (guesses["n"], guesses["dependent_of_looked"]) == (0, None)
    assert dependent(found["none"], "black", "correct") == 0.0
    assert dependent(found["none"], "black", "all") == 0.0


def test_all_denominators_are_correct(found: dict[Manner, Any]) -> None:
    exchange = found["uses"]["counterfactual"]["exchanges"]["black"]
    assert found["uses"]["all"]["n"] == COUNT
    right = round(value(found["uses"], "all", "accuracy") * COUNT)
    assert exchange["n"] == right
    lost = round(dependent(found["uses"], "black") * right)
    assert dependent(found["uses"], "black", "correct") == pytest.approx(lost / right)
    assert dependent(found["uses"], "black", "all") == pytest.approx(lost / COUNT)
    assert sum(one["value"] for one in exchange["table"].values()) == pytest.approx(1)
    assert exchange["table"]["faithful_dependent"]["value"] == pytest.approx(lost / right)
    assert exchange["by"]["source"]["lens"]["n"] == right
    assert list(exchange["by"]["resolution"]) == ["under 1 MP"]
    assert list(exchange["by"]["calls"]) == ["1"]


def test_a_rerun_costs_one_turn_per_answer_and_is_generated_once(
    tiny: Path, puzzles: Path, runs: dict[Manner, Path], tmp_path: Path
) -> None:
    run = copied(runs["uses"], tmp_path / "run")
    audit, (engine,) = audited(tiny, puzzles, run, "uses", "black,other")
    trajectories = list(read_trajectories(run / "trajectories.parquet"))
    asked = [t for t in trajectories if t.reward is not None and t.reward.accuracy == 1]
    assert asked
    assert len(engine.requests) == 2 * len(asked) == audit["counterfactual"]["drawn"]
    assert audit["counterfactual"]["tokens"] == engine.tokens
    by_id = {t.sample_id: t for t in asked}
    for request in engine.requests:
        record = by_id[request.question]
        assert record.token_ids[: len(request.token_ids)] == tuple(request.token_ids)
        last = record.token_ids[len(request.token_ids) :]
        assert record.loss_mask[len(request.token_ids) :] == (True,) * len(last)
        assert not record.loss_mask[len(request.token_ids) - 1]
    again, (idle,) = audited(tiny, puzzles, run, "uses", "black,other")
    assert not idle.requests
    assert again["counterfactual"] == audit["counterfactual"] | {"drawn": 0}


def test_only_reruns_lost_in_a_kill_are_generated_again(
    tiny: Path, puzzles: Path, runs: dict[Manner, Path], tmp_path: Path
) -> None:
    run = copied(runs["uses"], tmp_path / "run")
    audit, _ = audited(tiny, puzzles, run, "uses", "black")
    record = run / "counterfactual.jsonl"
    lines = record.read_bytes().splitlines(keepends=True)
    record.write_bytes(b"".join(lines[:-2]) + lines[-2][:40])
    again, (engine,) = audited(tiny, puzzles, run, "uses", "black")
    assert len(engine.requests) == 2
    assert again["counterfactual"] == audit["counterfactual"] | {"drawn": 2}
    assert sorted(record.read_bytes().splitlines()) == sorted(b"".join(lines).splitlines())


def test_black_reruns_match_a_run_with_black_crops(
    tiny: Path, puzzles: Path, runs: dict[Manner, Path], tmp_path: Path
) -> None:
    run = copied(runs["uses"], tmp_path / "run")
    audited(tiny, puzzles, run, "uses", "black")
    again = {
        line["sample_id"]: line["text"]
        for line in map(json.loads, (run / "counterfactual.jsonl").read_text().splitlines())
    }
    dark = evaluated(tiny, puzzles, tmp_path / "dark", "uses", call_images="black")
    said = {t.sample_id: t.messages[-1].content for t in read_trajectories(dark / "trajectories.parquet")}
    assert again
    assert again == {name: said[name] for name in again}


def test_a_rerun_that_is_impossible_is_refused_with_a_fix(
    tiny: Path, puzzles: Path, runs: dict[Manner, Path], tmp_path: Path
) -> None:
    file = tmp_path / "some.parquet"
    write_trajectories(file, read_trajectories(runs["uses"] / "trajectories.parquet"))
    (tmp_path / "dark").mkdir()
    suite = (runs["uses"] / "suite.yaml").read_text()
    (tmp_path / "dark/suite.yaml").write_text(suite.replace("call_images: shown", "call_images: black"))
    (tmp_path / "dark/trajectories.parquet").symlink_to(file)
    asks = ["--counterfactual", "black", "--model", tiny]
    for words, what, fix in (
        ([runs["uses"], "--counterfactual", "blck", "--model", tiny], "no exchange 'blck'", "`black`"),
        ([runs["uses"], "--counterfactual", "blck"], "no exchange 'blck'", "did you mean `black`"),
        ([runs["uses"], "--counterfactual", "black"], "needs --model", "the model that generated"),
        ([runs["uses"], "--agent", "codev"], "--agent needs --counterfactual", "or leave it out"),
        ([file, "--data", puzzles, *asks], "how these trajectories were generated", "--agent"),
        ([tmp_path / "dark", *asks], "blackened already", "call_images: shown"),
        (
            [runs["uses"], "--counterfactual", "withheld", "--model", "openai:http://localhost:1/v1#m"],
            "an endpoint does not allow",
            "leave it out",
        ),
    ):
        ended = vtune("faithfulness", *words)
        assert ended.code == 2, ended.err
        assert what in ended.err
        assert fix in ended.err


def test_a_single_file_is_rerun_with_the_named_agent(
    tiny: Path, puzzles: Path, runs: dict[Manner, Path], tmp_path: Path
) -> None:
    file = tmp_path / "some.parquet"
    write_trajectories(file, list(read_trajectories(runs["uses"] / "trajectories.parquet"))[:4])
    words = [
        "--data",
        puzzles,
        "--counterfactual",
        "glyph",
        "--model",
        tiny,
        "--agent",
        "lens-tiny",
        "--json",
    ]
    with playing("uses", puzzles):
        ended = vtune("faithfulness", file, *words)
    assert ended.code == 0, ended.err
    exchange = json.loads(ended.out)["counterfactual"]["exchanges"]["glyph"]
    assert exchange["n"] > 0
    assert exchange["follows"]["value"] == 1.0


def test_a_model_with_another_pixel_budget_is_refused(
    tiny: Path, puzzles: Path, runs: dict[Manner, Path], tmp_path: Path
) -> None:
    run = copied(runs["uses"], tmp_path / "run")
    suite = (run / "suite.yaml").read_text()
    (run / "suite.yaml").write_text(suite.replace("max_pixels: 12544", "max_pixels: 50176"))
    ended = vtune("faithfulness", run, "--counterfactual", "black", "--model", tiny)
    assert ended.code == 2, ended.err
    assert "its pictures fill" in ended.err
    assert "name the model that generated it" in ended.err
    first, *others = read_trajectories(runs["uses"] / "trajectories.parquet")
    last = replace(first.messages[-1], content=f"{first.messages[-1].content} It is.")
    told = replace(first, messages=(*first.messages[:-1], last))
    write_trajectories(run / "trajectories.parquet", [told, *others])
    (run / "suite.yaml").write_text(suite)
    ended = vtune("faithfulness", run, "--counterfactual", "black", "--model", tiny)
    assert ended.code == 2, ended.err
    assert "another tokenizer wrote them" in ended.err


def test_the_terminal_shows_both_tables(tiny: Path, puzzles: Path, runs: dict[Manner, Path]) -> None:
    with playing("uses", puzzles):
        ended = vtune("faithfulness", runs["uses"], "--counterfactual", EVERY, "--model", tiny)
    assert ended.code == 0, ended.err
    for text in ("dependent, of", "say what", "unfaithful,", "independent", "kappa", "tokens on record"):
        assert text in ended.out


def test_a_model_other_than_the_evaluations_is_reported(
    tiny: Path, puzzles: Path, runs: dict[Manner, Path], tmp_path: Path
) -> None:
    run = copied(runs["uses"], tmp_path / "run")
    results = json.loads((runs["uses"] / "results.json").read_text())
    (run / "results.json").write_text(json.dumps(results))
    (tmp_path / "same").symlink_to(tiny)
    audit, _ = audited(tmp_path / "same", puzzles, run, "uses", "black")
    assert audit["counterfactual"]["drawn_by"] is None
    (run / "results.json").write_text(json.dumps(results | {"model": "openai:http://127.0.0.1:1/v1#other"}))
    (run / NAME).unlink()
    audit, _ = audited(tiny, puzzles, run, "uses", "black")
    assert audit["counterfactual"]["drawn_by"] == "openai:http://127.0.0.1:1/v1#other"
    with playing("uses", puzzles):
        ended = vtune("faithfulness", run, "--counterfactual", "black", "--model", tiny)
    assert "the evaluation names another model, openai:http://127.0.0.1:1/v1#other" in ended.out


def test_exported_tables_have_the_dependent_shares(
    tiny: Path, puzzles: Path, runs: dict[Manner, Path], found: dict[Manner, Any]
) -> None:
    words = ("faithfulness", runs["ignores"], "--counterfactual", EVERY, "--model", tiny)
    with playing("ignores", puzzles):
        row = next(csv.DictReader(io.StringIO(vtune(*words, "--csv").out)))
        latex = vtune(*words, "--latex").out
    for name in EVERY.split(","):
        assert float(row[f"dependent_{name}"]) == dependent(found["ignores"], name, "correct")
    assert "dependent (glyph), of the correct" in latex


def copied(run: Path, to: Path) -> Path:
    """A copy of a run folder that the test may change."""
    to.mkdir()
    for name in ("suite.yaml", "trajectories.parquet"):
        (to / name).write_bytes((run / name).read_bytes())
    return to


def test_the_policy_gets_feedback_on_its_looks_if_the_recipe_asks(
    tiny: Path, puzzles: Path, runs: dict[Manner, Path], tmp_path: Path
) -> None:
    for manner, told, untold in (("uses", HELPFUL, UNHELPFUL), ("elsewhere", UNHELPFUL, HELPFUL)):
        out = evaluated(tiny, puzzles, tmp_path / manner, manner, rollout__feedback="true")
        trajectories = list(read_trajectories(out / "trajectories.parquet"))
        assert len(trajectories) == COUNT
        for trajectory in trajectories:
            shown = trajectory.messages[-2].content
            assert told in shown
            assert untold not in shown
            assert told not in trajectory.calls[0].output
            # The policy reads it, but is not trained on it.
            assert trajectory.loss_mask.count(True) < len(trajectory.loss_mask)
    for run in runs.values():
        assert HELPFUL not in (run / "suite.yaml").read_text()
        said = [m.content for t in read_trajectories(run / "trajectories.parquet") for m in t.messages]
        assert not any(HELPFUL in one or UNHELPFUL in one for one in said)


@pytest.mark.parametrize("name", ["codev-tiny", "credit-tiny", "codev"])
def test_a_training_recipe_determines_how_its_trajectories_are_rerun(name: str) -> None:
    recipe = load_recipe(find(name, "recipes.rl"), RLRecipe)
    drawn = drawn_as(str(find(name, "recipes.rl")), None)
    assert (drawn.dtype, drawn.threads) == (recipe.update.dtype, recipe.update.threads)
    assert drawn.images == recipe.images
    assert drawn.rollout.model_dump() == {
        key: value for key, value in recipe.rollout.model_dump().items() if key in Rollout.model_fields
    }


def test_the_page_of_an_evaluation_shows_audit_results(
    runs: dict[Manner, Path], found: dict[Manner, Any], tmp_path: Path
) -> None:
    assert found
    (place,) = find_places(runs["uses"])
    page = overview(Opened(place, show=False))
    assert page["problem"] == ""
    titles = [table["title"] for table in page["tables"]]
    (first,) = [n for n, title in enumerate(titles) if title.startswith("right answers with other pictures")]
    table = page["tables"][first]
    rows = {row[0]: row for row in table["rows"]}
    assert list(rows) == EVERY.split(",")
    assert rows["glyph"][1:3] == [str(COUNT), "100.0 [72.2, 100.0]"]
    assert "the judge's verdict and the exchange's" in titles[first + 1]
    headline = {row["name"]: row for row in page["headline"]["rows"]}
    assert [name for name in headline if "dependent" in name] == [
        f"right and dependent, of all ({exchange})" for exchange in EVERY.split(",") if exchange != "shown"
    ]
    assert headline["right and dependent, of all (glyph)"]["share"]
    assert headline["right and dependent, of all (glyph)"]["last"]["value"] == 1
    shutil.copytree(runs["uses"], tmp_path / "run")
    (tmp_path / "run/audit.json").write_text('{"counterfactual": {}}')
    (place,) = find_places(tmp_path / "run")
    assert "audit.json" in overview(Opened(place, show=False))["problem"]


def test_steps_with_different_weights_are_not_rerun_with_one_model(tmp_path: Path) -> None:
    steps = [tmp_path / "trajectories" / f"step-{step:06d}.parquet" for step in (0, 99)]
    asked = RerunWith(exchanges="black", model="nowhere")
    found = Audited(tuple(steps), None, recipe(), 0, "nothing")  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="with different weights") as refused:
        prepared(asked, found, tmp_path)
    assert f"name the file of one step, e.g. {steps[1]}" in str(refused.value)
    ranks = [tmp_path / "trajectories" / f"step-000099-rank-{rank}.parquet" for rank in (0, 1)]
    with pytest.raises(RecipeError, match="it is not known how these trajectories were generated"):
        prepared(asked, replace(found, files=tuple(ranks)), tmp_path)


def test_a_missing_vllm_is_reported_before_anything_is_audited(
    tiny: Path, runs: dict[Manner, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtune.runs.agent.kinds.find_spec", lambda name: None)
    ended = vtune("faithfulness", runs["uses"], "--counterfactual", "black", "--model", tiny, "--vllm")
    assert ended.code == 2, ended.err
    assert "vllm is not installed" in ended.err


def test_a_model_that_cannot_read_is_rerun_by_itself(
    tiny: Path, runs: dict[Manner, Path], tmp_path: Path
) -> None:
    run = copied(runs["uses"], tmp_path / "run")
    suite = (run / "suite.yaml").read_text()
    assert "max_new_tokens: 90" in suite
    (run / "suite.yaml").write_text(suite.replace("max_new_tokens: 90", "max_new_tokens: 4"))
    ended = vtune("faithfulness", run, "--counterfactual", "shown,withheld", "--model", tiny, "--json")
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)["counterfactual"]
    assert told["drawn"] == 2 * COUNT
    assert told["tokens"] <= 4 * told["drawn"]
    # Random weights answer nothing correctly, not even with the same pictures.
    assert [value(one, "dependent_of_looked") for one in told["exchanges"].values()] == [1.0, 1.0]
    assert value(told["exchanges"]["withheld"], "beyond_chance") == 0.0
