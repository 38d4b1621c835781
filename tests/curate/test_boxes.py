import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.curate.build import detection, item, png
from vtune.curate.boxes import (
    BoxesPerCategory,
    BoxShare,
    CategoryTail,
    PlainLabels,
    SinglesToMultis,
    complex_label,
    crowded,
    has_one_each,
    in_the_tail,
    large,
    surplus,
)
from vtune.errors import DataError

MOST = BoxesPerCategory(filter="boxes_per_category", rows="all", at_most=10)
HALF = BoxShare(filter="box_share", rows="all", at_most=0.5)
PLAIN = PlainLabels(filter="plain_labels", rows="all", at_most=3)
RATIO = SinglesToMultis(filter="singles_to_multis", rows="all", singles=1, multis=2)
SMALL = [0, 0, 10, 10]


def test_ten_boxes_of_a_category_are_enough() -> None:
    ten = [("dog", SMALL)] * 10
    assert crowded(MOST, detection(*ten, ("cat", SMALL))) is None
    assert crowded(MOST, detection(*ten, ("dog", SMALL))) == "11 boxes of 'dog', at most 10 are allowed"


@pytest.mark.parametrize(
    ("parm", "fits", "exceeds"),
    [
        ({"space": "relative_1000"}, [0, 0, 500, 1000], [0, 0, 501, 1000]),
        ({"det_verifier_normalized": True}, [0, 0, 500, 1000], [0, 0, 501, 1000]),
        ({"space": "pixels", "width": 200, "height": 100}, [0, 0, 100, 100], [0, 0, 101, 100]),
        ({"space": "pixels"}, [0, 0, 20, 20], [0, 0, 21, 20]),
    ],
    ids=["relative", "published form", "pixels", "size from the picture"],
)
def test_a_box_may_fill_half_of_its_picture_in_any_space(
    parm: dict[str, object], fits: list[float], exceeds: list[float]
) -> None:
    picture = (png((40, 20)),)
    assert large(HALF, detection(("a", fits), verifier_parm=parm, pictures=picture)) is None
    reason = large(HALF, detection(("a", exceeds), ("b", SMALL), verifier_parm=parm, pictures=picture))
    assert reason is not None
    assert "box of 'a'" in reason


def test_a_ground_truth_without_boxes_is_an_error() -> None:
    with pytest.raises(DataError, match="no boxes"):
        crowded(MOST, item(truth="12"))
    with pytest.raises(DataError, match="size of the picture is unknown"):
        large(HALF, detection(("a", SMALL), verifier_parm={"space": "pixels"}))


@pytest.mark.parametrize("label", ["dog", "traffic light", "baby's shoe", ""])
def test_a_plain_label_is_kept(label: str) -> None:
    assert complex_label(PLAIN, detection((label, SMALL))) is None


@pytest.mark.parametrize("label", ["the man in the red coat", "dog, sitting", "player 7", "cat (left)"])
def test_a_complex_label_is_dropped(label: str) -> None:
    assert complex_label(PLAIN, detection((label, SMALL)))


def test_single_means_one_box_per_category() -> None:
    assert has_one_each(RATIO, detection(("dog", SMALL), ("cat", SMALL)))
    assert not has_one_each(RATIO, detection(("dog", SMALL), ("dog", SMALL)))


KINDS = st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=40)


@given(KINDS, st.integers(1, 3), st.integers(1, 3))
def test_each_source_keeps_as_much_as_its_proportion_allows(
    entries: list[tuple[str, bool]], singles: int, multis: int
) -> None:
    spec = SinglesToMultis(filter="singles_to_multis", rows="all", singles=singles, multis=multis)
    dropped = surplus(spec, entries, random.Random(0))
    before = Counter(entries)
    left = Counter(entry for number, entry in enumerate(entries) if number not in dropped)
    for source in "ab":
        parts = min(before[source, True] // singles, before[source, False] // multis)
        assert (left[source, True], left[source, False]) == (parts * singles, parts * multis)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sets(st.sampled_from("uvwxyz"), min_size=1)), max_size=30)
)
def test_every_remaining_category_has_enough_samples(entries: list[tuple[str, set[str]]]) -> None:
    rows = [(source, tuple(sorted(labels))) for source, labels in entries]
    spec = CategoryTail(filter="category_tail", rows="all", at_least=3)
    dropped = in_the_tail(spec, rows, random.Random(0))
    left = [row for number, row in enumerate(rows) if number not in dropped]
    counts = Counter((source, label) for source, labels in left for label in labels)
    assert all(count >= 3 for count in counts.values())
    everything = Counter((source, label) for source, labels in rows for label in labels)
    if all(count >= 3 for count in everything.values()):
        assert not dropped
