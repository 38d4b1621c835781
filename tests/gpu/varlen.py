"""One call for all stretches against one call for each.

Attention of the widths of both families' vision towers, over windows and pictures of many lengths, and towers
of two layers: values and gradients in bfloat16 by torch's varlen kernel and by scaled-dot-product attention,
each against float32; and milliseconds of forward and backward.
"""

import copy
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from tests.gpu.checks import Bar, Found, Place
from vtune.models.batch import Pictures, image_features
from vtune.models.families import FAMILIES
from vtune.models.shape import shape_of
from vtune.models.varlen import NAME, _attend, place_vision_attention

HEADS = 16
WIDTHS = {"Qwen2.5-VL": 80, "Qwen3-VL": 72}
"""Of a head of the vision tower."""
TEXT = {
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1, "vocab_size": 1024,
    "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 128,
    "bos_token_id": 1, "eos_token_id": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [16, 24, 24]},
}  # fmt: skip
"""A language model that does nothing here."""
WORSE = 2.0
"""How much further from float32 one call may be than many; both round, in another order."""
ROUNDS = 10
DEVICE = torch.device("cuda", 0)

States = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def lengths() -> list[int]:
    """Windows of a large picture, among them cut ones, and two whole pictures."""
    return [64] * 400 + [32] * 40 + [16, 4] + [4096, 1020]


def one_call(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    sizes = torch.tensor([0, *lengths()], device=DEVICE)
    begins = sizes.cumsum(0, dtype=torch.int32)
    scale = query.shape[-1] ** -0.5
    found, _ = _attend(
        None, query, key, value, None, scaling=scale, cu_seq_lens_q=begins, max_length_q=max(lengths())
    )
    return found


def many_calls(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    pieces = [torch.split(states, lengths(), dim=2) for states in (query, key, value)]
    found = [scaled_dot_product_attention(*one) for one in zip(*pieces, strict=True)]
    return torch.cat(found, dim=2).transpose(1, 2)


def with_gradients(
    attend: Callable[..., torch.Tensor], states: States, weight: torch.Tensor
) -> list[torch.Tensor]:
    """What is found, and the gradients of the three, float32."""
    given = [one.detach().requires_grad_() for one in states]
    found = attend(*given)
    gradients = torch.autograd.grad(found, given, weight.to(found.dtype))
    return [one.float() for one in (found.detach(), *gradients)]


def apart(found: list[torch.Tensor], truth: list[torch.Tensor]) -> list[float]:
    """Relative distance of each."""
    return [float((one - true).norm() / true.norm()) for one, true in zip(found, truth, strict=True)]


def milliseconds(attend: Callable[..., torch.Tensor], states: States, weight: torch.Tensor) -> float:
    with_gradients(attend, states, weight)
    torch.cuda.synchronize()
    began = time.monotonic()
    for _ in range(ROUNDS):
        with_gradients(attend, states, weight)
    torch.cuda.synchronize()
    return (time.monotonic() - began) / ROUNDS * 1000


def check_kernel(width: int) -> dict[str, Any]:
    torch.manual_seed(0)
    total = sum(lengths())
    wide = [torch.randn(1, HEADS, total, width, device=DEVICE) for _ in range(3)]
    states: Any = [one.bfloat16() for one in wide]
    weight = torch.randn(1, total, HEADS, width, device=DEVICE).bfloat16()
    truth = with_gradients(many_calls, tuple(one.float() for one in states), weight.float())  # type: ignore[arg-type]
    return {
        "one_call": apart(with_gradients(one_call, states, weight), truth),
        "many_calls": apart(with_gradients(many_calls, states, weight), truth),
        "one_call_ms": milliseconds(one_call, states, weight),
        "many_calls_ms": milliseconds(many_calls, states, weight),
    }


def check_tower(name: str) -> dict[str, Any]:
    """A family's tower of two layers, as wide as published."""
    import transformers

    torch.manual_seed(0)
    family, hf = FAMILIES[name], transformers
    published = next(iter(family.sizes.values()))
    last = {"deepstack_visual_indexes": [1], "fullatt_block_indexes": [1]}
    vision = {**published["vision_config"], "depth": 2, "out_hidden_size": TEXT["hidden_size"], **last}
    config = hf.AutoConfig.for_model(name, text_config=TEXT, vision_config=vision)
    make: Any = hf.AutoModelForImageTextToText.from_config
    stock: Any = make(config, dtype=torch.float32).to(DEVICE)
    grids = torch.tensor([(1, 100, 76), (1, 38, 44)], device=DEVICE)
    patches = torch.randn(int(grids.prod(1).sum()), shape_of(config.to_dict()).patch_values, device=DEVICE)

    def run(model: Any) -> list[torch.Tensor]:
        features: Any = image_features(model, Pictures(patches, grids, (0, 1), torch.Tensor.float))
        out = torch.cat(features["image"].pooler_output).float()
        out.square().mean().backward()
        weights = [p for n, p in model.named_parameters() if "visual.blocks" in n]
        return [out.detach(), torch.cat([p.grad.float().flatten() for p in weights])]

    truth = run(copy.deepcopy(stock))
    many = run(copy.deepcopy(stock).bfloat16())
    ours = copy.deepcopy(stock).bfloat16()
    said = place_vision_attention(ours, family, DEVICE)
    return {
        "said": said,
        "chosen": ours.model.visual.config._attn_implementation == NAME,
        "one_call": apart(run(ours), truth),
        "many_calls": apart(many, truth),
    }


def check(place: Place) -> Found:
    """The one call is chosen on this GPU, and not further from float32 than twice the many are."""
    kernels = {name: check_kernel(width) for name, width in WIDTHS.items()}
    towers = {name: check_tower(name) for name in ("qwen2_5_vl", "qwen3_vl")}
    bars = [
        Bar(what=f"{name}: one call chosen", value=float(row["chosen"]), at_least=1)
        for name, row in towers.items()
    ]
    for name, row in {**kernels, **towers}.items():
        ratios = [mine / theirs for mine, theirs in zip(row["one_call"], row["many_calls"], strict=True)]
        bars.append(Bar(what=f"{name}: error, by that of many calls", value=max(ratios), at_most=WORSE))
    return Found(bars=bars, figures={"kernels": kernels, "towers": towers})
