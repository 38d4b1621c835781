"""Qwen3-VL (Qwen team 2025, arXiv:2511.21631)."""

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

NAME = "qwen3_vl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3Shape(Shape):
    """A language model with norms on queries and keys; a tower of plain MLPs with learnt positions."""

    v_positions: int
    """Number of learnt positions."""
    v_mergers: int
    """The connector's merger, and one for each deepstack layer."""

    @property
    def attention_extra(self) -> int:
        """Parameters of attention in one layer of the language model besides its matrices."""
        return 2 * self.head_dim

    @property
    def v_linears(self) -> dict[str, tuple[int, int]]:
        """(in, out) of each linear map of one layer of the vision tower, by its name."""
        h, i = self.v_hidden, self.v_intermediate
        return {"qkv": (h, 3 * h), "proj": (h, h), "linear_fc1": (h, i), "linear_fc2": (i, h)}

    @property
    def connector_linears(self) -> tuple[str, ...]:
        """Names of the connector's linear layers."""
        return "linear_fc1", "linear_fc2"

    @property
    def vision_parameters(self) -> int:
        """Parameters of the vision tower without the connector."""
        h, i = self.v_hidden, self.v_intermediate
        attention = h * 3 * h + 3 * h + h * h + h
        block = attention + 4 * h + h * i + i + i * h + h
        return self.v_depth * block + self.patch_values * h + h + self.v_positions * h

    @property
    def connector_parameters(self) -> int:
        """Parameters of the connector, which turns patches into tokens."""
        wide = self.v_hidden * self.merge**2
        mlp = wide * wide + wide + wide * self.v_out + self.v_out
        # The deepstack mergers normalise after merging, the last one before.
        return self.v_mergers * mlp + 2 * self.v_hidden + (self.v_mergers - 1) * 2 * wide

    @property
    def v_merging(self) -> int:
        """Numbers that autograd keeps per patch in the connector: in its mergers, and their outputs."""
        one = 3 * self.v_hidden + self.v_out // self.merge**2
        return 7 * self.v_hidden + (self.v_mergers - 2) * one

    def kept(self, dtype_bytes: int) -> int:
        """Numbers that autograd keeps per token in one layer: norms, attention, and the gated MLP.

        As for Qwen2.5-VL, plus queries and keys before their norms.
        """
        attention = 3 * self.query + 3 * self.key + (0 if dtype_bytes == 2 else self.query)
        return 4 * self.hidden + attention + 4 * self.intermediate

    def v_kept(self, dtype_bytes: int) -> int:
        """The same per patch in one layer of the vision tower."""
        return 10 * self.v_hidden + 2 * self.v_intermediate


def _shape(config: Mapping[str, Any]) -> Shape:
    vision: Mapping[str, Any] = config.get("vision_config") or {}
    return Qwen3Shape(
        **widths(config),
        v_positions=vision.get("num_position_embeddings") or 0,
        v_mergers=1 + len(vision.get("deepstack_visual_indexes") or ()),
    )


def _tiny(tokenizer: Any) -> Any:
    import transformers

    hf: Any = transformers
    config = tiny_config(
        tokenizer,
        sections=(6, 5, 5),
        text={"head_dim": 32, "rope_parameters": {"mrope_interleaved": True}},
        vision={"patch_size": 16, "num_position_embeddings": 256, "deepstack_visual_indexes": [0, 1]},
    )
    return hf.Qwen3VLForConditionalGeneration(hf.Qwen3VLConfig(**config))


def _tower(depth: int, hidden: int, intermediate: int, deep: list[int]) -> dict[str, Any]:
    return {
        "depth": depth,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": deep,
    }


FAMILIES.add(
    NAME,
    Family(
        about="Qwen3-VL, dense: 4B, 8B, and what was trained from them.",
        tokens=TOKENS,
        tools=HERMES,
        positions=rope_positions,
        processor=QwenProcessor,
        vision=VISION,
        connector=CONNECTOR,
        layer=LAYER,
        layered_features="deepstack_features",
        fused=True,
        ragged_vision=True,
        lora_targets=LORA_TARGETS,
        shape=_shape,
        # From the models' public `config.json` files, for estimates about models that are not on this
        # machine.
        sizes={
            "Qwen3-VL-4B": published(
                NAME,
                (2560, 9728, 36, 32, 8, 151936),
                tied=True,
                patch=16,
                vision=_tower(24, 1024, 4096, [5, 11, 17]),
            ),
            "Qwen3-VL-8B": published(
                NAME,
                (4096, 12288, 36, 32, 8, 151936),
                tied=False,
                patch=16,
                vision=_tower(27, 1152, 4304, [8, 16, 24]),
            ),
        },
        named=named("qwen3"),
        inputs=inputs,
        tiny=tiny(
            _tiny,
            patch=16,
            mean=(0.5, 0.5, 0.5),
            std=(0.5, 0.5, 0.5),
            video="Qwen3VLVideoProcessor",
            processor="Qwen3VLProcessor",
        ),
    ),
)
