import asyncio
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.judge.server import FakeJudge, serve
from tests.reward.build import TARGET, looks, recipe, sample
from tests.reward.test_score import NOWHERE, PARTS, TOOLS
from vtune.metrics.by_source import by_source
from vtune.reward.checking import check_samples
from vtune.reward.combining import Weights, combine
from vtune.reward.consistency import LAST
from vtune.reward.part import Unscored
from vtune.reward.score import Scorer
from vtune.schema.message import Message
from vtune.schema.reward import Reward
from vtune.schema.trajectory import Trajectory
from vtune.schema.trajectory_row import trajectory_from_row, trajectory_to_row
from vtune.schema.verdict import Verdict

TEXT = {"weight": 0.5, "by": "text"}
MODEL = {"weight": 0.5, "by": "model"}


def rewards(*trajectories: Trajectory, **changes: Any) -> list[Reward]:
    async def story() -> list[Trajectory]:
        async with Scorer(recipe(tool=0.0, **changes)) as scorer:
            return await scorer.score([sample(TARGET)], trajectories)

    return [t.reward for t in asyncio.run(story()) if t.reward is not None]


def by_text(reply: str, *boxes: Any) -> Reward:
    (reward,) = rewards(looks(*boxes, reply=reply), consistency=TEXT)
    return reward


def asked_of(judge: FakeJudge) -> list[str]:
    return [request["messages"][1]["content"][0]["text"] for request in judge.requests]


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        pytest.param("<think>So it is B.</think><answer>B</answer>", 1.0, id="named"),
        pytest.param("<thinking>So it is B.</thinking><answer>B</answer>", 1.0, id="thinking"),
        pytest.param("<thinking></thinking><answer>B</answer>", 0.0, id="no thinking"),
        pytest.param("<think>so it is b.</think><answer>B</answer>", 1.0, id="in other case"),
        pytest.param("<thinking>So it is B.</thinking><answer>B</answer>", 1.0, id="<thinking>"),
        pytest.param("<thinking>So it is A.</thinking><answer>B</answer>", 0.0, id="<thinking>, another one"),
        pytest.param("<think>Blue, it seems.</think><answer>B</answer>", 0.0, id="only within a word"),
        pytest.param("<think>So it is A.</think><answer>B</answer>", 0.0, id="another one"),
        pytest.param("<think>It is C.</think><answer>C</answer>", 0.0, id="agrees, and is wrong"),
        pytest.param("<think></think><answer>B</answer>", 0.0, id="no thoughts"),
        pytest.param("<answer>B</answer>", 0.0, id="no tags of thoughts"),
        pytest.param(f"<think>B{' and so on' * 50}</think><answer>B</answer>", 0.0, id="long before the end"),
        pytest.param("<think>So it is B.</think><answer>\\boxed{B}</answer>", 1.0, id="boxed"),
    ],
)
def test_a_right_answer_named_at_the_end_of_the_thoughts_earns_it(reply: str, score: float) -> None:
    assert by_text(reply).consistency == score


def test_thoughts_of_all_turns_are_read_with_both_tag_names() -> None:
    assert by_text("<think>So it is B.</think><answer>B</answer>", TARGET).consistency == 1.0
    assert by_text(" so it is B.</think><answer>B</answer>", TARGET).consistency == 1.0


def test_a_judge_sees_only_the_end_of_the_thoughts_and_the_answer() -> None:
    long = "x" * 2000 + "so it is B."
    with serve("TRUE") as judge:
        (reward,) = rewards(
            looks(reply=f"<think>{long}</think><answer>B</answer>"),
            consistency=MODEL,
            judge=judge.endpoint(),
        )
        (text,) = asked_of(judge)
    assert (reward.consistency, reward.total) == (1.0, pytest.approx(1.0 + 0.3 + 0.5))
    assert text == f'End of the thoughts: "{long[-LAST:]}"\nAnswer: "B"'
    assert len(judge.requests[0]["messages"][1]["content"]) == 1  # no picture


