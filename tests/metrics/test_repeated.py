"""Numbers over several rollouts of a question."""

from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.metrics.benchmarks import Mark
from vtune.metrics.items import Item, items_of
from vtune.metrics.repeated import pass_at, repeated


def item(name: str, *scores: float | None) -> Item:
    return Item(id=name, source="s", category=None, cluster=name, scores=scores)


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=9), st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_right_rollout(
    scores: list[float], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(scores)))
    drawn = [any(score == 1.0 for score in some) for some in combinations(scores, k)]
    assert pass_at(k, scores) == pytest.approx(fmean(drawn))


def test_a_single_rollout_has_no_numbers_over_rollouts() -> None:
    assert repeated([item("a", 1.0), item("b", 0.0)]) is None
    assert repeated([]) is None


def test_six_rollouts_have_the_mean_and_pass_at_1_2_4_and_6() -> None:
    found = repeated([item("a", *[1.0] * 6), item("b", 1.0, *[0.0] * 5), item("c", *[0.0] * 6)])
    assert found is not None
    assert list(found) == ["avg@6", "pass@1", "pass@2", "pass@4", "pass@6", "unscored"]
    values = {name: value["value"] for name, value in found.items() if name != "unscored"}
    assert values == pytest.approx(
        {
            "avg@6": (1 + 1 / 6) / 3,
            "pass@1": (1 + 1 / 6) / 3,
            "pass@2": (1 + 2 / 6) / 3,
            "pass@4": (1 + 4 / 6) / 3,
            "pass@6": 2 / 3,
        }
    )
    # Three questions, not eighteen.
    assert found["avg@6"]["high"] - found["avg@6"]["low"] > 0.6


def test_what_nobody_scored_is_left_out_and_counted() -> None:
    found = repeated([item("a", 1.0, None), item("b", None, None), item("c", 0.0, 0.0)])
    assert found is not None
    assert (found["avg@2"]["value"], found["pass@1"]["value"]) == (0.5, 0.5)
    assert (found["pass@2"]["value"], found["unscored"]) == (0.0, 1)
    nothing = repeated([item("b", None, None)])
    assert nothing == {"avg@2": None, "pass@1": None, "pass@2": None, "unscored": 1}


def test_rollouts_of_a_question_count_as_one_item() -> None:
    extra = {"category": "single"}
    marks = [
        Mark("q/1", extra, 1.0, unreadable=False, source="s", cluster="picture"),
        Mark("q/2", {}, None, unreadable=False, source="s"),
        Mark("q/1", extra, 0.0, unreadable=False, source="s", cluster="picture"),
    ]
    assert items_of(marks) == [
        Item(id="q/1", source="s", category="single", cluster="picture", scores=(1.0, 0.0)),
        Item(id="q/2", source="s", category=None, cluster="q/2", scores=(None,)),
    ]


def test_numbers_over_fewer_questions_state_how_many() -> None:
    found = repeated([item("a", 1.0, 0.0, 1.0), item("b", None, 0.0, 1.0), item("c", None, None, 1.0)])
    assert found is not None
    numbers = {name: value.get("n") for name, value in found.items() if name != "unscored"}
    assert numbers == {"avg@3": None, "pass@1": None, "pass@2": 2, "pass@3": 1}
