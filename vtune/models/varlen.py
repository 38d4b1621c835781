"""Attention within pictures and their windows, all in one call on a GPU.

Transformers' vision towers that take several pictures at once attend within each stretch separately. With
scaled-dot-product attention that is a Python loop, over a thousand windows in each layer of Qwen2.5-VL; with
an implementation whose name contains "flash", it is one call. Ours is torch's own kernel for stretches of
different lengths, registered under such a name: nothing has to be installed for it.
"""

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from vtune.models.families.family import Family

NAME = "vtune_flash_varlen"
"""Key in the attention functions of transformers; the towers look for "flash" in it."""
CAPABILITY = (8, 0)
"""Ampere, required by the FlashAttention kernels that come with torch."""
WIDEST = 256
"""Largest head size of the same kernels; it must be a multiple of 8."""


def place_vision_attention(model: Any, family: "Family", device: torch.device) -> str:
    """Choose how a model's vision tower computes attention, and set it up.

    Args:
        model: A transformers `…ForConditionalGeneration`; its weights may be on any device.
        family: The model's family.
        device: The device that it will run on.

    Returns:
        What was chosen and, if it is not one call, the reason, for the log.
    """
    obstacle = _obstacle(model, family, device)
    if obstacle is not None:
        return f"one call for each picture or window: {obstacle}"
    use_varlen_attention(model, family)
    return "one call per layer (torch.nn.attention.varlen)"


def use_varlen_attention(model: Any, family: "Family") -> None:
    """Make the vision tower of a `ragged_vision` family compute attention within all stretches in one call.

    Weights, names and saved files are unchanged.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _attend)
    copies: dict[int, tuple[Any, Any]] = {}
    for module in _tower(model, family):
        # The model's own configuration stays: transformers creates other models from it, and would look for a
        # package of this name.
        given = module.config
        _, module.config = copies.setdefault(id(given), (given, copy.copy(given)))
        module.config._attn_implementation = NAME


def _obstacle(model: Any, family: "Family", device: torch.device) -> str | None:
    """Why one call cannot be used."""
    if device.type == "cuda" and not family.ragged_vision:
        return "the family does not set ragged_vision"
    dtype = next(model.parameters()).dtype
    widths = (module.config.hidden_size // module.config.num_heads for module in _tower(model, family))
    return kernel_obstacle(device, dtype, widths, of="the vision tower")


def kernel_obstacle(
    device: torch.device, dtype: torch.dtype, widths: Iterable[int], *, of: str
) -> str | None:
    """Why torch's kernel for stretches of different lengths cannot be used.

    Args:
        device: The device that would compute.
        dtype: Type of the weights.
        widths: Head sizes; not read if there is no GPU.
        of: What has these heads, for the message.
    """
    if device.type != "cuda":
        return f"the kernel is for GPUs, but this is {device.type}"
    if dtype not in (torch.bfloat16, torch.float16):
        return f"the kernel takes bfloat16, but the weights are {str(dtype).removeprefix('torch.')}"
    for width in widths:
        if width % 8 or width > WIDEST:
            return f"heads of {of} have {width} numbers"
    if not torch.backends.cuda.is_flash_attention_available():
        return "this torch was built without FlashAttention"
    if torch.cuda.get_device_capability(device) < CAPABILITY:
        return f"the kernel needs compute capability {CAPABILITY[0]}.{CAPABILITY[1]}"
    return None


def _tower(model: Any, family: "Family") -> list[Any]:
    """The modules of the vision tower that read a configuration."""
    return [
        module
        for name, module in model.named_modules()
        if family.vision.search(f"{name}.") and hasattr(module, "config")
    ]


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    cu_seq_lens_q: torch.Tensor,
    max_length_q: int,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention with the interface of a transformers vision tower.

    Args:
        module: The layer's module.
        query: (1, H, T, D).
        key: (1, H, T, D).
        value: (1, H, T, D).
        attention_mask: None: within a stretch, all tokens see each other.
        scaling: Factor for the scores.
        cu_seq_lens_q: int32, (stretches + 1,): the start of each stretch, and T.
        max_length_q: Length of the longest stretch.

    Returns:
        (1, T, H, D), and no weights.
    """
    # Imported here, since it loads torch's compiler, which would add a second to the start of each command.
    from torch.nn.attention.varlen import varlen_attn

    query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))
    begins, longest = cu_seq_lens_q, max_length_q
    found: Any = varlen_attn(query, key, value, begins, begins, longest, longest, scale=scaling)
    return found[None], None
