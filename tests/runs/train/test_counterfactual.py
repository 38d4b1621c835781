import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.curate.build import png, sample
from tests.runs.commands import numbers, rl, setting, vtune
from tests.runs.manners import Manner, Manners, playing
from vtune.config import find, load_recipe
from vtune.errors import RecipeError
from vtune.metrics.log import read_metrics
from vtune.reward.combining import with_part
from vtune.reward.evidence_boxes import BoxJudge
from vtune.reward.part import Unscored
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.train.counterfactual import NAME
from vtune.runs.train.draw import lent
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.schema.message import Message
from vtune.schema.parquet import read_samples, read_trajectories, write_samples
from vtune.schema.reward import Reward
from vtune.schema.sample import Evidence, Sample
from vtune.schema.store import sample_store
from vtune.schema.trajectory import Trajectory
from vtune.schema.verdict import Verdict
from vtune.verifiers import grounding

WEIGHT = 0.5


def drawn(
    model: Path, lens: Path, out: Path, manner: Manner, *, asked: Path | None = None, **more: object
) -> tuple[list[Trajectory], Manners]:
    """The rollouts of one step, and the policy that generated them, which knows the puzzles of `lens`.

    The data are those puzzles, or a file with `asked` about them.
    """
    puzzles = lens / "train.parquet"
    settings = {"steps": 1, "prompts_per_step": 4, "group_size": 2, "trajectories_every": 1}
    settings |= {"rollout__max_new_tokens": 90, "rollout__max_tokens": 900, "checkpoints__every": 1} | more
    with playing(manner, puzzles) as opened:
        ended = vtune(*rl(model, asked or puzzles, out, *setting(**settings)))
    assert ended.code == 0, ended.err
    (engine,) = opened
    return list(read_trajectories(out / "trajectories/step-000000.parquet")), engine


def parts(trajectories: Sequence[Trajectory]) -> list[tuple[float | None, float | None]]:
    """Accuracy and the score for use, of each."""
    rewards = [t.reward for t in trajectories]
    assert None not in rewards
    return [(reward.accuracy, reward.own.get(NAME)) for reward in rewards if reward is not None]


def totals(trajectories: Sequence[Trajectory]) -> dict[tuple[str, int], float]:
    return {
        (t.sample_id, t.rollout): t.reward.total
        for t in trajectories
        if t.reward is not None and t.reward.total is not None
    }


@pytest.mark.train
def test_reading_the_crop_is_rewarded_and_knowing_is_not(tiny: Path, lens: Path, tmp_path: Path) -> None:
    asks = {"reward__counterfactual": f"{{weight: {WEIGHT}, share: 1.0}}"}
    uses, engine = drawn(tiny, lens, tmp_path / "uses", "uses", **asks)
    assert len(uses) == 8
    assert set(parts(uses)) == {(1.0, 1.0)}
    knew, _ = drawn(tiny, lens, tmp_path / "knew", "ignores", **asks)
    assert set(parts(knew)) == {(1.0, 0.0)}
    # Both look at the same place and are right: without the part their rewards are equal.
    first, second = totals(uses), totals(knew)
    assert first.keys() == second.keys()
    assert [first[key] - second[key] for key in first] == pytest.approx([WEIGHT] * len(first))
    assert numbers(tmp_path / "uses")[0, "all"]["reward_counterfactual"] == 1.0
    # Two turns per rollout, and one regenerated: as long as a turn may be, after the same tokens.
    assert len(engine.requests) == 3 * len(uses)
    for request in engine.requests[2 * len(uses) :]:
        (record,) = [t for t in uses if (t.group, t.rollout) == request.key[2:4]]
        assert record.sample_id == request.question
        assert record.token_ids[: len(request.token_ids)] == tuple(request.token_ids)
        assert request.sampling.max_new_tokens <= 90
        assert request.key in [one.key for one in engine.requests[: 2 * len(uses)]]


