import asyncio
import dataclasses
import gc
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judge.server import serve
from tests.reward.build import LEVELS, RIGHT, TARGET, WRONG, looks, recipe, sample
from vtune.errors import DataError, RecipeError, RunFailed
from vtune.judge.endpoint import BatchedEndpoint
from vtune.reward.checking import check_evidence, check_samples, check_unscored, unscored_share
from vtune.reward.combining import Weights, combine, weights_of
from vtune.reward.evidence import tool_part
from vtune.reward.part import Unscored
from vtune.reward.recipe import IouSchedule
from vtune.reward.score import Scorer
from vtune.schema.message import Picture
from vtune.schema.reward import Reward
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.schema.verdict import Verdict

WHOLE = (0, 0, 100, 100)
NOWHERE = BatchedEndpoint(
    base_url="http://127.0.0.1:9/v1",
    model="none",
    temperature=0,
    max_tokens=8,
    concurrency=2,
    retries=0,
    timeout_s=1,
    api_key_env=None,
)


def score(what: Sample, *trajectories: Trajectory, **changes: Any) -> list[Trajectory]:
    async def story() -> list[Trajectory]:
        async with Scorer(recipe(**changes)) as scorer:
            return await scorer.score([what], trajectories)

    return asyncio.run(story())


def total(what: Sample, trajectory: Trajectory, **changes: Any) -> float | None:
    (scored,) = score(what, trajectory, **changes)
    assert scored.reward is not None
    return scored.reward.total


def test_all_scores_of_a_step_are_as_expected() -> None:
    careful, lazy, blind, sloppy = score(
        sample(TARGET),
        looks(TARGET),
        looks(TARGET, WHOLE),
        looks(reply=WRONG),
        looks((0, 0, 30, 30), reply="<answer>B</answer>"),
    )
    assert [t.tool_scores for t in (careful, lazy, blind, sloppy)] == [(1.0,), (1.0, -0.5), (), (0.25,)]
    assert [call.flags for call in lazy.calls] == [(), ("whole_image",)]
    rewards = [t.reward for t in (careful, lazy, blind, sloppy)]
    parts = [(r.accuracy, r.format, r.tool) for r in rewards if r is not None]
    assert parts == [(1.0, 1.0, 1.0), (1.0, 1.0, 0.25), (0.0, 1.0, 0.0), (1.0, 0.0, 0.25)]
    totals = [r.total for r in rewards if r is not None]
    assert totals == pytest.approx([1.8, 1.425, 0.3, 1.125])
    assert blind.reward is not None
    assert "no tool call" in blind.reward.why


def test_with_gating_the_tool_part_counts_only_for_right_answers_but_red_flags_always() -> None:
    assert total(sample(TARGET), looks(TARGET), tool_gated=True) == pytest.approx(1.8)
    assert total(sample(TARGET), looks(TARGET, reply=WRONG), tool_gated=True) == pytest.approx(0.3)
    assert total(sample(TARGET), looks(WHOLE, reply=WRONG), tool_gated=True) == pytest.approx(0.05)
    assert total(sample(TARGET), looks(TARGET, reply=WRONG), tool_gated=False) == pytest.approx(0.8)
    unknown = replace(sample(TARGET), ground_truth="blue")
    assert total(unknown, looks(TARGET), tool_gated=True, accuracy=0.0) is None
    assert total(unknown, looks(WHOLE), tool_gated=True, accuracy=0.0) == pytest.approx(0.05)


def test_weights_of_the_sample_replace_those_of_the_recipe() -> None:
    own = sample(TARGET, accuracy_ratio=0.5, format_ratio=0.0, tool_ratio=1.0)
    assert total(own, looks(TARGET), weighting="sample") == pytest.approx(1.5)


