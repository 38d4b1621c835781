"""A custom family: Qwen2-VL (arXiv:2409.12191), Qwen2.5-VL with another vision tower."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from vtune.models.families import FAMILIES
from vtune.models.families.qwen import named, published, tiny_config, widths
from vtune.models.families.qwen2_5_vl import Qwen25Shape

NAME = "qwen2_vl"
TOWER = {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen2Shape(Qwen25Shape):
    """A tower of plain linear maps and layer norms."""

    @property
    def v_linears(self) -> dict[str, tuple[int, int]]:
        """(in, out) of each linear map of one layer of the vision tower, by its name."""
        h, i = self.v_hidden, self.v_intermediate
        return {"qkv": (h, 3 * h), "proj": (h, h), "fc1": (h, i), "fc2": (i, h)}

    @property
    def vision_parameters(self) -> int:
        """Parameters of the vision tower without the connector."""
        h, i = self.v_hidden, self.v_intermediate
        block = h * 3 * h + 3 * h + h * h + h + 4 * h + h * i + i + i * h + h
        return self.v_depth * block + self.patch_values * h

    @property
    def connector_parameters(self) -> int:
        """Parameters of the connector, which turns patches into tokens."""
        wide = self.v_hidden * self.merge**2
        return wide * wide + wide + wide * self.v_out + self.v_out + 2 * self.v_hidden

    def v_kept(self, dtype_bytes: int) -> int:
        """Roughly, the numbers that autograd saves per patch and layer of the vision tower."""
        return 11 * self.v_hidden + 2 * self.v_intermediate


def shape(config: Mapping[str, Any]) -> Qwen2Shape:
    """The shape; the tower's widths have other names."""
    vision = config["vision_config"]
    renamed = {
        "hidden_size": vision["embed_dim"],
        "intermediate_size": int(vision["embed_dim"] * vision["mlp_ratio"]),
        "out_hidden_size": vision["hidden_size"],
    }
    return Qwen2Shape(**widths({**config, "vision_config": {**vision, **renamed}}))


def tiny(tokenizer: Any) -> Any:
    """A model with random weights."""
    import transformers

    hf: Any = transformers
    config = tiny_config(tokenizer, sections=(4, 6, 6), text={}, vision={})
    config["vision_config"] = {"depth": 2, "embed_dim": 64, "num_heads": 4, "hidden_size": 96, "mlp_ratio": 3}
    return hf.Qwen2VLForConditionalGeneration(hf.Qwen2VLConfig(**config))


like = FAMILIES["qwen2_5_vl"]
FAMILIES.add(
    NAME,
    replace(
        like,
        about="Qwen2-VL: 2B, 7B, 72B.",
        shape=shape,
        sizes={
            "Qwen2-VL-72B": published(
                NAME,
                (8192, 29568, 80, 64, 8, 152064),
                tied=False,
                patch=14,
                vision={**TOWER, "hidden_size": 8192},
            ),
        },
        named=named("qwen2"),
        tiny=replace(like.tiny, model=tiny),
    ),
)