@pytest.mark.train
def test_the_target_shown_instead_does_not_depend_on_what_else_this_process_draws(
    tiny: Path, lens: Path, tmp_path: Path
) -> None:
    def shown(name: str, prompts: int) -> dict[tuple[int, ...], list[str]]:
        asks = {"reward__counterfactual": f"{{weight: {WEIGHT}, share: 1.0}}", "prompts_per_step": prompts}
        found, engine = drawn(tiny, lens, tmp_path / name, "uses", **asks)
        again = engine.requests[2 * len(found) :]
        return {one.key: [pixels.name for pixels in one.pixels] for one in again}

    few, many = shown("few", 2), shown("many", 4)
    assert len(few) == 4
    assert few == {key: many[key] for key in few}
    # Each group meets one target, and the groups different ones.
    assert len({tuple(few[key]) for key in few}) == 2


@pytest.mark.train
def test_judges_are_asked_side_by_side_and_the_wait_for_them_counts_as_one_for_scores(
    tiny: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shows, now, most = BoxJudge.shows_target, 0, 0

    async def slowly(self: BoxJudge, *given: Any) -> bool:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.5)
        now -= 1
        return await shows(self, *given)

    monkeypatch.setattr(BoxJudge, "shows_target", slowly)
    asks = {"reward__counterfactual": f"{{weight: {WEIGHT}, share: 1.0}}"}
    uses, _ = drawn(tiny, lens, tmp_path / "uses", "uses", **asks)
    assert most == len(uses)
    assert set(parts(uses)) == {(1.0, 1.0)}
    rows = read_metrics(tmp_path / "uses/metrics.jsonl")
    assert next(row.values["seconds_reward"] for row in rows if row.source == "all") >= 0.5


@pytest.mark.train
def test_wrong_answers_and_looks_elsewhere_are_not_rerun(tiny: Path, lens: Path, tmp_path: Path) -> None:
    asks = {"reward__counterfactual": f"{{weight: {WEIGHT}, share: 1.0}}"}
    beside, engine = drawn(tiny, lens, tmp_path / "beside", "elsewhere", **asks)
    assert len(engine.requests) == 2 * len(beside)
    assert {paid for _, paid in parts(beside)} == {0.0}
    assert {right for right, _ in parts(beside)} >= {0.0}


@pytest.mark.train
def test_with_a_share_whole_groups_are_rerun_or_not(tiny: Path, lens: Path, tmp_path: Path) -> None:
    some, engine = drawn(
        tiny, lens, tmp_path / "some", "uses",
        reward__counterfactual=f"{{weight: {WEIGHT}, share: 0.5}}", prompts_per_step=8,
    )  # fmt: skip
    by_group: dict[int, set[float | None]] = {}
    for trajectory, (_, paid) in zip(some, parts(some), strict=True):
        by_group.setdefault(trajectory.group, set()).add(paid)
    assert len(by_group) == 8
    assert {frozenset(paid) for paid in by_group.values()} == {frozenset({1.0}), frozenset({None})}
    asked = sum(paid == {1.0} for paid in by_group.values())
    assert len(engine.requests) == 2 * len(some) + 2 * asked


@pytest.mark.train
def test_a_regenerated_box_is_judged_at_the_threshold_of_its_step(
    tiny: Path, lens: Path, tmp_path: Path
) -> None:
    def boxed(one: Sample) -> Sample:
        truth = str([round(side) for side in one.evidence[0].bbox])
        return replace(one, ground_truth=truth, verifier=grounding.NAME, verifier_parm={"space": "pixels"})

    data = tmp_path / "boxes"
    write_samples(data / "train.parquet", map(boxed, read_samples(lens / "train.parquet")))
    asks = {"reward__counterfactual": f"{{weight: {WEIGHT}, share: 1.0}}"}
    asks["reward__iou"] = "{schedule: fixed, thresholds: [0.5], until: [], target: null}"
    knew, _ = drawn(tiny, data, tmp_path / "knew", "ignores", **asks)
    assert set(parts(knew)) == {(1.0, 0.0)}