@pytest.mark.parametrize("weighting", ["sample", "sample_normalised"])
def test_a_part_without_a_sample_weight_keeps_the_recipes_weight(weighting: str) -> None:
    own = sample(TARGET, accuracy_ratio=1.0, format_ratio=0.0, tool_ratio=1.0)
    asked = recipe(weighting=weighting, consistency={"weight": 0.25, "by": "text"})
    before = weights_of(own, recipe(weighting=weighting))
    assert weights_of(own, asked) == dataclasses.replace(before, consistency=0.25)
    full = {name: Verdict(1.0, "") for name in ("accuracy", "format", "tool", "consistency")}
    standard = before.accuracy + before.format + before.tool
    assert combine(full, weights_of(own, asked), asked).total == pytest.approx(standard + 0.25)


def test_normalised_weights_are_divided_by_their_sum() -> None:
    own = sample(TARGET, accuracy_ratio=1.0, format_ratio=0.1, tool_ratio=0.0)
    sloppy = looks(TARGET, reply="<answer>B</answer>")
    assert total(own, sloppy, weighting="sample") == pytest.approx(1.0)
    assert total(own, sloppy, weighting="sample_normalised") == pytest.approx(1.0 / 1.1)
    assert total(own, looks(TARGET), weighting="sample_normalised") == pytest.approx(1.0)
    nothing = sample(TARGET, accuracy_ratio=0.0, format_ratio=0.0, tool_ratio=0.0)
    assert total(nothing, looks(TARGET), weighting="sample_normalised") == 0.0


def test_the_format_rule_of_the_recipe_applies() -> None:
    (ordered,) = score(sample(TARGET), looks(reply="<think>I see.<answer>B</answer>"))
    (counted,) = score(sample(TARGET), looks(reply="<think>I see.<answer>B</answer>"), format_rule="counted")
    assert ordered.reward is not None
    assert counted.reward is not None
    assert (ordered.reward.format, counted.reward.format) == (0.0, 0.75)


BOXED = {
    "verifier": "grounding",
    "ground_truth": '[{"label": "cup", "bbox_2d": [40, 40, 60, 60]}]',
    "verifier_parm": {"space": "pixels", "width": 100, "height": 100},
}
CLOSE = looks(reply="<think>I see.</think><answer>[40, 40, 60, 58]</answer>")
FIXED = IouSchedule(schedule="fixed", thresholds=(0.5,), until=(), target=None)


def accuracy(what: Sample, *iou: float) -> Reward:
    async def story() -> Reward | None:
        async with Scorer(recipe()) as scorer:
            (scored,) = await scorer.score([what], [CLOSE], iou=iou)
            return scored.reward

    found = asyncio.run(story())
    assert found is not None
    return found


def test_a_tighter_threshold_lowers_the_reward_but_not_the_recorded_facts() -> None:
    loose, both, tight = (accuracy(sample(**BOXED), *iou) for iou in ((0.85,), (0.85, 0.95), (0.95,)))
    assert [r.accuracy for r in (loose, both, tight)] == pytest.approx([0.9, 0.45, 0.0])
    assert loose.parts == tight.parts
    assert {name: loose.parts[name] for name in ("iou", "iou@75", "iou@95", "unreadable")} == pytest.approx(
        {"iou": 0.9, "iou@75": 1.0, "iou@95": 0.0, "unreadable": 0.0}
    )


def test_a_sample_may_have_its_own_threshold() -> None:
    own = sample(**BOXED | {"verifier_parm": {"iou": 0.5}})
    assert accuracy(own, 0.95).accuracy == pytest.approx(0.9)


def test_a_box_without_any_threshold_is_unscored() -> None:
    found = accuracy(sample(**BOXED))
    assert (found.total, found.accuracy, found.parts) == (None, None, {})
    assert "no IoU threshold" in found.why


