"""Models of published widths on the fake CUDA device, and their micro-batch."""

import json
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import transformers
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from vtune.models.batch import Row
from vtune.models.families import FAMILIES
from vtune.models.families.family import Family
from vtune.models.families.qwen import looked_up
from vtune.models.families.shape import Shape
from vtune.models.fused import use_fused_modules
from vtune.models.pictures import Pixels
from vtune.models.row_attention import use_one_call
from vtune.models.shape import known_shapes, shape_of
from vtune.models.varlen import use_varlen_attention

CUDA = torch.device("cuda", 0)
IMAGE, SIZE = 151655, 151665
"""In Qwen's tokenizer: the id of the image placeholder, and the number of tokens."""
SECTIONS = {"qwen2_5_vl": [16, 24, 24], "qwen3_vl": [24, 20, 20]}
"""Rotary pairs of a head for time, height and width (`mrope_section` in the models' `config.json`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The configuration of one measurement."""

    name: str
    """Name of a known model."""
    layers: int | None = None
    """Layers of the language model; None: all."""
    depth: int | None = None
    """Layers of the vision tower, the last of which sees whole pictures; None: all, as published."""
    groups: int = 2
    """Number of prompts, each with eight conversations."""
    side: int = 128
    """Patches per side of a prompt's picture; a conversation's crop has half."""
    varlen: bool = True
    """Whether a layer makes one attention call for all windows (tower) or segments (language model)."""
    checkpointing: bool = True
    shared: int = 1
    """Number of GPUs that share the row; this is the first."""
    frozen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Build:
    """A model with fake weights."""

    model: Any
    family: Family
    shape: Shape


def build(case: Case, mode: FakeTensorMode) -> Build:
    """The model of a case in bfloat16, as `load_policy` returns it."""
    values = json.loads(json.dumps(known_shapes()[case.name]))
    kind = values["model_type"]
    family = FAMILIES[kind]
    text, vision = values["text_config"], values["vision_config"]
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": SECTIONS[kind]}
    text["rope_parameters"] = rope | ({"mrope_interleaved": True} if kind == "qwen3_vl" else {})
    if case.layers is not None:
        text["num_hidden_layers"] = case.layers
    if case.depth is not None:
        vision["depth"] = case.depth
        if kind == "qwen3_vl":
            # As many as published if there are enough layers: each has a separate merger.
            deep = len(vision["deepstack_visual_indexes"])
            vision["deepstack_visual_indexes"] = list(range(case.depth))[-deep:]
        else:
            vision["fullatt_block_indexes"] = [case.depth - 1]
    shape = shape_of(values)
    hf: Any = transformers
    config = hf.AutoConfig.for_model(**values, image_token_id=IMAGE)
    with torch.device("meta"):
        model = hf.AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16)
    use_fused_modules(model)
    if case.varlen:
        use_varlen_attention(model, family)
        use_one_call(model)
    for part in case.frozen:
        for name, parameter in model.named_parameters():
            if family.part_of(name) == part:
                parameter.requires_grad_(False)
    with mode:
        _move(model)
    return Build(model, family, shape)


def _move(model: nn.Module) -> None:
    """Move from `meta` to the GPU; tied weights stay tied."""
    done: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, old in module._parameters.items():
            if old is None:
                continue
            if id(old) not in done:
                empty = torch.empty(old.shape, dtype=old.dtype, device=CUDA)
                done[id(old)] = nn.Parameter(empty, requires_grad=old.requires_grad)
            module._parameters[name] = done[id(old)]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype, device=CUDA)


def conversations(case: Case, shape: Shape) -> tuple[list[Row], int]:
    """Rows, and the number of tokens in the loss; to be called under a `FakeTensorMode`.

    Each prompt (a picture and 300 words) has eight conversations; each generates 200 tokens, gets a crop of a
    quarter of the picture, and generates 200 more.
    """

    made = partial(looked_up, values=torch.empty(3 * 256, device=CUDA), frames=shape.temporal)

    def picture(side: int) -> Pixels:
        levels = torch.empty(side * side, 3, shape.patch**2, dtype=torch.uint8)
        return Pixels(levels, (1, side, side), (side // shape.merge) ** 2, "", made)

    rows = []
    for group in range(case.groups):
        shown = picture(case.side)
        for number in range(8):
            crop = picture(case.side // 2)
            ids = [7 + group] * 150 + [1] + [IMAGE] * shown.tokens + [2] + [9] * 150
            ids += [100 + group * 8 + number] + [11] * 199
            ids += [1] + [IMAGE] * crop.tokens + [2] * 20 + [12] * 200
            rows.append(Row(ids, [shown, crop]))
    return rows, len(rows) * 400


class Speech:
    """The part of a chat that `PolicyForward` needs: banned tokens and the vocabulary size."""

    banned_ids = (151643, 151644, 151652, 151653, 151654, IMAGE, 151656)
    image_id = IMAGE
    tokenizer = range(SIZE)
