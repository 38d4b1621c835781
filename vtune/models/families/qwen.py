"""What Qwen2.5-VL and Qwen3-VL have in common."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from PIL import Image

from vtune.models.families.family import Grid, TinyModel, Tokens

if TYPE_CHECKING:
    import torch

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
"""Qwen2.5-VL's special tokens, in its order."""

TOKENS = Tokens(
    opens="<|vision_start|>",
    image="<|image_pad|>",
    closes="<|vision_end|>",
    others=("<|video_pad|>", "<|vision_pad|>"),
    turn="<|im_start|>",
    marks="<|",
    inert=("|", "¦"),
)

VISION = re.compile(r"(?:^|\.)visual\.")
CONNECTOR = re.compile("merger")
LAYER = re.compile(r"\b(?:layers|blocks)\.(\d+)\.")
LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")

MAX_ASPECT = 100
"""A picture with a larger aspect ratio is padded with black: the processor refuses more than 200."""


class QwenProcessor:
    """Qwen2-VL's image processor.

    Its values depend only on channel and colour level, so levels are stored, in an eighth of the memory
    (values are float32, and each picture is two equal frames), and looked up when patches are needed.
    """

    def __init__(self, stock: Any) -> None:
        self.stock = stock
        self._values: dict[torch.device, torch.Tensor] = {}

    @property
    def side(self) -> int:
        """Side of a patch, in pixels."""
        return int(self.stock.patch_size)

    def levels(self, picture: Image.Image, least: int, most: int) -> "tuple[torch.Tensor, Grid, int]":
        """A picture's levels, (t·h·w, 3, pixels of a patch): see `PictureProcessor`."""
        import numpy as np
        import torch
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

        # The stock processor would lay them out as float32, and twice: that took longer than resizing.
        picture = _padded(picture)
        side, merge = self.stock.patch_size, self.stock.merge_size
        height, width = smart_resize(
            picture.height, picture.width, factor=side * merge, min_pixels=least, max_pixels=most
        )
        plane = np.asarray(picture.convert("RGB").resize((width, height), self.stock.resample))
        rows, columns = height // side, width // side
        cells = plane.reshape(rows // merge, merge, side, columns // merge, merge, side, 3)
        # In order: blocks that merge to a token, the patches in each, and channels and pixels in each patch.
        found = np.ascontiguousarray(cells.transpose(0, 3, 1, 4, 6, 2, 5)).reshape(rows * columns, 3, side**2)
        return torch.from_numpy(found), (1, rows, columns), rows * columns // merge**2

    def patches(self, levels: "torch.Tensor") -> "torch.Tensor":
        """The vision tower's input for levels, with exactly the values of the stock processor."""
        if levels.device not in self._values:
            self._values[levels.device] = self._table().to(levels.device)
        return looked_up(levels, self._values[levels.device], frames=self.stock.temporal_patch_size)

    def shown(self, levels: "torch.Tensor", grid: Grid) -> Image.Image:
        """The picture reassembled from its levels.

        Processing it again without resizing gives the same patches.
        """
        _, rows, columns = grid
        side, merge = self.stock.patch_size, self.stock.merge_size
        # The order of the levels: blocks that merge to a token, the patches in each, and channels and pixels
        # in each patch.
        cells = levels.reshape(rows // merge, columns // merge, merge, merge, 3, side, side)
        plane = cells.permute(0, 2, 5, 1, 3, 6, 4).reshape(rows * side, columns * side, 3)
        return Image.fromarray(plane.numpy())

    def _frame(self, picture: Image.Image, **how: Any) -> "tuple[torch.Tensor, Grid]":
        """Values of a picture, (t·h·w, 3, pixels of a patch), and its grid."""
        out = self.stock(images=[picture], return_tensors="pt", **how)
        t, h, w = (int(n) for n in out["image_grid_thw"][0])
        # A picture consists of two equal frames.
        frames = out["pixel_values"].unflatten(1, (3, self.stock.temporal_patch_size, -1))
        return frames[:, :, 0], (t, h, w)

    def _table(self) -> "torch.Tensor":
        """The value of each level in each channel, float32, (3 · 256,), from a picture that has them all."""
        import numpy as np
        import torch

        side = self.stock.patch_size * self.stock.merge_size
        ramp = Image.fromarray(np.tile(np.arange(256, dtype=np.uint8), (side, side))).convert("RGB")
        levels, _ = self._frame(ramp, do_resize=False, do_rescale=False, do_normalize=False)
        values, _ = self._frame(ramp, do_resize=False)
        table = torch.empty(3, 256)
        for channel in range(3):
            table[channel, levels[:, channel].long()] = values[:, channel].float()
        return table.flatten()


def looked_up(levels: "torch.Tensor", values: "torch.Tensor", *, frames: int) -> "torch.Tensor":
    """Patches that consist of equal frames.

    Args:
        levels: uint8, (patches, 3, pixels of a patch).
        values: Value of each level in each channel, (3 · 256,), on the levels' device.
        frames: Number of frames in a patch.

    Returns:
        (patches, 3 · frames · pixels of a patch).
    """
    index = levels.int()
    for channel in (1, 2):
        index[:, channel] += 256 * channel
    found = values.index_select(0, index.flatten()).view(levels.shape)
    return found[:, :, None].expand(-1, -1, frames, -1).flatten(1)


def _padded(picture: Image.Image) -> Image.Image:
    width, height = picture.size
    if max(width, height) <= MAX_ASPECT * min(width, height):
        return picture
    least = -(-max(width, height) // MAX_ASPECT)
    canvas = Image.new("RGB", (max(width, least), max(height, least)))
    canvas.paste(picture, (0, 0))
    return canvas


def inputs(
    token_ids: "torch.Tensor", image_id: int, patches: "torch.Tensor", grids: Sequence[Grid]
) -> "dict[str, torch.Tensor]":
    """Arguments of the stock forward pass for a conversation, besides its attention mask."""
    return {
        "input_ids": token_ids,
        "mm_token_type_ids": (token_ids == image_id).int(),
        "pixel_values": patches,
        "image_grid_thw": token_ids.new_tensor(grids),
    }


def named(generation: str) -> Callable[[str], bool | None]:
    """A function that says whether a name refers to this generation of Qwen, or (False) to another."""

    def says(name: str) -> bool | None:
        plain = name.lower().replace("qwen2_5", "qwen2.5").replace("_", "-")
        found = {match.replace("-", "") for match in re.findall(r"qwen-?\d(?:\.\d)?", plain)}
        return generation in found if found else None

    return says


def widths(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a shape that both families read in the same way.

    Args:
        config: `config.json` as a mapping; the language model's keys may be in `text_config` or on top.

    Raises:
        KeyError: If a key is missing.
    """
    text: Mapping[str, Any] = {**config, **(config.get("text_config") or {})}
    vision: Mapping[str, Any] = config.get("vision_config") or {}
    return {
        "family": str(config["model_type"]),
        "hidden": text["hidden_size"],
        "intermediate": text["intermediate_size"],
        "layers": text["num_hidden_layers"],
        "heads": text["num_attention_heads"],
        "kv_heads": text["num_key_value_heads"],
        "head_dim": text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"],
        "vocab": text["vocab_size"],
        "tied": bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
        "v_depth": vision["depth"],
        "v_hidden": vision["hidden_size"],
        "v_intermediate": vision["intermediate_size"],
        "v_out": vision["out_hidden_size"],
        "patch": vision["patch_size"],
        "temporal": vision["temporal_patch_size"],
        "merge": vision["spatial_merge_size"],
    }


def published(
    model_type: str,
    text: tuple[int, int, int, int, int, int],
    *,
    tied: bool,
    patch: int,
    vision: Mapping[str, Any],
) -> dict[str, Any]:
    """The widths of a published model, as in its `config.json`.

    Args:
        model_type: The family's name.
        text: hidden, intermediate, layers, heads, key-value heads, vocabulary.
        tied: Whether input embedding and output head share one matrix.
        patch: Side of a patch, in pixels.
        vision: Values specific to its vision tower.
    """
    hidden, intermediate, layers, heads, kv_heads, vocab = text
    return {
        "model_type": model_type,
        "tie_word_embeddings": tied,
        "text_config": {
            "hidden_size": hidden,
            "intermediate_size": intermediate,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "vocab_size": vocab,
            "head_dim": 128,
        },
        "vision_config": {
            "out_hidden_size": hidden,
            "patch_size": patch,
            "temporal_patch_size": 2,
            "spatial_merge_size": 2,
            **vision,
        },
    }


SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Qwen's pre-tokenizer, but with numbers in groups of three digits, not one: a coordinate is one token."""

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' or 'image' in part or 'image_url' in part %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML as Qwen2.5-VL prints it, without the default system turn."""


def tiny(
    model: Callable[[Any], Any],
    *,
    patch: int,
    mean: Sequence[float],
    std: Sequence[float],
    video: str,
    processor: str,
) -> TinyModel:
    """A tiny model with Qwen's tokenizer and processor.

    Args:
        model: (tokenizer) -> model.
        patch: Side of a patch, in pixels.
        mean: Mean of a picture's values, by channel.
        std: Their standard deviation, by channel.
        video: Class name of the video processor.
        processor: Class name of the processor.
    """
    common = {
        "patch_size": patch,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": True,
        "do_convert_rgb": True,
        "rescale_factor": 1 / 255,
        "resample": 3,
        "image_mean": list(mean),
        "image_std": list(std),
        "size": {"shortest_edge": (2 * patch) ** 2 * 4, "longest_edge": (2 * patch) ** 2 * 1280},
    }
    image = {**common, "image_processor_type": "Qwen2VLImageProcessor"}
    moving = {**common, "video_processor_type": video}
    both = {"processor_class": processor, "image_processor": image, "video_processor": moving}
    return TinyModel(
        special=SPECIAL,
        end="<|im_end|>",
        pad="<|endoftext|>",
        split=SPLIT,
        template=CHAT_TEMPLATE,
        model=model,
        files={
            "preprocessor_config.json": image,
            "video_preprocessor_config.json": moving,
            "processor_config.json": both,
        },
    )


def tiny_config(
    tokenizer: Any, *, sections: Sequence[int], text: Mapping[str, Any], vision: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a tiny model's configuration.

    Measured choices (plain defaults learn nothing): `initializer_range` 0.1, about 1/sqrt(hidden), or the
    model never looks at the image; rope theta 10, or the width axis is invisible on a grid of four tokens;
    full attention in every vision layer.

    Args:
        tokenizer: The model's tokenizer.
        sections: Pairs of numbers in a head that rotate with time, height and width.
        text: Values specific to the family's language model; `rope_parameters` are added to ours.
        vision: Values specific to its vision tower.
    """
    ids = {
        name: tokenizer.convert_tokens_to_ids(token)
        for name, token in {
            "image_token_id": "<|image_pad|>",
            "video_token_id": "<|video_pad|>",
            "vision_start_token_id": "<|vision_start|>",
            "vision_end_token_id": "<|vision_end|>",
        }.items()
    }
    rope = {"rope_type": "default", "rope_theta": 10.0, "mrope_section": list(sections)}
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    return {
        "text_config": {
            "initializer_range": 0.1,
            "vocab_size": -(-len(tokenizer) // 64) * 64,
            "hidden_size": 96,
            "intermediate_size": 288,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "num_key_value_heads": 3,
            "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": True,
            "bos_token_id": pad,
            "eos_token_id": end,
            "pad_token_id": pad,
            **text,
            "rope_parameters": rope | text.get("rope_parameters", {}),
        },
        "vision_config": {
            "initializer_range": 0.1,
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 192,
            "num_heads": 4,
            "out_hidden_size": 96,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "in_channels": 3,
            **vision,
        },
        "tie_word_embeddings": True,
        **ids,
    }
