from hypothesis import given
from hypothesis import strategies as st

from vtune.update.batch import Item, micro_batches


@given(st.lists(st.integers(1, 30), max_size=20), st.integers(1, 8))
def test_every_item_is_in_one_micro_batch(lengths: list[int], size: int) -> None:
    items = [Item([number] * length, (), [True] * length) for number, length in enumerate(lengths)]
    parts = micro_batches(items, size)
    assert sorted(item.token_ids[0] for part in parts for item in part) == list(range(len(items)))
    assert all(1 <= len(part) <= size for part in parts)
    assert len(parts) == -(-len(items) // size)


def test_like_lengths_go_together() -> None:
    items = [Item([0] * length, (), [False, True]) for length in (9, 1, 8, 2)]
    found = [[len(item.token_ids) for item in part] for part in micro_batches(items, 2)]
    assert found == [[1, 2], [8, 9]]
    assert items[0].counted == 1