@pytest.mark.train
def test_a_turn_is_regenerated_with_its_own_key_after_an_earlier_exchange_in_the_prompt(
    tiny: Path, lens: Path, tmp_path: Path
) -> None:
    greeting = Message("user", "Hello."), Message("assistant", "Hello.")
    talked = (replace(one, prompt=(*greeting, *one.prompt)) for one in read_samples(lens / "train.parquet"))
    write_samples(tmp_path / "talked.parquet", talked)
    asks = {"reward__counterfactual": f"{{weight: {WEIGHT}, share: 1.0}}"}
    uses, engine = drawn(tiny, lens, tmp_path / "uses", "uses", asked=tmp_path / "talked.parquet", **asks)
    keys = [one.key for one in engine.requests]
    assert len(keys) == 3 * len(uses)
    assert set(keys[2 * len(uses) :]) <= set(keys[: 2 * len(uses)])


@pytest.mark.train
def test_answers_to_questions_that_need_no_look_are_not_rerun(tiny: Path, lens: Path, tmp_path: Path) -> None:
    some = tmp_path / "some.parquet"
    puzzles = list(read_samples(lens / "train.parquet"))
    plain = (replace(one, evidence=(), ability="chart") for one in puzzles[1::2])
    write_samples(some, [*puzzles[::2], *plain])
    asks = {"reward__counterfactual": f"{{weight: {WEIGHT}, share: 1.0}}", "prompts_per_step": 8}
    uses, engine = drawn(tiny, lens, tmp_path / "uses", "uses", asked=some, **asks)
    needed = [one.needs_look for one in uses]
    assert set(needed) == {True, False}
    assert parts(uses) == [(1.0, float(one.needs_look is True)) for one in uses]
    assert len(engine.requests) == 2 * len(uses) + sum(one.needs_look is True for one in uses)


def test_a_part_scored_later_counts_like_the_others() -> None:
    before = Reward(total=1.3, accuracy=1.0, format=1.0, tool=None, why="accuracy: right", own={"mine": 0.5})
    paid = with_part(before, NAME, Verdict(1.0, "another answer"), WEIGHT)
    assert paid.total == pytest.approx(1.8)
    assert paid.own == {"mine": 0.5, NAME: 1.0}
    assert paid.why == "accuracy: right | counterfactual: another answer"
    lost = with_part(before, NAME, Unscored("no reply"), WEIGHT)
    assert (lost.total, lost.own[NAME], lost.why) == (None, None, "counterfactual: no reply")


def test_only_training_reruns_and_the_recipe_sets_the_weight() -> None:
    section = "reward.counterfactual={weight: 0.5, share: 0.25}"
    with pytest.raises(RecipeError, match="vtune faithfulness --counterfactual"):
        load_recipe(find("lens", "eval_suites"), EvalSuite, [section])
    recipe = load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe, [section, "reward.weighting=sample"])
    assert recipe.reward.counterfactual is not None
    assert recipe.reward.counterfactual.share == 0.25
    plain = load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe)
    assert "counterfactual" not in plain.reward.model_dump()


def test_a_target_is_lent_by_a_question_with_another_answer_whatever_its_letter(tmp_path: Path) -> None:
    def asked(name: str, truth: str, *choices: str) -> Sample:
        box = (Evidence("x", 0, (1, 1, 9, 9)),)
        return sample(truth=truth, id=name, choices=choices, pictures=(png((16, 16)),), evidence=box)

    own = asked("own", "A", "red", "blue")
    write_samples(tmp_path / "same.parquet", [own, asked("same", "B", "green", "Red")])
    assert lent(sample_store([tmp_path / "same.parquet"]), 0, own, 0) is None
    write_samples(tmp_path / "other.parquet", [own, asked("other", "A", "green", "red")])
    found = lent(sample_store([tmp_path / "other.parquet"]), 0, own, 0)
    assert found is not None
    assert found[0].id == "other"
