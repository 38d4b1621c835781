"""Rows of segments in one attention call, by a reference of torch's kernel, and when this is used."""

import copy
from functools import partial, wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.kernel import KERNEL, Last, top_left, varlen_attn
from tests.models.rows import ragged
from tests.models.test_decoder import decoded, forwarded
from tests.models.test_packed import KINDS, everything, packed_logits, words
from tests.update.build import items
from tests.update.test_lora import adapted
from vtune.models import row_attention
from vtune.models.attention import ONE_CALL, attention_in_one_call, layout, tree_attention
from vtune.models.policy import Policy
from vtune.models.row_attention import MOST, apart, place_row_attention
from vtune.models.tree import Segment
from vtune.update.batch import micro_batch
from vtune.update.forward import PolicyForward, checkpoint_activations

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@st.composite
def trees(draw: st.DrawFn) -> list[Segment]:
    """Segments of random lengths, each at the root or below an earlier one."""
    found: list[Segment] = []
    for number in range(draw(st.integers(1, 12))):
        parent = draw(st.one_of(st.none(), st.integers(0, number - 1))) if number else None
        above = () if parent is None else (*found[parent].above, parent)
        start = 0 if parent is None else found[parent].end
        found.append(Segment(number, start, start + draw(st.integers(1, 9)), above))
    return found


@given(trees())
def test_each_segment_attends_to_its_ancestors_and_itself(segments: list[Segment]) -> None:
    seen = layout(segments, CPU).seen
    begins, wanted = 0, []
    where: list[range] = []
    for segment in segments:
        length = segment.end - segment.start
        where.append(range(begins, begins + length))
        begins += length
        wanted.append([token for number in (*segment.above, len(where) - 1) for token in where[number]])
    assert seen.places.tolist() == [token for one in wanted for token in one]
    assert seen.begins.tolist() == [one.start for one in where] + [begins]
    sizes = [len(one) for one in wanted]
    assert seen.seen_begins.tolist() == [sum(sizes[:number]) for number in range(len(sizes) + 1)]
    assert (seen.longest, seen.most) == (max(len(one) for one in where), max(sizes))
    assert seen.begins.dtype == seen.seen_begins.dtype == torch.int32


@settings(deadline=None)
@given(trees(), st.sampled_from([(4, 4), (4, 2), (3, 1)]))
def test_one_call_matches_a_call_per_segment(segments: list[Segment], heads: tuple[int, int]) -> None:
    torch.manual_seed(0)
    row = layout(segments, CPU)
    states = [torch.randn(1, count, sum(row.lengths), 8) for count in (heads[0], heads[1], heads[1])]
    weight = torch.randn(1, sum(row.lengths), heads[0], 8)
    found = []
    for attend in (attention_in_one_call, tree_attention):
        taken = [one.clone().requires_grad_() for one in states]
        with patch(KERNEL, varlen_attn):
            out = attend(taken[0], taken[1], taken[2], row, scaling=0.3)
        found.append((out, *torch.autograd.grad(out, taken, weight)))
    torch.testing.assert_close(*found, rtol=0, atol=2e-5)


@pytest.fixture
def in_one_call(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a model attend in one call, by the reference; returns the list of calls so far."""
    calls: list[int] = []

    def counted(*args: Any, enable_gqa: bool, **options: Any) -> torch.Tensor:
        calls.append(len(args[3]) - 1)
        return varlen_attn(*args, enable_gqa=enable_gqa, **options)

    def let(policy: Policy) -> list[int]:
        monkeypatch.setattr(KERNEL, counted)
        for layer in policy.model.model.language_model.layers:
            monkeypatch.setattr(layer.self_attn, ONE_CALL, True, raising=False)
        return calls

    return let


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_matches_its_segment_by_segment_result(
    each_policy: Policy, kind: str, in_one_call: Any
) -> None:
    rows = everything(each_policy)[kind]
    parameters = list(each_policy.model.parameters())

    def numbers() -> tuple[torch.Tensor, list[torch.Tensor]]:
        logprobs = torch.cat([torch.log_softmax(one, -1) for one in packed_logits(each_policy, rows)])
        loss = (logprobs[:, 5] * torch.linspace(-1, 2, len(logprobs))).sum()
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        return logprobs.detach(), [torch.zeros(1) if one is None else one for one in gradients]

    theirs, their_gradients = numbers()
    calls = in_one_call(each_policy)
    ours, our_gradients = numbers()
    assert len(calls) == len(each_policy.model.model.language_model.layers)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    largest = max(float(one.norm()) for one in their_gradients)
    for mine, wanted in zip(our_gradients, their_gradients, strict=True):
        assert float((mine - wanted).norm()) <= 3e-6 * max(float(wanted.norm()), 1e-2 * largest)


@torch.no_grad()
def test_decoding_after_a_single_call_is_unchanged(each_policy: Policy, in_one_call: Any) -> None:
    rows = ragged(each_policy)
    written = [words(each_policy, 5, seed) for seed in range(len(rows))]
    theirs = forwarded(each_policy, rows, written)
    calls = in_one_call(each_policy)
    torch.testing.assert_close(decoded(each_policy, rows, written), theirs, rtol=0, atol=2e-5)
    assert calls


@pytest.mark.slow
def test_a_single_call_works_with_adapters_and_checkpointing(tiny: Path, in_one_call: Any) -> None:
    policy = adapted(tiny)
    learnt = [parameter for parameter in policy.model.parameters() if parameter.requires_grad]
    batch = micro_batch(items(policy, 6), policy)
    forward = PolicyForward(policy.model, policy.chat).train()

    def gradients() -> tuple[torch.Tensor, ...]:
        found = forward(batch.packed, batch.predicting, batch.targets, 1).logprobs.sum()
        return torch.autograd.grad(found, learnt)

    wanted = gradients()
    calls = in_one_call(policy)
    torch.testing.assert_close(gradients(), wanted, rtol=1e-4, atol=1e-5)
    once = len(calls)
    checkpoint_activations(policy.model)
    torch.testing.assert_close(gradients(), wanted, rtol=1e-4, atol=1e-5)
    assert len(calls) == 3 * once  # forward, and again in the backward pass


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that there is a GPU; the kernel's self-test runs on the CPU with the reference."""
    monkeypatch.setattr("torch.backends.cuda.is_flash_attention_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(KERNEL, varlen_attn)
    monkeypatch.setattr(row_attention, "apart", lambda *given: apart.__wrapped__(*given[:-1], CPU))


def half(policy: Policy) -> Any:
    return copy.deepcopy(policy.model).to(torch.bfloat16)


def one_call(model: Any) -> list[bool]:
    return [getattr(layer.self_attn, ONE_CALL, False) for layer in model.model.language_model.layers]


@pytest.mark.usefixtures("on_gpu")
def test_a_gpu_attends_in_one_call_per_layer(each_policy: Policy) -> None:
    model = half(each_policy)
    assert place_row_attention(model, CUDA) == "one call per layer (torch.nn.attention.varlen)"
    assert all(one_call(model))
    assert all(one_call(copy.deepcopy(model)))
    assert not any(one_call(each_policy.model))


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("cpu", "the kernel is for GPUs, but this is cpu"),
        ("float32", "the kernel takes bfloat16, but the weights are float32"),
        ("old", "the kernel needs compute capability 8.0"),
        ("built without", "this torch was built without FlashAttention"),
        ("wide", "heads of the language model have 320 numbers"),
        ("earlier torch", "the varlen_attn of torch 2.9 takes no window_size"),
    ],
)
def test_unsupported_shapes_keep_separate_calls(
    change: str, why: str, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = half(policy)
    if change == "float32":
        model.float()
    if change == "old":
        monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: (7, 5))
    if change == "built without":
        monkeypatch.setattr("torch.backends.cuda.is_flash_attention_available", lambda: False)
    if change == "wide":
        model.model.language_model.layers[1].self_attn.head_dim = 320
    if change == "earlier torch":
        monkeypatch.setattr("torch.__version__", "2.9")
        monkeypatch.setattr(KERNEL, lambda query, key, value, *, scale: query)
    said = place_row_attention(model, CPU if change == "cpu" else CUDA)
    assert said == f"one call for each segment: {why}"
    assert not any(one_call(model))


