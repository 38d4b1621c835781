"""Attention with one call for all stretches against one call per stretch.

Covers attention at the widths of both families' vision towers, over windows and pictures of many lengths;
towers of two layers; and attention at the widths of both language models over a row of segments with shared
prefixes. Values and gradients in bfloat16 by torch's varlen kernel and by scaled-dot-product attention are
compared with float32; forward and backward are timed, and for rows the memory is measured. A rehearsal covers
only rows, with a reference implementation of the kernel.
"""

import copy
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch.nn.functional import scaled_dot_product_attention

from tests.gpu.checks import Bar, Found, Place
from tests.models.kernel import KERNEL, varlen_attn
from vtune.models.attention import ONE_CALL, attention_in_one_call, layout, tree_attention
from vtune.models.batch import Pictures, image_features
from vtune.models.families import FAMILIES
from vtune.models.row_attention import MOST, apart, place_row_attention
from vtune.models.shape import shape_of
from vtune.models.tree import Segment
from vtune.models.varlen import NAME, _attend, place_vision_attention

HEADS = 16
WIDTHS = {"Qwen2.5-VL": 80, "Qwen3-VL": 72}
"""Width of a head of the vision tower."""
ROWS = {"Qwen2.5-VL-7B": (28, 4, 128), "Qwen3-VL-8B": (32, 8, 128)}
"""In the language model: query heads, key heads, and head width."""
TEXT = {
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1, "vocab_size": 1024,
    "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 128,
    "bos_token_id": 1, "eos_token_id": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [16, 24, 24]},
}  # fmt: skip
"""Config of a minimal language model, which is unused here."""
WORSE = 2.0
"""Allowed factor between the errors of one call and of many calls, which round in different order."""
ROUNDS = 10
DEVICE = torch.device("cuda", 0)

States = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def lengths() -> list[int]:
    """Lengths of a large picture's windows, some of them cut off, and of two whole pictures."""
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
    """The output, and the gradients of the three inputs, as float32."""
    given = [one.detach().requires_grad_() for one in states]
    found = attend(*given)
    gradients = torch.autograd.grad(found, given, weight.to(found.dtype))
    return [one.float() for one in (found.detach(), *gradients)]


def distances(found: list[torch.Tensor], truth: list[torch.Tensor]) -> list[float]:
    """Relative distance for each."""
    return [float((one - true).norm() / true.norm()) for one, true in zip(found, truth, strict=True)]


def finished(states: torch.Tensor) -> None:
    """Wait until they are computed."""
    if states.is_cuda:
        torch.cuda.synchronize()


def gigabytes(attend: Callable[..., torch.Tensor], states: States, weight: torch.Tensor) -> float | None:
    """Peak memory beyond the inputs; None without a GPU."""
    if not weight.is_cuda:
        return None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with_gradients(attend, states, weight)
    return (torch.cuda.max_memory_allocated() - before) / 1e9


def milliseconds(attend: Callable[..., torch.Tensor], states: States, weight: torch.Tensor) -> float:
    with_gradients(attend, states, weight)
    finished(weight)
    began = time.monotonic()
    for _ in range(ROUNDS):
        with_gradients(attend, states, weight)
    finished(weight)
    return (time.monotonic() - began) / ROUNDS * 1000


def check_kernel(width: int) -> dict[str, Any]:
    torch.manual_seed(0)
    total = sum(lengths())
    wide = [torch.randn(1, HEADS, total, width, device=DEVICE) for _ in range(3)]
    states: Any = [one.bfloat16() for one in wide]
    weight = torch.randn(1, total, HEADS, width, device=DEVICE).bfloat16()
    truth = with_gradients(many_calls, tuple(one.float() for one in states), weight.float())  # type: ignore[arg-type]
    return {
        "one_call": distances(with_gradients(one_call, states, weight), truth),
        "many_calls": distances(with_gradients(many_calls, states, weight), truth),
        "one_call_ms": milliseconds(one_call, states, weight),
        "many_calls_ms": milliseconds(many_calls, states, weight),
    }