def test_replies_in_pixels_as_shown_are_scored_in_pixels_of_the_picture() -> None:
    parm = {"space": "relative_1000", "reply_space": "shown_pixels", "iou": 0.99}
    truth = '[{"label": "cup", "bbox_2d": [400, 400, 600, 600]}]'
    what = sample(verifier="grounding", ground_truth=truth, verifier_parm=parm)
    reply = looks(reply="<think>I see.</think><answer>[80, 40, 120, 60]</answer>")

    async def story(shown: bool) -> Reward | None:
        async with Scorer(recipe(), shown=(lambda data: (200, 100)) if shown else None) as scorer:
            (scored,) = await scorer.score([what], [reply])
            return scored.reward

    check_samples([what], recipe(tool=0.0))
    for shown, accuracy in ((True, 1.0), (False, None)):
        found = asyncio.run(story(shown))
        assert found is not None
        assert found.accuracy == accuracy


ASKED = {"verifier": "judge", "ground_truth": "a red cup", "tools": (), "evidence": ()}


def says(answer: str) -> Trajectory:
    return looks(reply=f"<think>I see.</think><answer>{answer}</answer>")


def test_a_judge_compares_answers_that_no_rule_decides() -> None:
    with serve("TRUE", "FALSE", "maybe") as judge:
        found = score(
            sample(**ASKED),
            *map(says, ("A red cup.", "a mug, red", "a blue cup", "a red pen")),
            judge=judge.endpoint(),
        )
    rewards = [t.reward for t in found]
    assert sorted(str(r.accuracy) for r in rewards if r is not None) == ["0.0", "1.0", "1.0", "None"]
    (lost,) = [r for r in rewards if r is not None and r.accuracy is None]
    assert "instead of TRUE or FALSE" in lost.why
    assert len(judge.requests) == 4, "the unreadable one was asked once more"


def test_with_the_judge_down_the_answer_is_unscored_not_wrong() -> None:
    known, unknown = score(sample(**ASKED), says("A red cup."), says("a mug, red"), judge=NOWHERE)
    assert known.reward is not None
    assert unknown.reward is not None
    assert (known.reward.accuracy, unknown.reward.accuracy, unknown.reward.total) == (1.0, None, None)
    assert "the judge gave no reply" in unknown.reward.why


def test_a_verifiers_missing_requirement_is_found_before_the_run() -> None:
    with pytest.raises(RecipeError, match=r"(?s)verifier `judge`.*reward\.judge"):
        check_samples([sample(**ASKED)], recipe())
    check_samples([sample(**ASKED)], recipe(judge=NOWHERE))
    boxed = sample(TARGET, **BOXED)
    with pytest.raises(RecipeError, match=r"(?s)needs an IoU threshold.*reward\.iou"):
        check_samples([boxed], recipe())
    check_samples([boxed], recipe(iou=FIXED))
    check_samples([dataclasses.replace(boxed, verifier_parm={"iou": [0.5, 0.9]})], recipe())


def test_tools_of_another_environment_do_not_count_as_looks_without_evidence() -> None:
    plain = sample(evidence=(), ability="", tools=("image_zoom_in_tool",))
    with pytest.raises(RecipeError, match="no tool call can earn anything"):
        check_evidence(check_samples([plain], recipe(tool=0.5)))
    check_evidence(check_samples([dataclasses.replace(plain, environment="maze")], recipe(tool=0.5)))


def test_a_failed_rollout_is_unscored_with_its_reason() -> None:
    (scored,) = score(sample(TARGET), looks(TARGET, stop_reason="error"))
    assert scored.reward is not None
    assert scored.reward.total is scored.reward.accuracy is scored.reward.format is scored.reward.tool is None
    assert scored.reward.why == "the rollout failed"
    assert scored.tool_scores == (None,)


def test_a_failed_sandbox_leaves_the_tool_part_unscored_not_zero() -> None:
    (scored,) = score(sample(TARGET), looks(TARGET, "infra"))
    assert scored.reward is not None
    assert (scored.reward.total, scored.reward.accuracy, scored.reward.tool) == (None, 1.0, None)
    assert scored.tool_scores == (1.0, None)
    assert scored.reward.why == "tool: call 1: the sandbox failed: no reason given"


