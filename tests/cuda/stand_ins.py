"""Replacements for what a device without values cannot do: read a value, and choose a kernel.

Everything here replaces a function that would read a tensor, or that needs a CUDA build of torch. What is
replaced is not checked; the page of the tests says so.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional
from torch._subclasses.fake_tensor import unset_fake_temporarily
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl
from transformers.models.qwen3_vl import modeling_qwen3_vl
from transformers.utils.generic import get_max_seqlen

from tests.cuda.model import CUDA
from vtune.models import attention, fused, sequence_parallel
from vtune.models.sequence_parallel import SequenceGroup, Stretches, even
from vtune.update import forward

MODULES: tuple[ModuleType, ...] = (modeling_qwen2_5_vl, modeling_qwen3_vl)
INDICES = (
    "get_vision_position_ids",
    "get_vision_window_index",
    "get_vision_interpolation_indices_and_weights",
    "get_vision_attention_seqlens",
)
"""Functions of transformers that compute indices from the values of the pictures' grids."""
ORDER = ("get_vision_window_index", 0)
"""(function, number of output) that stays on the host wherever the grids are: the window order of patches."""
HOST = torch.device("cpu")


def flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Attention by the kernel that a CUDA build chooses if the mask only names a shape."""
    if attn_mask is not None and type(attn_mask).__name__ != "CausalBias":
        raise AssertionError("a mask with numbers rules out the flash kernel")
    op = torch.ops.aten._scaled_dot_product_flash_attention
    found: torch.Tensor = op(
        query, key, value, dropout_p, is_causal or attn_mask is not None, False, scale=scale
    )[0]
    return found


@torch.library.custom_op("vtune_tests::rms_norm", mutates_args=())
def rms_norm(states: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The kernel of a CUDA build for `torch.nn.functional.rms_norm`: states, and 1 / root mean square."""
    raise AssertionError("nothing is computed here")


@rms_norm.register_fake
def _(states: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(states), states.new_empty((*states.shape[:-1], 1), dtype=torch.float32)


@torch.library.custom_op("vtune_tests::rms_norm_backward", mutates_args=())
def rms_norm_backward(
    gradient: torch.Tensor, states: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Its backward: gradients of states and weight."""
    raise AssertionError("nothing is computed here")


@rms_norm_backward.register_fake
def _(
    gradient: torch.Tensor, states: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(states), torch.empty_like(weight)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs, output[1])


def _back(ctx: Any, gradient: torch.Tensor, _: Any) -> tuple[torch.Tensor, torch.Tensor]:
    found: tuple[torch.Tensor, torch.Tensor] = rms_norm_backward(gradient, *ctx.saved_tensors)
    return found


rms_norm.register_autograd(_back, setup_context=_keep)


def on_host(name: str, function: Callable[..., Any], *, varlen: bool) -> Callable[..., Any]:
    """Wrap a function of grids: computed with real values, it returns fake tensors on the proper device.

    If each stretch is a separate call (not `varlen`), lengths are read on the host and keep their values
    there.
    """

    def empty(found: Any, number: int = 0) -> Any:
        if isinstance(found, tuple | list):
            return tuple(empty(one, number) for number, one in enumerate(found))
        if not isinstance(found, torch.Tensor):
            return found
        if found.dtype == torch.int32 and not varlen:
            with unset_fake_temporarily():
                return found.numpy()
        device = HOST if (name, number) == ORDER else CUDA
        made: Any = torch.empty(found.shape, dtype=found.dtype, device=device)
        made.numbers = found
        return made

    def call(grids: Any, *args: Any, **rest: Any) -> Any:
        with unset_fake_temporarily():
            found = function(torch.from_numpy(grids), *args, **rest)
        return empty(found)

    return call


def longest(lengths: Any, config: Any, kwargs: Any = None, kwarg_name: str = "max_seqlen") -> int | None:
    """`get_max_seqlen`, computed from the real values."""
    if isinstance(lengths, np.ndarray):
        return None
    with unset_fake_temporarily():
        found: int | None = get_max_seqlen(lengths.numbers, config, kwargs, kwarg_name)
    return found


def features_laid_out(
    self: Any, hidden: torch.Tensor, places: torch.Tensor, features: torch.Tensor
) -> torch.Tensor:
    """Qwen3-VL's `_deepstack_process` with known positions: those of a mask would have to be read."""
    index = torch.empty(len(features), dtype=torch.long, device=hidden.device)
    added = hidden[:, index] + features.to(hidden.dtype)
    return hidden.index_copy(1, index, added)


def fetched(
    states: torch.Tensor, owners: torch.Tensor, _: torch.Tensor, counts: Sequence[int], group: SequenceGroup
) -> torch.Tensor:
    """`fetched`, as if this GPU sent as many states to the others as it receives."""
    count = counts[group.index]
    sent = states.index_select(0, torch.empty(count, dtype=torch.long, device=states.device))
    parts = even(count, group.size)
    got = sequence_parallel._exchanged(sent, parts, parts, group)
    return got.index_select(0, torch.empty(count, dtype=torch.long, device=states.device))


def placeholders(input_ids: torch.Tensor, _: int, row: Stretches) -> list[int]:
    """`placeholders`, as if each stretch consisted only of placeholders."""
    return list(row.lengths)


@contextmanager
def without_numbers(*, varlen: bool) -> Iterator[None]:
    """Replace the functions that read tensors."""
    mask = attention._mask

    def named(own: int, seen: int, device: torch.device) -> Any:
        with unset_fake_temporarily():
            return mask(own, seen, device)

    changes: list[tuple[Any, str, Any]] = [
        (attention, "_mask", named),
        # This torch was built without CUDA.
        (forward, "logits_at_once", lambda: forward.GPU_CHUNK),
        (fused, "_fused_norm", lambda states, weight, _: rms_norm(states, weight)[0]),
        (attention, "scaled_dot_product_attention", flash),
        (torch.nn.functional, "scaled_dot_product_attention", flash),
        # Nothing is sent: there are no other GPUs.
        (torch.distributed, "all_to_all_single", lambda *_, **__: None),
        (sequence_parallel, "fetched", fetched),
        (forward, "fetched", fetched),
        (sequence_parallel, "placeholders", placeholders),
        (modeling_qwen3_vl.Qwen3VLTextModel, "_deepstack_process", features_laid_out),
    ]
    for module in MODULES:
        changes.append((module, "torch_compilable_check", lambda *_: None))
        changes += [
            (module, name, on_host(name, getattr(module, name), varlen=varlen))
            for name in INDICES
            if hasattr(module, name)
        ]
        if hasattr(module, "get_max_seqlen"):
            changes.append((module, "get_max_seqlen", longest))
    started = [patch.object(where, name, new) for where, name, new in changes]
    for one in started:
        one.start()
    try:
        yield
    finally:
        for one in started:
            one.stop()
