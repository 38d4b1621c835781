"""Qwen2.5-VL (Bai et al. 2025, arXiv:2502.13923)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vtune.models.families import FAMILIES
from vtune.models.families.family import Family
from vtune.models.families.hermes import HERMES
from vtune.models.families.qwen import (
    CONNECTOR,
    LAYER,
    LORA_TARGETS,
    TOKENS,
    VISION,
    QwenProcessor,
    inputs,
    named,
    published,
    tiny,
    tiny_config,
    widths,
)
from vtune.models.families.shape import Shape
from vtune.models.positions import rope_positions

NAME = "qwen2_5_vl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen25Shape(Shape):
    """A language model with biases on queries, keys and values; a tower of gated MLPs and RMS norms."""

    @property
    def attention_extra(self) -> int:
        """Parameters of attention in one layer of the language model besides its matrices."""
        return self.query + 2 * self.key

    @property
    def v_linears(self) -> dict[str, tuple[int, int]]:
        """(in, out) of each linear map of one layer of the vision tower, by its name."""
        h, i = self.v_hidden, self.v_intermediate
        return {
            "qkv": (h, 3 * h),
            "proj": (h, h),
            "gate_proj": (h, i),
            "up_proj": (h, i),
            "down_proj": (i, h),
        }

    @property
    def connector_linears(self) -> tuple[str, ...]:
        """Names of the connector's linear layers; in an `nn.Sequential` they are numbers."""
        return "0", "2"

    @property
    def vision_parameters(self) -> int:
        """Parameters of the vision tower without the connector."""
        h, i = self.v_hidden, self.v_intermediate
        attention = h * 3 * h + 3 * h + h * h + h
        block = attention + 2 * h + 2 * (h * i + i) + i * h + h
        return self.v_depth * block + self.patch_values * h

    @property
    def connector_parameters(self) -> int:
        """Parameters of the connector, which turns patches into tokens."""
        wide = self.v_hidden * self.merge**2
        return wide * wide + wide + wide * self.v_out + self.v_out + self.v_hidden

    def kept(self, dtype_bytes: int) -> int:
        """Numbers that autograd keeps per token in one layer: two norms, attention, and the gated MLP.

        Input and output of the norms; rotated queries and the attention output; keys and values; four of the
        gated MLP.
        """
        # If each segment is a separate call, as in float32, the attention output is laid out again.
        again = 0 if dtype_bytes == 2 else self.query
        return 4 * self.hidden + 2 * self.query + again + 2 * self.key + 4 * self.intermediate

    def v_kept(self, dtype_bytes: int) -> int:
        """The same per patch in one layer of the vision tower."""
        return 10 * self.v_hidden + 4 * self.v_intermediate


def _shape(config: Mapping[str, Any]) -> Shape:
    return Qwen25Shape(**widths(config))


def _tiny(tokenizer: Any) -> Any:
    import transformers

    hf: Any = transformers
    config = tiny_config(
        tokenizer,
        sections=(4, 6, 6),
        text={},
        vision={"patch_size": 14, "window_size": 112, "fullatt_block_indexes": [0, 1]},
    )
    return hf.Qwen2_5_VLForConditionalGeneration(hf.Qwen2_5_VLConfig(**config))


_TOWER = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420}

FAMILIES.add(
    NAME,
    Family(
        about="Qwen2.5-VL: 3B, 7B, 32B, and what was trained from them.",
        tokens=TOKENS,
        tools=HERMES,
        positions=rope_positions,
        processor=QwenProcessor,
        vision=VISION,
        connector=CONNECTOR,
        layer=LAYER,
        fused=True,
        ragged_vision=True,
        lora_targets=LORA_TARGETS,
        shape=_shape,
        # From the models' public `config.json` files, for estimates about models that are not on this
        # machine.
        sizes={
            "Qwen2.5-VL-3B": published(
                NAME, (2048, 11008, 36, 16, 2, 151936), tied=True, patch=14, vision=_TOWER
            ),
            "Qwen2.5-VL-7B": published(
                NAME, (3584, 18944, 28, 28, 4, 152064), tied=False, patch=14, vision=_TOWER
            ),
            "Qwen2.5-VL-32B": published(
                NAME,
                (5120, 27648, 64, 40, 8, 152064),
                tied=False,
                patch=14,
                vision={**_TOWER, "intermediate_size": 3456},
            ),
        },
        named=named("qwen2.5"),
        inputs=inputs,
        tiny=tiny(
            _tiny,
            patch=14,
            mean=(0.48145466, 0.4578275, 0.40821073),
            std=(0.26862954, 0.26130258, 0.27577711),
            video="Qwen2VLVideoProcessor",
            processor="Qwen2_5_VLProcessor",
        ),
    ),
)
