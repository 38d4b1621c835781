import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtune.schema.box import iou
from vtune.verifiers.boxes import LabelledBox
from vtune.verifiers.matching import best_assignment, iou_first, label_first

small = st.integers(0, 4).map(float)
tables = st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(
    lambda size: st.lists(
        st.lists(small, min_size=size[1], max_size=size[1]), min_size=size[0], max_size=size[0]
    )
)


def by_trying(worth: list[list[float]]) -> float:
    """The largest sum, found by trying all assignments."""
    if len(worth) > len(worth[0]):
        worth = [list(column) for column in zip(*worth, strict=True)]
    orders = itertools.permutations(range(len(worth[0])), len(worth))
    return max(sum(row[j] for row, j in zip(worth, order, strict=True)) for order in orders)


@given(tables)
def test_the_assignment_is_optimal(worth: list[list[float]]) -> None:
    pairs = best_assignment(worth)
    assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == min(len(worth), len(worth[0]))
    assert sum(worth[i][j] for i, j in pairs) == pytest.approx(by_trying(worth))


def test_empty_lists_give_an_empty_assignment() -> None:
    assert best_assignment([]) == best_assignment([[], []]) == []


LEFT, RIGHT = (0.0, 0.0, 10.0, 10.0), (8.0, 0.0, 18.0, 10.0)
BETWEEN = (5.0, 0.0, 15.0, 10.0)


def test_a_match_is_left_to_the_box_that_has_no_other() -> None:
    """Greedily, the left box would take the middle one, and the right one would get none."""
    truth = [LabelledBox("cup", LEFT), LabelledBox("cup", RIGHT)]
    predicted = [LabelledBox("cup", BETWEEN), LabelledBox("cup", (0.0, 0.0, 3.0, 10.0))]
    assert iou(BETWEEN, LEFT) > iou(predicted[1].box, LEFT) > 0
    matched = label_first(predicted, truth, min_iou=0.0)
    assert sum(matched) == pytest.approx(iou(BETWEEN, RIGHT) + iou(predicted[1].box, LEFT))


def test_label_first_ignores_a_better_box_of_another_label_and_iou_first_does_not() -> None:
    truth = [LabelledBox("cup", LEFT)]
    predicted = [LabelledBox("pen", LEFT), LabelledBox("cup", (0.0, 0.0, 10.0, 9.0))]
    assert label_first(predicted, truth, min_iou=0.5) == pytest.approx([0.9])
    assert iou_first(predicted, truth, min_iou=0.5) == []
    assert iou_first(predicted[1:], truth, min_iou=0.5) == pytest.approx([0.9])


def test_touching_boxes_match_at_no_threshold() -> None:
    truth = [LabelledBox("cup", LEFT)]
    beside = [LabelledBox("cup", (10.0, 0.0, 20.0, 10.0))]
    assert label_first(beside, truth, min_iou=0.0) == iou_first(beside, truth, min_iou=0.0) == []


sides = st.integers(0, 12).map(float)
boxes = st.builds(
    lambda label, x, y, w, h: LabelledBox(label, (x, y, x + w + 1, y + h + 1)),
    st.sampled_from(["cup", "pen"]),
    sides,
    sides,
    sides,
    sides,
)
lists = st.lists(boxes, min_size=1, max_size=5)


@settings(max_examples=60)
@given(predicted=lists, truth=lists, seed=st.integers(0, 99), min_iou=st.sampled_from([0.0, 0.3, 0.5]))
def test_the_order_of_lists_does_not_matter(
    predicted: list[LabelledBox], truth: list[LabelledBox], seed: int, min_iou: float
) -> None:
    shuffle = random.Random(seed).sample
    mixed = shuffle(predicted, len(predicted)), shuffle(truth, len(truth))
    assert label_first(*mixed, min_iou=min_iou) == label_first(predicted, truth, min_iou=min_iou)
    assert iou_first(*mixed, min_iou=min_iou) == iou_first(predicted, truth, min_iou=min_iou)


@given(worth=tables, i=st.integers(0, 3), j=st.integers(0, 3), more=st.integers(1, 4))
def test_improving_a_pair_never_lowers_the_assignment(
    worth: list[list[float]], i: int, j: int, more: int
) -> None:
    i, j = i % len(worth), j % len(worth[0])
    before = sum(worth[a][b] for a, b in best_assignment(worth))
    worth[i][j] += more
    assert sum(worth[a][b] for a, b in best_assignment(worth)) >= before
