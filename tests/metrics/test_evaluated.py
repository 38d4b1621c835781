"""Rows of evaluations during training: a name means the same in all of them."""

import pytest

from vtune.metrics.evaluated import evaluated
from vtune.schema.reward import Reward
from vtune.schema.trajectory import Trajectory


def replied(number: int, **parts: float) -> Trajectory:
    reward = Reward(total=0.0, accuracy=0.0, format=0.0, tool=0.0, why="", parts=parts)
    return Trajectory(sample_id=f"photo/{number}", source="coco", reward=reward)


def test_set_scores_do_not_replace_means_over_replies() -> None:
    replies = [replied(0, ap=0.4, ap50=0.5, boxes=2.0), replied(1, ap=0.8, ap50=1.0, boxes=4.0)]
    of_the_set = {"score": 0.3, "ap50": 0.6, "ap_small": 0.1, "boxes": 6, "foreign": 1, "n": 2, "unscored": 0}
    rows = evaluated("val", replies, of_the_set, [], evidence_score=1.0, max_unaudited=0.05, seed=0)
    source, overall = rows["eval/val/coco"], rows["eval/val/all"]
    assert {name: overall[name] for name in source} == source
    assert {name: value for name, value in overall.items() if name not in source} == {
        "score": 0.3,
        "score_ap50": 0.6,
        "ap_small": 0.1,
        "foreign": 1.0,
    }
    assert (source["ap50"], source["boxes"]) == pytest.approx((0.75, 3.0))


def test_passing_is_a_share_as_in_the_rows_by_source() -> None:
    replies = [replied(0, not_attempted=1.0), replied(1, not_attempted=0.0)]
    scores = {"score": 0.0, "f1": 0.0, "not_attempted": 1}
    rows = evaluated("val", replies, scores, [], evidence_score=1.0, max_unaudited=0.05, seed=0)
    assert rows["eval/val/all"]["not_attempted"] == 0.5
