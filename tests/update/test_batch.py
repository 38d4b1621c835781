from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.models.rows import LARGE, SMALL
from tests.update.build import items
from vtune.errors import DataError
from vtune.models.policy import Policy
from vtune.update.batch import Item, micro_batch, micro_batches

IMAGE = 7


def item(token_ids: list[int], images: tuple[bytes, ...] = ()) -> Item:
    return Item(token_ids, images, [False] + [True] * (len(token_ids) - 1))


def split(items: list[Item], tokens: int) -> list[list[Item]]:
    return micro_batches(items, tokens, image_id=IMAGE)


@given(st.lists(st.integers(1, 30), max_size=20), st.integers(1, 90))
def test_every_item_is_in_one_micro_batch_within_the_limit(lengths: list[int], tokens: int) -> None:
    given = [item([100 + number] * length) for number, length in enumerate(lengths)]
    parts = split(given, tokens)
    assert Counter(one.token_ids[0] for part in parts for one in part) == Counter(
        i.token_ids[0] for i in given
    )
    for part in parts:
        assert len(part) == 1 or sum(len(one.token_ids) for one in part) <= tokens


def test_micro_batches_are_few_and_of_similar_size() -> None:
    parts = split([item([100 + number] * 10) for number in range(10)], 40)
    assert sorted(len(part) for part in parts) == [2, 4, 4]
    parts = split([item([100 + number] * 10) for number in range(9)], 40)
    assert [len(part) for part in parts] == [3, 3, 3]


def test_items_with_a_common_prefix_stay_together_and_count_it_once() -> None:
    groups = [[item([first] * 50 + [9, number]) for number in range(4)] for first in (1, 2)]
    shuffled = [one for pair in zip(*groups, strict=True) for one in pair]
    parts = split(shuffled, 60)
    assert [[one.token_ids[0] for one in part] for part in parts] == [[1] * 4, [2] * 4]


def test_items_with_different_pictures_have_no_common_prefix() -> None:
    ids = [1] * 20 + [IMAGE] * 40 + [2]
    assert len(split([item(ids, (SMALL,)), item([*ids, 3], (SMALL,))], 70)) == 1
    assert len(split([item(ids, (SMALL,)), item([*ids, 3], (LARGE,))], 70)) == 2


def test_pictures_that_do_not_match_the_placeholders_are_our_error() -> None:
    with pytest.raises(DataError, match="without a picture"):
        split([item([1, IMAGE, 2])], 10)


def test_counted_tokens_are_laid_out_item_by_item(policy: Policy) -> None:
    given = items(policy, 4)
    batch = micro_batch(given, policy)
    targets = [
        token for one in given for token, counts in zip(one.token_ids, one.loss_mask, strict=True) if counts
    ]
    assert batch.targets.tolist() == targets
    assert batch.advantages.tolist() == pytest.approx([a for one in given for a in one.advantages])
    assert batch.old_logprobs.tolist() == pytest.approx([a for one in given for a in one.old_logprobs])
    before = [
        one.token_ids[index - 1] for one in given for index, counts in enumerate(one.loss_mask) if counts
    ]
    assert batch.packed.input_ids[0, batch.predicting].tolist() == before
    assert batch.off_policy.tolist() == [of_one for one in given for of_one in one.off_policy]
    assert batch.sequence.tolist() == [k for k, one in enumerate(given) for _ in range(one.counted)]


def test_the_first_token_cannot_be_counted(policy: Policy) -> None:
    batch = micro_batch([Item([1, 2], (), [True, False])], policy)
    assert batch.targets.shape == batch.predicting.shape == torch.Size([0])
