from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.update.build import items, update
from vtune.models.policy import Policy
from vtune.models.shape import known_shapes, shape_of
from vtune.update import flops
from vtune.update.batch import micro_batch
from vtune.update.flops import UpdateFlops, Work, attended, forward_flops, passes_of, peak_flops
from vtune.update.forward import PolicyForward
from vtune.update.ranks import Ranks

PARTS = ("vision", "connector", "language")
FROZEN = PARTS[:2]


@pytest.mark.parametrize(("freeze", "apart"), [((), 0.08), (FROZEN, 0.03)])
def test_training_flops_match_torchs_count(
    each_policy: Policy, freeze: tuple[str, ...], apart: float
) -> None:
    """Torch counts each matrix product; for attention, including the tower's, it also counts masked parts."""
    batch = micro_batch(items(each_policy, 4), each_policy)
    forward = PolicyForward(each_policy.model, each_policy.chat)
    trained = [
        value
        for name, value in each_policy.model.named_parameters()
        if not (freeze and each_policy.family.part_of(name) in freeze)
    ]
    with FlopCounterMode(display=False) as counted:
        stats = forward(batch.packed, batch.predicting, batch.targets, 1)
        torch.autograd.grad(stats.logprobs.sum(), trained, allow_unused=True)
    by_operation = counted.get_flop_counts()["Global"]
    linear = sum(count for name, count in by_operation.items() if "attention" not in str(name))
    here = UpdateFlops(each_policy, update(), {part: part not in freeze for part in PARTS}, reference=False)
    assert attended(batch.packed) > 0
    shape = shape_of(each_policy.model.config.to_dict())
    attention = 3 * 4 * shape.layers * shape.query * attended(batch.packed)
    # Norms, biases and tables are not matrix products; the first layer passes no gradient down.
    assert here.of(batch.packed, len(batch.targets)) - attention == pytest.approx(linear, rel=apart)


def test_shared_tokens_of_a_row_are_counted_once(policy: Policy) -> None:
    one, twice = ([item] * number for item in items(policy, 1) for number in (1, 2))
    here = UpdateFlops(policy, update(), dict.fromkeys(PARTS, 1), reference=False)
    alone, both = (micro_batch(given, policy) for given in (one, twice))
    assert attended(alone.packed) == attended(both.packed)
    tokens = alone.packed.input_ids.shape[1]
    assert attended(alone.packed) == tokens * (tokens + 1) / 2
    head = here.of(both.packed, len(both.targets)) - here.of(alone.packed, len(alone.targets))
    shape = shape_of(policy.model.config.to_dict())
    assert head == pytest.approx(3 * 2 * len(alone.targets) * shape.vocab * shape.hidden)


def test_at_7b_a_trained_token_costs_six_operations_per_parameter() -> None:
    shape = shape_of(known_shapes()["Qwen2.5-VL-7B"])
    found = forward_flops(shape, Work(1000, 0, 0, 1000))["language"]
    # The embedding is a look-up, not a product.
    expected = 2 * 1000 * (shape.parameters["language"] - shape.vocab * shape.hidden)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("learning", "adapters", "passes"),
    [
        (PARTS, False, (3, 3, 3)),
        (("connector", "language"), False, (1, 3, 3)),
        (("language",), False, (1, 1, 3)),
        (("vision", "connector"), False, (3, 3, 2)),
        (("language",), True, (1, 1, 2)),
        (("vision", "language"), True, (2, 2, 2)),
    ],
)
def test_frozen_parts_cost_less(learning: tuple[str, ...], adapters: bool, passes: tuple[int, ...]) -> None:
    assert tuple(passes_of(learning, adapters=adapters).values()) == passes


def test_peaks_are_known_only_for_gpus_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    half, single = update(dtype="bfloat16"), update()
    eight = Ranks(rank=0, world=8, local=0)
    assert peak_flops(eight, half) is None
    monkeypatch.setattr(Ranks, "device", torch.device("cuda", 0))
    card = SimpleNamespace(total_memory=141e9)
    monkeypatch.setattr(flops.torch.cuda, "get_device_properties", lambda _: card)
    for name, peak in (("NVIDIA H200", 8 * 989e12), ("NVIDIA GeForce GTX 1080", None)):
        monkeypatch.setattr(flops.torch.cuda, "get_device_name", lambda _, name=name: name)
        assert peak_flops(eight, half) == peak
        assert peak_flops(eight, single) is None
