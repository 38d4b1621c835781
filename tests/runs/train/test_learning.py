"""What a step learns from rewards, and reports about them."""

from dataclasses import replace

import pytest

from vtune.advantage.recipe import Advantage, Overlong
from vtune.runs.train.learning import overlong_rows, rewards
from vtune.schema.reward import Reward
from vtune.schema.source_names import ALL
from vtune.schema.trajectory import Trajectory

RIGHT = Reward(total=1.0, accuracy=1.0, format=1.0, tool=None, why="")
UNSCORED = replace(RIGHT, total=None, accuracy=None)


def reply(source: str, tokens: int, reward: Reward = RIGHT) -> Trajectory:
    return Trajectory(
        sample_id=f"{source}/1", source=source, loss_mask=(False, *[True] * tokens), reward=reward
    )


REPLIES = [
    reply("quiz", 80),
    reply("quiz", 90),
    reply("quiz", 500, UNSCORED),
    reply("maths", 200),
    reply("none", 90, UNSCORED),
]


def test_the_metrics_report_the_length_penalty(advantage: Advantage) -> None:
    long = advantage.model_copy(update={"overlong": Overlong(limit=100, buffer=20, factor=0.5)})
    assert rewards(REPLIES, long) == [1.0, 0.75, None, 0.5, None]
    assert overlong_rows(REPLIES, long) == {
        "quiz": {"overlong_penalty": pytest.approx(-0.125)},
        "maths": {"overlong_penalty": pytest.approx(-0.5)},
        ALL: {"overlong_penalty": pytest.approx(-0.25)},
    }


def test_without_a_length_penalty_the_metrics_omit_it(advantage: Advantage) -> None:
    assert rewards(REPLIES, advantage) == [1.0, 1.0, None, 1.0, None]
    assert overlong_rows(REPLIES, advantage) == {}


@pytest.fixture
def advantage() -> Advantage:
    return Advantage(baseline="group_std")