def test_the_judges_verdict_is_the_score_and_the_reason() -> None:
    with serve("FALSE") as judge:
        (reward,) = rewards(looks(), consistency=MODEL, judge=judge.endpoint())
    assert (reward.consistency, reward.total) == (0.0, pytest.approx(1.3))
    assert "consistency: another conclusion" in reward.why


def test_wrong_answers_earn_nothing_without_asking_the_judge() -> None:
    with serve("TRUE") as judge:
        wrong = looks(reply="<think>It is C.</think><answer>C</answer>")
        (reward,) = rewards(wrong, consistency=MODEL, judge=judge.endpoint())
        assert judge.requests == []
    assert (reward.consistency, reward.total) == (0.0, pytest.approx(0.3))


def test_without_a_verdict_it_is_unscored_not_zero() -> None:
    (down,) = rewards(looks(), consistency=MODEL, judge=NOWHERE)
    assert (down.total, down.consistency, down.accuracy, down.format) == (None, None, 1.0, 1.0)
    assert down.why.startswith("consistency: the judge gave no reply")
    with serve("perhaps") as judge:
        (vague,) = rewards(looks(), consistency=MODEL, judge=judge.endpoint())
    assert (vague.total, vague.consistency) == (None, None)
    assert "instead of TRUE or FALSE" in vague.why


def test_without_a_weight_there_is_no_consistency_part() -> None:
    (reward,) = rewards(looks())
    assert (reward.consistency, reward.total) == (None, pytest.approx(1.3))
    assert "consistency" not in reward.why
    rows = by_source([scored(reward)], evidence_score=1.0)
    assert "reward_consistency" not in rows["all"]


def scored(reward: Reward) -> Trajectory:
    return Trajectory(sample_id="quiz/1", source="quiz", messages=(Message("assistant", ""),), reward=reward)


def test_metrics_average_it_over_scored_trajectories() -> None:
    (base,) = rewards(looks())
    rows = by_source(
        [scored(dataclasses.replace(base, consistency=value)) for value in (1.0, 0.0, 0.0, None)],
        evidence_score=1.0,
    )
    assert rows["quiz"]["reward_consistency"] == pytest.approx(1 / 3)


def test_older_trajectories_have_no_consistency_score() -> None:
    (base,) = rewards(looks())
    row = trajectory_to_row(scored(base))
    del row["reward"]["consistency"]
    assert trajectory_from_row(row).reward.consistency is None  # type: ignore[union-attr]


@given(
    accuracy=PARTS,
    form=PARTS,
    tool=TOOLS,
    agrees=PARTS,
    weight=st.floats(0.01, 1),
)
def test_it_adds_its_weighted_score_to_the_total_or_leaves_the_total_unscored(
    accuracy: Verdict | Unscored,
    form: Verdict | Unscored,
    tool: Verdict | Unscored,
    agrees: Verdict | Unscored,
    weight: float,
) -> None:
    asked = recipe(consistency={"weight": weight, "by": "text"})
    parts = {"accuracy": accuracy, "format": form, "tool": tool}
    before = combine(parts, Weights(1.0, 0.3, 0.5), recipe())
    reward = combine(parts | {"consistency": agrees}, Weights(1.0, 0.3, 0.5, weight), asked)
    if before.total is None or isinstance(agrees, Unscored):
        assert reward.total is None
    else:
        assert reward.total == pytest.approx(before.total + weight * agrees.score)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"consistency": MODEL}, "by a model needs one"),
        ({"consistency": {"weight": 0.0, "by": "text"}}, "greater than 0"),
    ],
)
def test_a_recipe_that_could_not_score_it_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        recipe(**changes)


def test_a_judge_for_thoughts_is_checked_before_the_start() -> None:
    samples = [sample(TARGET), sample(TARGET)]
    assert check_samples(samples, recipe(consistency=MODEL, judge=NOWHERE)).judged_answers == 2
    assert check_samples(samples, recipe(consistency=TEXT)).judged_answers == 0
