import pytest
import torch

import vtune.update.forward
from tests.models.rows import ragged
from tests.models.test_batch import batched, logits
from tests.update.build import items, row_of
from vtune.models.policy import Policy, policy_logprobs
from vtune.update.forward import PolicyForward


def counted(policy: Policy) -> tuple:
    rows = [row_of(item, policy) for item in items(policy, 3)]
    batch = batched(policy, rows)
    mask = torch.zeros(batch.input_ids.shape, dtype=torch.bool)
    for index, item in enumerate(items(policy, 3)):
        mask[index, : len(item.loss_mask)] = torch.tensor(item.loss_mask)
    return batch, mask


@torch.no_grad()
def test_it_scores_the_tokens_that_count_row_by_row(each_policy: Policy) -> None:
    batch, mask = counted(each_policy)
    stats = PolicyForward(each_policy.model, each_policy.chat)(batch, mask)
    everything = policy_logprobs(logits(each_policy, batch), each_policy.chat)
    slow, entropy = [], []
    for row in range(len(mask)):
        for column in range(1, mask.shape[1]):
            if mask[row, column]:
                before = everything[row, column - 1]
                slow.append(before[batch.input_ids[row, column]])
                kept = before[before > -torch.inf]
                entropy.append(-(kept.exp() * kept).sum())
    assert len(slow) == int(mask.sum()) > 10
    torch.testing.assert_close(stats.logprobs, torch.stack(slow), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(stats.entropy, torch.stack(entropy), rtol=1e-4, atol=1e-4)


def test_chunks_change_neither_values_nor_gradients(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, mask = counted(policy)
    forward = PolicyForward(policy.model, policy.chat)
    found = []
    for chunk in (1024, 5):
        monkeypatch.setattr(vtune.update.forward, "CHUNK", chunk)
        stats = forward(batch, mask)
        gradients = torch.autograd.grad(stats.logprobs.sum(), list(policy.model.parameters()))
        found.append((*stats, *gradients))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_first_token_cannot_count(policy: Policy) -> None:
    batch = batched(policy, ragged(policy))
    mask = torch.zeros(batch.input_ids.shape, dtype=torch.bool)
    mask[:, 0] = True
    assert PolicyForward(policy.model, policy.chat)(batch, mask).logprobs.shape == (0,)
