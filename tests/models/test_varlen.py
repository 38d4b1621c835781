"""The vision tower with all stretches in one call, compared with the stock one, and when this is used."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models.kernel import KERNEL, varlen_attn
from tests.models.test_fused import stock_copy
from vtune.models.batch import Pictures, image_features
from vtune.models.families import FAMILIES
from vtune.models.policy import Policy, plain_shapes, save_policy
from vtune.models.shape import shape_of
from vtune.models.varlen import NAME, place_vision_attention, use_varlen_attention

CUDA = torch.device("cuda", 0)


def pictures_of(policy: Policy) -> Pictures:
    """Noise pictures with several windows, some of them partial."""
    grids = torch.tensor([(1, 20, 12), (1, 8, 8), (1, 10, 6)])
    width = shape_of(policy.model.config.to_dict()).patch_values
    noise = torch.randn(int(grids.prod(1).sum()), width, generator=torch.Generator().manual_seed(0))
    return Pictures(noise, grids, (0, 1, 2), torch.Tensor.float)


STRETCHES = {"qwen2_5_vl": [6 + 1 + 2, 3], "qwen3_vl": [3, 3]}
"""Stretches per layer for those pictures: windows of 8 x 8 patches and pictures, or only pictures."""


def windowed(policy: Policy) -> Policy:
    """A stock copy; with windows, only the last layer sees whole pictures."""
    found = stock_copy(policy)
    tower = found.model.model.visual
    if hasattr(tower, "fullatt_block_indexes"):
        tower.fullatt_block_indexes = [1]
    return found


def test_features_and_gradients_match_the_stock_tower(
    each_policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def counted(*args: Any, **options: Any) -> torch.Tensor:
        calls.append(len(args[3]) - 1)
        return varlen_attn(*args, **options)

    monkeypatch.setattr(KERNEL, counted)
    ours, theirs = windowed(each_policy), windowed(each_policy)
    use_varlen_attention(ours.model, ours.family)
    found = []
    for policy in (ours, theirs):
        features = image_features(policy.model, pictures_of(policy))
        assert features is not None
        out = torch.cat(features["image"].pooler_output)
        loss = (out * torch.linspace(-1, 1, out.shape[1])).sum()
        weights = [p for name, p in policy.model.named_parameters() if "visual.blocks" in name]
        found.append((out.detach(), torch.autograd.grad(loss, weights)))
    (mine, my_gradients), (wanted, their_gradients) = found
    torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=1e-5)
    largest = max(float(gradient.norm()) for gradient in their_gradients)
    for ours_, theirs_ in zip(my_gradients, their_gradients, strict=True):
        torch.testing.assert_close(ours_, theirs_, rtol=1e-4, atol=1e-6 * largest)
    assert calls == STRETCHES[each_policy.model.config.model_type]


def test_weights_and_saved_files_are_unchanged(policy: Policy, tiny: Path, tmp_path: Path) -> None:
    ours = stock_copy(policy)
    use_varlen_attention(ours.model, ours.family)
    assert ours.model.model.visual.config._attn_implementation == NAME
    assert policy.model.model.visual.config._attn_implementation == "sdpa"
    assert ours.model.model.language_model.config._attn_implementation == "sdpa"
    assert plain_shapes(ours) == plain_shapes(policy)
    save_policy(ours.model, str(tiny), tmp_path)
    assert NAME not in (tmp_path / "config.json").read_text()


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.backends.cuda.is_flash_attention_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: (9, 0))


def half(policy: Policy) -> Any:
    return copy.deepcopy(policy.model).to(torch.bfloat16)


@pytest.mark.usefixtures("on_gpu")
def test_on_a_gpu_the_tower_makes_one_call_per_layer(each_policy: Policy) -> None:
    model = half(each_policy)
    said = place_vision_attention(model, each_policy.family, CUDA)
    assert said == "one call per layer (torch.nn.attention.varlen)"
    assert model.model.visual.config._attn_implementation == NAME


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("cpu", "the kernel is for GPUs, but this is cpu"),
        ("float32", "the kernel takes bfloat16, but the weights are float32"),
        ("old", "the kernel needs compute capability 8.0"),
        ("built without", "this torch was built without FlashAttention"),
        ("wide", "heads of the vision tower have 320 numbers"),
    ],
)
def test_unsupported_towers_keep_separate_calls(
    change: str, why: str, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = half(policy)
    device = torch.device("cpu") if change == "cpu" else CUDA
    if change == "float32":
        model.float()
    if change == "old":
        monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: (7, 5))
    if change == "built without":
        monkeypatch.setattr("torch.backends.cuda.is_flash_attention_available", lambda: False)
    if change == "wide":
        model.model.visual.config.hidden_size = 320 * model.model.visual.config.num_heads
    said = place_vision_attention(model, policy.family, device)
    assert said == f"one call for each picture or window: {why}"
    assert model.model.visual.config._attn_implementation == "sdpa"


def test_policies_report_how_their_towers_attend(policy: Policy) -> None:
    assert policy.vision_attention.endswith("this is cpu")
    assert all(family.ragged_vision for family in FAMILIES.values())
