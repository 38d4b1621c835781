import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.errors import DataError
from vtune.models.tree import common, segment_tree, token_keys

IMAGE = 7
rows = st.lists(st.lists(st.integers(1, 2), min_size=1, max_size=12), max_size=8)


@given(rows, st.integers(1, 6))
def test_each_rows_path_through_the_tree_spells_the_row(rows: list[list[int]], least: int) -> None:
    tree = segment_tree(rows, least=least)
    for row, path in zip(rows, tree.paths, strict=True):
        pieces = [tree.segments[number] for number in path]
        assert [token for s in pieces for token in rows[s.row][s.start : s.end]] == row
        assert [s.start for s in pieces] == [0, *(s.end for s in pieces[:-1])]
        for depth, number in enumerate(path):
            assert tree.segments[number].above == path[:depth]
            assert all(above < number for above in path[:depth])


@given(rows)
def test_with_a_minimum_of_1_no_token_after_the_same_prefix_is_stored_twice(rows: list[list[int]]) -> None:
    beginnings = {tuple(row[: end + 1]) for row in rows for end in range(len(row))}
    tree = segment_tree(rows, least=1)
    assert sum(s.end - s.start for s in tree.segments) == len(beginnings)


@given(rows, st.integers(1, 6))
def test_shared_segments_have_at_least_the_minimum_length(rows: list[list[int]], least: int) -> None:
    tree = segment_tree(rows, least=least)
    for number, segment in enumerate(tree.segments):
        ends = {path[-1] == number for path in tree.paths if number in path}
        if ends == {False}:
            assert segment.end - segment.start >= least


def test_a_group_is_one_prefix_and_its_branches() -> None:
    tree = segment_tree([[1, 2, 3, 4, 5], [1, 2, 3, 6], [1, 2, 3, 6, 8, 8, 8]], least=3)
    found = [(s.start, s.end, s.above) for s in tree.segments]
    assert found == [(0, 3, ()), (3, 5, (0,)), (3, 4, (0,)), (3, 7, (0,))]
    assert tree.paths == ((0, 1), (0, 2), (0, 3))


def test_equal_rows_are_one_segment() -> None:
    tree = segment_tree([[1, 2], [3], [1, 2]])
    assert len(tree.segments) == 2
    assert tree.paths[0] == tree.paths[2] != tree.paths[1]


@given(st.lists(st.integers(1, 2), max_size=9), st.lists(st.integers(1, 2), max_size=9))
def test_the_common_prefix_is_the_longest(first: list[int], second: list[int]) -> None:
    length = common(first, second)
    assert first[:length] == second[:length]
    assert first[: length + 1] != second[: length + 1] or length == min(len(first), len(second))


def test_placeholders_are_distinguished_by_picture() -> None:
    assert token_keys([1, IMAGE, IMAGE, 2, IMAGE], [3, 0], IMAGE) == [1, -4, -4, 2, -1]


@pytest.mark.parametrize(
    ("pictures", "what"), [([0], "without a picture"), ([0, 1, 2], "more pictures than placeholders")]
)
def test_a_mismatch_of_pictures_and_placeholders_is_our_error(pictures: list[int], what: str) -> None:
    with pytest.raises(DataError, match=what):
        token_keys([IMAGE, 2, IMAGE], pictures, IMAGE)
