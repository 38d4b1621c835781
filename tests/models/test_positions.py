from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.padded import collate
from vtune.errors import DataError
from vtune.models.batch import Row
from vtune.models.pictures import Pixels
from vtune.models.policy import Policy
from vtune.models.positions import rope_positions

MERGE, IMAGE, WORD = 2, 7, 1

sides = st.integers(1, 9).map(lambda side: MERGE * side)
# A turn has at least one text token, as vision tokens frame every picture.
turns = st.tuples(st.integers(1, 9), st.none() | st.tuples(st.just(1), sides, sides))
batches = st.lists(st.lists(turns, min_size=1, max_size=4), min_size=1, max_size=4)


def row(turns: list[tuple[int, tuple[int, int, int] | None]], image_id: int) -> Row:
    ids: list[int] = []
    pixels = []
    for words, grid in turns:
        ids += [WORD] * words
        if grid is not None:
            count = grid[0] * grid[1] * grid[2] // MERGE**2
            ids += [image_id] * count
            pixels.append(Pixels(torch.zeros(0, 1), grid, count, "", torch.Tensor.float))
    return Row(ids, pixels)


@settings(max_examples=25)
@given(drawn=batches, side=st.sampled_from(["left", "right"]))
@pytest.mark.parametrize("family", ["policy", "policy3"])
def test_positions_match_transformers(
    request: pytest.FixtureRequest, family: str, drawn: list, side: Literal["left", "right"]
) -> None:
    policy: Policy = request.getfixturevalue(family)
    chat = policy.chat
    rows = [row(turns, chat.image_id) for turns in drawn]
    batch = collate(rows, pad_id=chat.pad_id, image_id=chat.image_id, merge=policy.merge, side=side)
    grids = [pixels.grid for row in rows for pixels in row.pixels]
    theirs, _ = policy.model.model.get_rope_index(
        batch.input_ids,
        mm_token_type_ids=(batch.input_ids == chat.image_id).int(),
        image_grid_thw=torch.tensor(grids) if grids else None,
        attention_mask=batch.attention_mask,
    )
    kept = batch.attention_mask.bool()
    assert batch.position_ids.shape == (3, *batch.input_ids.shape)
    assert torch.equal(batch.position_ids[:, kept], theirs[:, kept])


def test_text_continues_after_the_largest_side_of_a_picture() -> None:
    ids = [WORD, *[IMAGE] * 6, WORD]
    found = rope_positions(ids, [(1, 4, 6)], image_id=IMAGE, merge=MERGE)
    assert found.tolist() == [
        [0, 1, 1, 1, 1, 1, 1, 4],
        [0, 1, 1, 1, 2, 2, 2, 4],
        [0, 1, 2, 3, 1, 2, 3, 4],
    ]


@pytest.mark.parametrize(
    ("ids", "grids", "what"),
    [
        ([WORD, IMAGE], [], "placeholder without a picture"),
        ([WORD], [(1, 2, 2)], "more pictures than placeholders"),
        ([WORD, IMAGE], [(1, 2, 4)], "do not match a picture of 2 tokens"),
        ([IMAGE, WORD, IMAGE], [(1, 2, 4)], "do not match a picture of 2 tokens"),
        ([IMAGE, IMAGE, WORD], [(1, 2, 2)], "placeholder without a picture"),
    ],
)
def test_a_mismatch_of_placeholders_and_pictures_is_our_error(
    ids: list[int], grids: list[tuple[int, int, int]], what: str
) -> None:
    with pytest.raises(DataError, match=what):
        rope_positions(ids, grids, image_id=IMAGE, merge=MERGE)