def row(groups: int, prompt: int, own: int) -> list[Segment]:
    """A row of prompts with eight conversations each; half of these share some further tokens."""
    found: list[Segment] = []
    for group in range(groups):
        top = len(found)
        found.append(Segment(8 * group, 0, prompt, ()))
        found.append(Segment(8 * group, prompt, prompt + own // 4, (top,)))
        for number in range(8):
            above = (top, top + 1) if number % 2 else (top,)
            start = found[above[-1]].end
            found.append(Segment(8 * group + number, start, start + own + number * own // 16, above))
    return found


def check_row(shape: tuple[int, int, int], segments: list[Segment], device: torch.device) -> dict[str, Any]:
    torch.manual_seed(0)
    heads, key_heads, width = shape
    total = sum(segment.end - segment.start for segment in segments)
    wide = [torch.randn(1, count, total, width, device=device) for count in (heads, key_heads, key_heads)]
    states: Any = tuple(one.bfloat16() for one in wide)
    weight = torch.randn(1, total, heads, width, device=device).bfloat16()
    laid_out = layout(segments, device)
    one, many = (
        partial(attend, layout=laid_out, scaling=width**-0.5)
        for attend in (attention_in_one_call, tree_attention)
    )
    truth = with_gradients(many, tuple(one.float() for one in states), weight.float())  # type: ignore[arg-type]
    return {
        "tokens": total,
        "seen": len(laid_out.seen.places),
        "tried_at_start": apart(*shape, torch.bfloat16, device),
        "one_call": distances(with_gradients(one, states, weight), truth),
        "many_calls": distances(with_gradients(many, states, weight), truth),
        "one_call_ms": milliseconds(one, states, weight),
        "many_calls_ms": milliseconds(many, states, weight),
        "one_call_gb": gigabytes(one, states, weight),
        "many_calls_gb": gigabytes(many, states, weight),
    }


def check_rows(device: torch.device, *, tiny: bool) -> dict[str, dict[str, Any]]:
    """32 thousand tokens in 64 conversations, as in a micro-batch; few in a rehearsal."""
    segments = row(1, 40, 16) if tiny else row(8, 1000, 300)
    return {name: check_row(shape, segments, device) for name, shape in ROWS.items()}


def check_tower(name: str) -> dict[str, Any]:
    """A family's vision tower at published width, with two layers."""
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
    said = [place_vision_attention(ours, family, DEVICE), place_row_attention(ours, DEVICE)]
    layers = ours.model.language_model.layers
    return {
        "said": said,
        "chosen": ours.model.visual.config._attn_implementation == NAME
        and all(getattr(layer.self_attn, ONE_CALL, False) for layer in layers),
        "one_call": distances(run(ours), truth),
        "many_calls": distances(many, truth),
    }


def check(place: Place) -> Found:
    """The single call is used on this GPU, and its error is at most twice that of many calls."""
    kernels: dict[str, dict[str, Any]] = {}
    towers: dict[str, dict[str, Any]] = {}
    if place.tiny:
        with patch(KERNEL, varlen_attn):
            rows = check_rows(torch.device("cpu"), tiny=True)
    else:
        rows = check_rows(DEVICE, tiny=False)
        kernels = {name: check_kernel(width) for name, width in WIDTHS.items()}
        towers = {name: check_tower(name) for name in ("qwen2_5_vl", "qwen3_vl")}
    bars = [
        Bar(what=f"{name}: one call chosen", value=float(found["chosen"]), at_least=1)
        for name, found in towers.items()
    ]
    bars += [
        Bar(what=f"{name}: both ways apart at the start", value=found["tried_at_start"], at_most=MOST)
        for name, found in rows.items()
    ]
    for name, found in {**kernels, **towers, **rows}.items():
        ratios = [mine / theirs for mine, theirs in zip(found["one_call"], found["many_calls"], strict=True)]
        bars.append(Bar(what=f"{name}: error, by that of many calls", value=max(ratios), at_most=WORSE))
    return Found(bars=bars, figures={"kernels": kernels, "towers": towers, "rows": rows})
