"""Packed rows compared with the same rows padded in the stock forward."""

import random

import pytest
import torch

from tests.models.rows import LARGE, SMALL, WIDE, ragged
from tests.models.test_batch import batched, logits
from vtune.models.attention import use_tree_attention
from vtune.models.batch import Row, image_features
from vtune.models.packed import Packed, pack
from vtune.models.policy import Policy
from vtune.schema.message import Message


def packed(policy: Policy, rows: list[Row]) -> Packed:
    device = policy.device
    return pack(rows, image_id=policy.chat.image_id, merge=policy.merge, device=device)


def packed_logits(policy: Policy, rows: list[Row]) -> list[torch.Tensor]:
    """Logits (T, V) of each row."""
    use_tree_attention(policy.model)
    row = packed(policy, rows)
    hidden = policy.model.model(
        input_ids=row.input_ids,
        position_ids=row.position_ids,
        mm_encoder_outputs=image_features(policy.model, row.pictures),
        layout=row.layout,
        use_cache=False,
    ).last_hidden_state[0]
    return [policy.model.lm_head(hidden[places]) for places in row.places]


def padded_logits(policy: Policy, rows: list[Row]) -> list[torch.Tensor]:
    found = logits(policy, batched(policy, rows))
    return [found[number, : len(row.token_ids)] for number, row in enumerate(rows)]


def words(policy: Policy, count: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.choice(policy.chat.words("0123456789 abcdef")) for _ in range(count)]


def group(policy: Policy, question: str, count: int) -> list[Row]:
    """Rollouts of one prompt with two pictures; odd ones look again, each at a different picture."""
    chat, read = policy.chat, policy.pictures.read
    shown = [read(LARGE), read(SMALL)]
    prompt = chat.prompt([Message("user", f"<image><image>{question}")], shown)
    rows = []
    for number in range(count):
        ids, pixels = [*prompt, *words(policy, 4 << (number % 4), number)], list(shown)
        for turn in range(number % 2 + number % 4 // 3):
            crop = read(WIDE if (number + turn) % 3 else SMALL)
            ids += chat.observation("<sandbox_output>\n<image>\n</sandbox_output>", [crop], ended=False)
            ids += words(policy, 5 + number, 100 * turn + number)
            pixels.append(crop)
        rows.append(Row(ids, pixels))
    return rows


def everything(policy: Policy) -> dict[str, list[Row]]:
    red, blue = group(policy, "Which digit is on the red sign?", 6), group(policy, "And on the blue one?", 6)
    text = Row(policy.chat.prompt([Message("user", "What is 1 + 1?")], []), [])
    return {
        "different": ragged(policy),
        "group": red,
        "groups": [one for pair in zip(red, blue, strict=True) for one in pair],
        "equal": [red[1], red[1], red[0]],
        "text": [text, red[2], text],
        "alone": red[3:4],
        "prompt": [Row(red[0].token_ids[:-4], red[0].pixels), *red[:2]],
    }


KINDS = ("different", "group", "groups", "equal", "text", "alone", "prompt")


@pytest.mark.parametrize("kind", KINDS)
def test_log_probabilities_and_gradients_match_padded_rows(each_policy: Policy, kind: str) -> None:
    rows = everything(each_policy)[kind]
    parameters = list(each_policy.model.parameters())
    found = []
    for forward in (packed_logits, padded_logits):
        logprobs = [torch.log_softmax(one, -1) for one in forward(each_policy, rows)]
        # Different weights for each row and token, so that a swap would be noticed.
        loss = sum(
            (one[:, 5] * torch.linspace(-1, 1 + number, len(one))).sum()
            for number, one in enumerate(logprobs)
        )
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        found.append((torch.cat(logprobs), [torch.zeros(1) if g is None else g for g in gradients]))
    (ours, our_gradients), (theirs, their_gradients) = found
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    largest = max(float(g.norm()) for g in their_gradients)
    assert largest > 1
    for mine, wanted in zip(our_gradients, their_gradients, strict=True):
        assert float((mine - wanted).norm()) <= 3e-6 * max(float(wanted.norm()), 1e-2 * largest)


def test_a_groups_prompt_and_pictures_are_stored_once(policy: Policy) -> None:
    rows = group(policy, "Which digit?", 6)
    prompt = len(rows[0].token_ids) - 4
    row = packed(policy, rows)
    assert row.input_ids.shape[1] == prompt + sum(len(one.token_ids) - prompt for one in rows)
    assert row.layout.lengths[0] == prompt
    assert all(places[:prompt].tolist() == list(range(prompt)) for places in row.places)
    assert row.pictures is not None
    assert len(row.pictures.grids) == 3
    assert row.pictures.order[:2] == (0, 1)
    assert len(row.pictures.order) == 2 + sum(len(one.pixels) - 2 for one in rows)


def test_equal_tokens_about_different_pictures_are_not_shared(policy: Policy) -> None:
    chat, read = policy.chat, policy.pictures.read
    one, other = read(LARGE), read(LARGE + b"\0")
    assert one is not other
    ids = chat.prompt([Message("user", "<image>Which digit is on the red sign?")], [one])
    assert packed(policy, [Row(ids, [one]), Row(ids, [one])]).input_ids.shape[1] == len(ids)
    assert packed(policy, [Row(ids, [one]), Row(ids, [other])]).input_ids.shape[1] == 2 * len(ids)


@torch.no_grad()
def test_other_forwards_of_the_model_are_unchanged(each_policy: Policy) -> None:
    batch = batched(each_policy, ragged(each_policy))
    each_policy.model.set_attn_implementation("sdpa")
    before = logits(each_policy, batch)
    use_tree_attention(each_policy.model)
    torch.testing.assert_close(logits(each_policy, batch), before, rtol=0, atol=0)