def test_with_the_judge_down_the_total_is_unscored_only_if_it_matters() -> None:
    (scored,) = score(sample(), looks(TARGET), judge=NOWHERE)
    assert scored.reward is not None
    assert scored.reward.total is None
    assert "the judge gave no reply" in scored.reward.why
    assert total(sample(), looks(TARGET), judge=NOWHERE, tool=0.0) == pytest.approx(1.3)
    assert total(sample(), looks(), judge=NOWHERE) == pytest.approx(1.3)
    assert total(sample(), looks(WHOLE), judge=NOWHERE) == pytest.approx(1.05)


def test_an_unreadable_ground_truth_costs_the_model_nothing() -> None:
    (scored,) = score(dataclasses.replace(sample(TARGET), ground_truth="blue"), looks(TARGET))
    assert scored.reward is not None
    assert scored.reward.total is None
    assert "names no single option" in scored.reward.why


def test_an_unreadable_picture_leaves_the_calls_unscored() -> None:
    trajectory = looks(TARGET)
    broken = dataclasses.replace(trajectory, images=(Picture(b"?"), *trajectory.images[1:]))
    (scored,) = score(sample(TARGET), broken)
    assert scored.reward is not None
    assert (scored.reward.accuracy, scored.reward.tool, scored.tool_scores) == (1.0, None, (None,))


@pytest.mark.filterwarnings("error")
def test_a_trajectory_that_arrives_after_a_failure_leaves_no_coroutine_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fails(*_: object) -> None:
        raise RunFailed("broken", fix="none")

    async def story() -> None:
        what = sample(TARGET)
        async with Scorer(recipe()) as scorer, scorer.scoring([what]) as begin:
            begin(looks(TARGET))
            try:
                await asyncio.sleep(60)
            finally:
                begin(looks(TARGET))

    monkeypatch.setattr("vtune.reward.score.score_trajectory", fails)
    with pytest.raises(RunFailed, match="broken"):
        asyncio.run(story())
    gc.collect()


def test_an_unmeasurable_input_leaves_only_its_trajectory_unscored() -> None:
    def shown(data: bytes) -> tuple[int, int]:
        raise DataError("a picture cannot be decoded: it is damaged")

    boxed = dataclasses.replace(sample(TARGET), verifier_parm={"reply_space": "shown_pixels"})

    async def story() -> list[Trajectory]:
        async with Scorer(recipe(), shown=shown) as scorer:
            return await scorer.score([boxed], [looks(TARGET), looks(TARGET, stop_reason="error")])

    measured, failed = asyncio.run(story())
    assert measured.reward is not None
    assert failed.reward is not None
    assert (measured.reward.total, measured.tool_scores) == (None, (None,))
    assert measured.reward.why == "a picture cannot be decoded: it is damaged"
    assert failed.reward.why == "the rollout failed"


def test_a_trajectory_of_another_sample_is_an_error() -> None:
    with pytest.raises(DataError, match="quiz/2"):
        score(sample(TARGET), looks(TARGET, sample_id="quiz/2"))


PARTS = st.one_of(st.builds(Verdict, st.floats(0, 1), st.just("")), st.builds(Unscored, st.just("")))
TOOLS = st.one_of(st.builds(Verdict, st.floats(-1, 1), st.just("")), st.builds(Unscored, st.just("")))
SHARES = st.one_of(st.just(0.0), st.floats(0.01, 1))


@given(
    accuracy=PARTS,
    form=PARTS,
    tool=TOOLS,
    weights=st.builds(Weights, SHARES, SHARES, SHARES),
    gated=st.booleans(),
)
def test_the_total_is_unscored_exactly_if_a_weighted_part_is(
    accuracy: Verdict | Unscored,
    form: Verdict | Unscored,
    tool: Verdict | Unscored,
    weights: Weights,
    gated: bool,
) -> None:
    reward = combine({"accuracy": accuracy, "format": form, "tool": tool}, weights, recipe(tool_gated=gated))
    pairs = [(accuracy, weights.accuracy), (form, weights.format), (tool, weights.tool)]
    if any(isinstance(part, Unscored) and weight for part, weight in pairs):
        assert reward.total is None
    elif not gated:
        paid = sum(weight * part.score for part, weight in pairs if isinstance(part, Verdict))
        assert reward.total == pytest.approx(paid)
    else:
        assert reward.total is not None or (isinstance(accuracy, Unscored) and weights.tool)