@pytest.mark.usefixtures("on_gpu")
def test_a_kernel_that_shares_keys_implicitly_is_used(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def untold(*given: Any, scale: float, window_size: tuple[int, int]) -> torch.Tensor:
        return varlen_attn(*given, scale=scale, window_size=window_size, enable_gqa=True)

    monkeypatch.setattr(KERNEL, untold)
    model = half(policy)
    assert place_row_attention(model, CUDA) == "one call per layer (torch.nn.attention.varlen)"


def a_key_too_few(own: int, seen: int) -> int:
    return max(0, seen - own - 1)


def a_key_too_many(own: int, seen: int) -> int:
    return seen - own + 1


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("last", [top_left, a_key_too_few, a_key_too_many])
def test_a_kernel_with_another_mask_is_detected(
    last: Last, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = half(policy)
    monkeypatch.setattr(KERNEL, wrong := partial(varlen_attn, last=last))
    said = place_row_attention(model, CUDA)
    assert said.startswith("one call for each segment: tried on this device, both differ by ")
    assert not any(one_call(model))
    monkeypatch.setattr(KERNEL, varlen_attn)
    right = apart.__wrapped__(28, 4, 128, torch.bfloat16, CPU)
    monkeypatch.setattr(KERNEL, wrong)
    assert 2 * right < MOST < apart.__wrapped__(28, 4, 128, torch.bfloat16, CPU) / 2


@pytest.mark.usefixtures("on_gpu")
def test_a_kernel_that_returns_nan_is_detected(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    @wraps(varlen_attn)
    def nothing(*given: Any, **options: Any) -> torch.Tensor:
        return varlen_attn(*given, **options) * torch.nan

    monkeypatch.setattr(KERNEL, nothing)
    said = place_row_attention(half(policy), CUDA)
    assert said.startswith("one call for each segment: tried on this device, both differ by nan")


@pytest.mark.usefixtures("on_gpu")
def test_a_kernel_that_raises_is_detected(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    @wraps(varlen_attn)
    def refuse(*given: Any, **options: Any) -> torch.Tensor:
        raise RuntimeError("no kernel image is available for execution on the device\nCompile with …")

    monkeypatch.setattr(KERNEL, refuse)
    said = place_row_attention(half(policy), CUDA)
    assert said == (
        "one call for each segment: tried on this device, it failed: no kernel image is available for "
        "execution on the device"
    )


def test_the_kernel_test_runs_once_and_leaves_random_states_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*given: Any, enable_gqa: bool, **options: Any) -> torch.Tensor:
        calls.append(given)
        return varlen_attn(*given, enable_gqa=enable_gqa, **options)

    monkeypatch.setattr(KERNEL, counted)
    before = torch.random.get_rng_state()
    with torch.no_grad():
        found = {apart(6, 3, 16, torch.bfloat16, CPU) for _ in range(3)}
    assert len(found) == len(calls) == 1
    assert torch.equal(before, torch.random.get_rng_state())
    apart.cache_clear()


def test_policies_report_how_they_attend_within_rows(policy: Policy) -> None:
    assert policy.row_attention == "one call for each segment: the kernel is for GPUs, but this is cpu"
