"""Attention within pictures and their windows, all in one call on a GPU.

Towers of transformers that take pictures one after another attend within each stretch by itself. With
scaled-dot-product attention that is a loop in Python, over a thousand windows in each layer of Qwen2.5-VL;
with an implementation whose name has "flash" in it, it is one call. Ours is torch's own kernel for stretches
of different lengths, under such a name: nothing has to be installed for it.
"""

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from vtune.models.families.family import Family

NAME = "vtune_flash_varlen"
"""In the table of attention functions of transformers; "flash" in it is what the towers look for."""
CAPABILITY = (8, 0)
"""Ampere: what FlashAttention's kernels, which torch brings along, are made for."""
WIDEST = 256
"""Numbers of a head, at most, by the same kernels; a multiple of 8."""


def place_vision_attention(model: Any, family: "Family", device: torch.device) -> str:
    """Choose how a model's vision tower attends where it will compute, and let it.

    Args:
        model: A transformers `…ForConditionalGeneration`; its weights may lie anywhere.
        family: Of the model.
        device: Where it will compute.

    Returns:
        What was chosen, and where it is not one call, why, for the log.
    """
    obstacle = _obstacle(model, family, device)
    if obstacle is not None:
        return f"one call for each picture or window: {obstacle}"
    use_varlen_attention(model, family)
    return "one call per layer (torch.nn.attention.varlen)"


def use_varlen_attention(model: Any, family: "Family") -> None:
    """Let the vision tower of a `ragged_vision` family attend within all its stretches in one call.

    Weights, names and what is saved stay.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _attend)
    copies: dict[int, tuple[Any, Any]] = {}
    for module in _tower(model, family):
        # The model's own configuration stays: from it transformers makes other models, and would look for a
        # package of this name.
        given = module.config
        _, module.config = copies.setdefault(id(given), (given, copy.copy(given)))
        module.config._attn_implementation = NAME


def _obstacle(model: Any, family: "Family", device: torch.device) -> str | None:
    """Why one call will not do."""
    if device.type == "cuda" and not family.ragged_vision:
        return "the family does not say ragged_vision"
    dtype = next(model.parameters()).dtype
    widths = (module.config.hidden_size // module.config.num_heads for module in _tower(model, family))
    return kernel_obstacle(device, dtype, widths, of="the vision tower")


def kernel_obstacle(
    device: torch.device, dtype: torch.dtype, widths: Iterable[int], *, of: str
) -> str | None:
    """Why torch's kernel for stretches of different lengths will not do.

    Args:
        device: Where it would compute.
        dtype: Of the weights.
        widths: Numbers of a head; not asked for where there is no GPU.
        of: What has these heads.
    """
    if device.type != "cuda":
        return f"the kernel is for GPUs, and this is {device.type}"
    if dtype not in (torch.bfloat16, torch.float16):
        return f"the kernel takes bfloat16, and the weights are {str(dtype).removeprefix('torch.')}"
    for width in widths:
        if width % 8 or width > WIDEST:
            return f"heads of {of} have {width} numbers"
    if not torch.backends.cuda.is_flash_attention_available():
        return "this torch was built without FlashAttention"
    if torch.cuda.get_device_capability(device) < CAPABILITY:
        return f"the kernel needs compute capability {CAPABILITY[0]}.{CAPABILITY[1]}"
    return None


def _tower(model: Any, family: "Family") -> list[Any]:
    """The modules of the vision tower that look into a configuration."""
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
    """Attention as a vision tower of transformers calls it.

    Args:
        module: Of the layer.
        query: (1, H, T, D).
        key: (1, H, T, D).
        value: (1, H, T, D).
        attention_mask: None: stretches see all of themselves.
        scaling: Of the scores.
        cu_seq_lens_q: int32, (stretches + 1,): where each begins, and T.
        max_length_q: Of the longest.

    Returns:
        (1, T, H, D), and no weights.
    """
    # Here, for it loads torch's compiler: a second, at each start of a command.
    from torch.nn.attention.varlen import varlen_attn

    query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))
    begins, longest = cu_seq_lens_q, max_length_q
    found: Any = varlen_attn(query, key, value, begins, begins, longest, longest, scale=scaling)
    return found[None], None
