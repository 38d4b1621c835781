"""Time of a training forward and backward: rows packed without padding against the same rows padded."""

import random
import statistics
from collections.abc import Callable
from time import process_time

import pytest
import torch

from tests.models.rows import picture
from tests.models.test_batch import batched
from tests.update.build import row_of
from vtune.models.batch import image_features
from vtune.models.policy import Policy, policy_logprobs
from vtune.schema.message import Message
from vtune.update.batch import Item, micro_batch
from vtune.update.forward import PolicyForward

ROUNDS = 7
LONGEST = 512
"""Tokens of the longest row; the shortest has an eighth of it."""
PICTURE = picture(112, 112)


def lengths(kind: str, count: int) -> list[int]:
    """Rollout lengths from an eighth of LONGEST to LONGEST, both included."""
    rng = random.Random(0)
    shares = {"even": lambda: rng.uniform(1, 8) / 8, "skewed": lambda: 8 ** rng.random() / 8}[kind]
    return [LONGEST // 8, LONGEST, *(int(LONGEST * shares()) for _ in range(count - 2))]


def rollouts(policy: Policy, kind: str, *, groups: int, size: int) -> list[Item]:
    """Groups of rollouts; the rollouts of a group share one prompt with one picture."""
    rng, chat = random.Random(1), policy.chat
    shown = [policy.pictures.read(PICTURE)]
    sizes = lengths(kind, groups * size)
    rng.shuffle(sizes)
    items = []
    for group in range(groups):
        prompt = chat.prompt([Message("user", f"<image>{group}: which digit is on the red sign?")], shown)
        for number in range(size):
            count = sizes[group * size + number] - len(prompt)
            words = [rng.choice(chat.words("0123456789 abcdef")) for _ in range(count)]
            items.append(Item([*prompt, *words], (PICTURE,), [False] * len(prompt) + [True] * count))
    return items


def packed(policy: Policy, items: list[Item]) -> torch.Tensor:
    batch = micro_batch(items, policy)
    forward = PolicyForward(policy.model, policy.chat)
    return forward(batch.packed, batch.predicting, batch.targets, 1).logprobs


def padded(policy: Policy, items: list[Item]) -> torch.Tensor:
    batch = batched(policy, [row_of(item, policy) for item in items])
    counted = torch.zeros(batch.input_ids.shape, dtype=torch.bool)
    for index, item in enumerate(items):
        counted[index, : len(item.loss_mask)] = torch.tensor(item.loss_mask)
    hidden = policy.model.model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        position_ids=batch.position_ids,
        mm_encoder_outputs=image_features(policy.model, batch.pictures),
        use_cache=False,
    ).last_hidden_state[:, :-1][counted[:, 1:]]
    logprobs = policy_logprobs(policy.model.lm_head(hidden), policy.chat)
    with torch.no_grad():  # as in the packed forward
        assert torch.special.entr(logprobs.exp()).sum(-1).isfinite().all()
    return logprobs.gather(1, batch.input_ids[:, 1:][counted[:, 1:]][:, None])[:, 0]


def seconds(policy: Policy, work: Callable[[Policy, list[Item]], torch.Tensor], items: list[Item]) -> float:
    begin = process_time()
    work(policy, items).sum().backward()
    took = process_time() - begin
    policy.model.zero_grad()
    return took


@pytest.mark.parametrize("kind", ["even", "skewed"])
@pytest.mark.parametrize(("groups", "size"), [(16, 1), (2, 8)], ids=["no shared prompts", "groups of 8"])
def test_packed_against_padded(policy: Policy, kind: str, groups: int, size: int) -> None:
    policy.model.set_attn_implementation("sdpa")
    items = rollouts(policy, kind, groups=groups, size=size)
    torch.testing.assert_close(packed(policy, items), padded(policy, items), rtol=0, atol=1e-5)
    # Alternating, so that other load on the machine affects both.
    times = [(seconds(policy, packed, items), seconds(policy, padded, items)) for _ in range(ROUNDS)]
    ours, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    share = statistics.median(one / other for one, other in times)
    print(
        f"\n{len(items)} rows of {LONGEST // 8} to {LONGEST} tokens, {kind}: "
        f"packed {ours * 1e3:.0f} ms, padded {theirs * 1e3:.0f} ms, ratio {share:.2f}"
    )