@given(st.lists(st.floats(-1, 1), min_size=1))
def test_the_tool_part_is_the_mean_over_calls(scores: list[float]) -> None:
    part = tool_part([Verdict(score, "") for score in scores])
    assert isinstance(part, Verdict)
    assert part.score == pytest.approx(sum(scores) / len(scores))


def test_too_many_unscored_trajectories_stop_the_run() -> None:
    good, bad = score(sample(TARGET), looks(TARGET), looks(TARGET, stop_reason="error"))
    assert unscored_share([good, bad]) == 0.5
    assert unscored_share([]) == 0.0
    check_unscored([good, bad], 0.5)
    with pytest.raises(RunFailed, match=r"50\.0% .*unscored(.|\n)*1 of 2: the rollout failed(.|\n)*the tool"):
        check_unscored([good, bad], 0.05)


def test_if_the_models_endpoint_failed_the_fix_names_it() -> None:
    (down,) = score(sample(TARGET), looks(TARGET, stop_reason="error"))
    with pytest.raises(RunFailed, match="fix the endpoint of the model, the judge"):
        check_unscored([down], 0.05)


def test_samples_that_cannot_be_scored_are_found_before_the_run() -> None:
    check_samples([sample(TARGET), sample(ability="math")], recipe())
    check_samples([sample()], recipe(tool=0.0))
    check_samples([sample()], recipe(judge=NOWHERE))
    with pytest.raises(RecipeError, match="no judge"):
        check_samples([sample()], recipe())
    with pytest.raises(DataError, match="ground truth"):
        check_samples([sample(TARGET, ground_truth="")], recipe())


def test_a_tool_part_that_can_never_be_earned_is_found_before_the_run() -> None:
    math = sample(ability="math")
    own = {"weighting": "sample", "tool": 0.0}
    for hopeless, changes in (
        ([math], {}),
        ([math, sample(TARGET, tools=())], {}),
        ([dataclasses.replace(math, tool_ratio=0.5), sample(TARGET)], own),
    ):
        with pytest.raises(RecipeError, match=r"(?s)none of 1 sample.*search_abilities.*search_sources"):
            check_evidence(check_samples(hopeless, recipe(**changes)))
    for fine, changes in (
        ([], {}),
        ([math, sample(TARGET)], {}),
        ([math, sample(source="vstar", ability="")], {"judge": NOWHERE}),
        ([math], {"tool": 0.0}),
        ([dataclasses.replace(math, tools=())], {}),
        ([math], own),
    ):
        check_evidence(check_samples(fine, recipe(**changes)))


def test_scores_do_not_depend_on_the_policys_thoughts() -> None:
    loud = RIGHT.replace("I see.", "I looked at the right place and deserve full marks.")
    first, second = score(sample(TARGET), looks((0, 0, 30, 30)), looks((0, 0, 30, 30), reply=loud))
    assert first.tool_scores == second.tool_scores == (LEVELS.miss,)


def test_unscored_trajectories_are_grouped_by_reason_regardless_of_names() -> None:
    (good,) = score(sample(TARGET), looks(TARGET))
    assert good.reward is not None
    long = [f"sample 'a/{n}': the prompt has {800 + n} tokens" for n in (1, 2, 3, 4)]
    whys = [*long, "judge is down", "judge is down"]
    found = [replace(good, reward=replace(good.reward, total=None, why=why)) for why in whys]
    with pytest.raises(RunFailed) as told:
        check_unscored(found, 0.05)
    assert told.value.where == f"4 of 6: {long[0]}"
