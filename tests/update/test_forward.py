import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import vtune.update.forward
from tests.conftest import load
from tests.models.test_batch import batched, logits
from tests.update.build import items, row_of
from vtune.errors import RunFailed
from vtune.models.policy import Policy, policy_logprobs
from vtune.update.batch import MicroBatch, micro_batch
from vtune.update.forward import PolicyForward, TokenStats, _Chosen, checkpoint_activations


def scored(forward: PolicyForward, batch: MicroBatch, chunks: int = 1) -> TokenStats:
    stats: TokenStats = forward(batch.packed, batch.predicting, batch.targets, chunks)
    return stats


@torch.no_grad()
def test_the_forward_scores_counted_tokens_item_by_item(each_policy: Policy) -> None:
    given = items(each_policy, 5)
    stats = scored(PolicyForward(each_policy.model, each_policy.chat), micro_batch(given, each_policy))
    everything = policy_logprobs(
        logits(each_policy, batched(each_policy, [row_of(item, each_policy) for item in given])),
        each_policy.chat,
    )
    slow, entropy = [], []
    for row, item in enumerate(given):
        for column, (token, counts) in enumerate(zip(item.token_ids, item.loss_mask, strict=True)):
            if counts:
                before = everything[row, column - 1]
                slow.append(before[token])
                kept = before[before > -torch.inf]
                entropy.append(-(kept.exp() * kept).sum())
    assert len(slow) == sum(item.counted for item in given) > 10
    torch.testing.assert_close(stats.logprobs, torch.stack(slow), rtol=0, atol=1e-5)
    torch.testing.assert_close(stats.entropy, torch.stack(entropy), rtol=1e-5, atol=1e-5)


def test_chunks_change_neither_values_nor_gradients(policy: Policy) -> None:
    batch = micro_batch(items(policy, 3), policy)
    forward = PolicyForward(policy.model, policy.chat)
    found = []
    # More chunks than tokens, as another process may have more to score.
    for chunks in (1, 4, len(batch.targets) + 3):
        stats = scored(forward, batch, chunks)
        gradients = torch.autograd.grad(stats.logprobs.sum(), list(policy.model.parameters()))
        found.append((*stats, *gradients))
    for other in found[1:]:
        torch.testing.assert_close(found[0], other, rtol=1e-4, atol=1e-5)


def test_without_counted_tokens_every_parameter_still_gets_a_gradient(policy: Policy) -> None:
    batch = micro_batch(items(policy, 1), policy)
    nothing = torch.zeros(0, dtype=torch.long)
    for chunks in (1, 2):
        forward = PolicyForward(policy.model, policy.chat)
        loss = forward(batch.packed, nothing, nothing, chunks).logprobs.sum()
        gradients = torch.autograd.grad(loss, list(policy.model.parameters()))
        assert all(not gradient.any() for gradient in gradients)


class OnGpu(torch.Tensor):
    """A tensor that claims to be on a GPU."""

    is_cuda = True


def test_without_counted_tokens_nothing_is_scored_on_a_gpu_either(policy: Policy) -> None:
    hidden = torch.zeros(0, 12).as_subclass(OnGpu)
    logprobs, entropy = _Chosen.apply(hidden, torch.zeros(0, dtype=torch.long), policy.chat)  # type: ignore[no-untyped-call]
    assert len(logprobs) == len(entropy) == 0


class Living(TorchDispatchMode):
    """Bytes of all live storages created since the start; `most` is the peak."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage: Any) -> None:
        key, size = storage.data_ptr(), storage.nbytes()
        if key in self._seen or not size:
            return
        self._seen.add(key)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size


def peak(policy: Policy, batch: MicroBatch, chunks: int) -> int:
    forward = PolicyForward(policy.model, policy.chat)
    with Living() as living:
        scored(forward, batch, chunks).logprobs.sum().backward()
    policy.model.zero_grad()
    return living.most


@pytest.mark.slow
@pytest.mark.train
def test_logits_take_the_memory_of_one_chunk(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = load(tiny)
    batch = micro_batch(items(policy, 120), policy)
    rest = peak(policy, batch, 1)
    size = 20_000
    policy.model.resize_token_embeddings(size, mean_resizing=False)
    count = len(batch.targets)
    logits = 4 * count * size
    monkeypatch.setattr(vtune.update.forward, "CHUNK", 16 * size)
    chunks = PolicyForward(policy.model, policy.chat).chunks(count)
    assert chunks == -(-count // 16) > 10
    assert peak(policy, batch, 1) - rest > 2 * logits
    assert peak(policy, batch, chunks) - rest < logits / 2


@pytest.mark.train
def test_checkpointing_frees_activations_without_changing_gradients(each_policy: Policy) -> None:
    policy = load(Path(each_policy.model.config._name_or_path))
    policy.model.train()
    batch = micro_batch(items(policy, 12), policy)
    found = []
    for checkpointing in (False, True):
        if checkpointing:
            checkpoint_activations(policy.model)
        forward = PolicyForward(policy.model, policy.chat)
        kept: list[int] = []

        def keep(tensor: torch.Tensor, kept: list[int] = kept) -> torch.Tensor:
            kept.append(tensor.nbytes)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = scored(forward, batch).logprobs.sum()
        gradients = torch.autograd.grad(loss, list(policy.model.parameters()))
        found.append((sum(kept), gradients))
    (plain, wanted), (less, ours) = found
    assert less < plain / 3
    torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-6)


def test_checkpointing_without_effect_is_reported() -> None:
    class Stranger(torch.nn.Linear):
        def gradient_checkpointing_enable(self, **options: object) -> None:
            pass

    with pytest.raises(RunFailed, match="had no effect"):
        checkpoint_activations(Stranger(2, 2))
