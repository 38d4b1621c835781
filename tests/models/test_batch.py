from typing import Literal

import pytest
import torch

from tests.models.padded import Batch, collate
from tests.models.rows import ragged, stock
from vtune.models.batch import Row, image_features
from vtune.models.policy import Policy
from vtune.schema.message import Message

SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")


def batched(policy: Policy, rows: list[Row], side: Literal["left", "right"] = "right") -> Batch:
    chat = policy.chat
    return collate(rows, pad_id=chat.pad_id, image_id=chat.image_id, merge=policy.merge, side=side)


def logits(policy: Policy, batch: Batch) -> torch.Tensor:
    out: torch.Tensor = policy.model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        position_ids=batch.position_ids,
        mm_encoder_outputs=image_features(policy.model, batch.pictures),
    ).logits
    return out


def stock_logits(policy: Policy, batch: Batch, rows: list[Row]) -> torch.Tensor:
    out: torch.Tensor = policy.model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        mm_token_type_ids=(batch.input_ids == policy.chat.image_id).int(),
        **stock(policy, rows),
    ).logits
    return out


def test_a_picture_shown_by_several_rows_is_stored_once(policy: Policy) -> None:
    rows = ragged(policy)
    batch = batched(policy, rows)
    assert batch.pictures is not None
    assert batch.pictures.order == (0, 1, 2, 0, 2)
    assert len(batch.pictures.grids) == 3
    assert len(batch.pictures.patches) == sum(len(pixels.patches) for pixels in rows[0].pixels)


@pytest.mark.parametrize("side", SIDES)
@torch.no_grad()
def test_encoding_distinct_pictures_once_matches_the_stock_forward(
    each_policy: Policy, side: Literal["left", "right"]
) -> None:
    rows = ragged(each_policy)
    batch = batched(each_policy, rows, side)
    kept = batch.attention_mask.bool()
    ours, theirs = logits(each_policy, batch), stock_logits(each_policy, batch, rows)
    torch.testing.assert_close(ours[kept], theirs[kept], rtol=1e-5, atol=1e-5)


def test_a_shared_picture_gets_the_gradient_of_all_its_rows(each_policy: Policy) -> None:
    rows = ragged(each_policy)
    batch = batched(each_policy, rows)
    kept = batch.attention_mask.bool()
    gradients = []
    for forward in (logits(each_policy, batch), stock_logits(each_policy, batch, rows)):
        loss = torch.log_softmax(forward, -1)[..., 5][kept].sum()
        vision = list(each_policy.model.model.visual.parameters())
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, vision)]))
    assert gradients[0].abs().max() > 0
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_a_batch_without_pictures_is_plain_text(each_policy: Policy) -> None:
    row = Row(each_policy.chat.prompt([Message("user", "Which digit?")], []), [])
    batch = batched(each_policy, [row])
    assert batch.pictures is None
    theirs = each_policy.model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
    torch.testing.assert_close(logits(each_policy, batch), theirs, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_padding_does_not_change_rows(each_policy: Policy) -> None:
    rows = ragged(each_policy)
    together = batched(each_policy, rows)
    everything = logits(each_policy, together)
    for index, row in enumerate(rows):
        alone = logits(each_policy, batched(each_policy, [row]))[0]
        torch.testing.assert_close(everything[index, : len(row.token_ids)], alone, rtol=1e-4, atol=1e-4)
