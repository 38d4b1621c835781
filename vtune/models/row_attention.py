"""Attention for rows of segments: all segments of a layer in one call, or one call per segment.

The one-call kernel is tried first on the device that will compute. Kernels differ in what "causal" means when
a segment sees more keys than it has queries, and a wrong meaning would train without an error.
"""

import functools
import inspect
from typing import Any

import torch

from vtune.models.attention import ONE_CALL, Layout, attention_in_one_call, layout, tree_attention
from vtune.models.tree import Segment
from vtune.models.varlen import kernel_obstacle

MOST = 0.02
"""Largest allowed relative difference between both ways: five roundings of bfloat16. On a CPU they differ by
0.007, and by 0.06 if each query misses one key."""
TRIED = (
    Segment(0, 0, 130, ()),
    Segment(0, 130, 131, (0,)),
    Segment(0, 130, 150, (0,)),
    Segment(0, 150, 190, (0, 2)),
    Segment(0, 150, 215, (0, 2)),
    Segment(0, 0, 40, ()),
    Segment(0, 40, 110, (5,)),
)
"""A row on which to try both ways: shared prefixes, and lengths around the kernel's block sizes."""


def place_row_attention(model: Any, device: torch.device) -> str:
    """Choose how a model's language model computes attention within rows, and set it up.

    Args:
        model: A transformers `…ForConditionalGeneration`; its weights may be on any device.
        device: The device that it will run on.

    Returns:
        What was chosen and, if it is not one call, the reason, for the log.
    """
    obstacle = _obstacle(model, device)
    if obstacle is not None:
        return f"one call for each segment: {obstacle}"
    use_one_call(model)
    return "one call per layer (torch.nn.attention.varlen)"


def use_one_call(model: Any) -> None:
    """Make a model's language model compute attention within all segments of a row in one call."""
    for layer in model.model.language_model.layers:
        setattr(layer.self_attn, ONE_CALL, True)


def _obstacle(model: Any, device: torch.device) -> str | None:
    """Why one call cannot be used."""
    modules = [layer.self_attn for layer in model.model.language_model.layers]
    dtype = next(model.parameters()).dtype
    widths = (module.head_dim for module in modules)
    obstacle = kernel_obstacle(device, dtype, widths, of="the language model")
    if obstacle is not None:
        return obstacle
    # Imported here, since it loads torch's compiler, which would add a second to the start of each command.
    from torch.nn.attention.varlen import varlen_attn

    if "window_size" not in inspect.signature(varlen_attn).parameters:
        return f"the varlen_attn of torch {torch.__version__} takes no window_size"
    shapes = {
        (m.q_proj.out_features // m.head_dim, m.k_proj.out_features // m.head_dim, m.head_dim)
        for m in modules
    }
    for heads, key_heads, width in sorted(shapes):
        try:
            found = apart(heads, key_heads, width, dtype, device)
        except (
            RuntimeError
        ) as error:  # a kernel that does not support these shapes, or was not built for this GPU
            return f"tried on this device, it failed: {str(error).strip().partition(chr(10))[0]}"
        if not found <= MOST:
            return f"tried on this device, both differ by {found:.2g} of their values ({MOST:.2g} at most)"
    return None


@functools.cache
def apart(heads: int, key_heads: int, width: int, dtype: torch.dtype, device: torch.device) -> float:
    """Largest relative difference between one call and a call per segment, in values and gradients.

    Tried once per process, on a small row of random numbers.

    Args:
        heads: Number of query heads.
        key_heads: Number of heads of keys and values.
        width: Size of a head.
        dtype: Type of the states.
        device: The device to try it on.
    """
    drawn = torch.Generator().manual_seed(0)
    tokens = sum(segment.end - segment.start for segment in TRIED)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=drawn).to(device, dtype)

    states = [random(1, number, tokens, width) for number in (heads, key_heads, key_heads)]
    weight, row = random(1, tokens, heads, width), layout(TRIED, device)
    one, many = (_tried(attend, states, weight, row) for attend in (attention_in_one_call, tree_attention))
    # The maximum over a tensor, which propagates NaN.
    return float(torch.stack([(a - b).norm() / b.norm() for a, b in zip(one, many, strict=True)]).max())


def _tried(attend: Any, states: list[torch.Tensor], weight: torch.Tensor, row: Layout) -> list[torch.Tensor]:
    """The output, and the gradients of the three inputs, float32."""
    with torch.enable_grad():
        given = [one.clone().requires_grad_() for one in states]
        found = attend(*given, row, scaling=states[0].shape[-1] ** -0.5)
        gradients = torch.autograd.grad(found, given, weight)
    return [one.float() for one in (found.detach(), *gradients)]
