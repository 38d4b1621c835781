"""How large a model is, from its configuration alone: parameters and widths, without weights."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtune.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The widths of a Qwen-VL model. `v_` is the vision tower."""

    family: str
    """`qwen2_5_vl` or `qwen3_vl`."""
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    """Whether input embedding and output head are one matrix."""
    v_depth: int
    v_hidden: int
    v_intermediate: int
    v_out: int
    v_positions: int
    """Learnt positions; 0 for a tower with rotary ones alone."""
    v_mergers: int
    """Of Qwen3-VL: the connector and one for each deepstack layer."""
    patch: int
    temporal: int
    merge: int
    """Patches a side that become one token."""

    @property
    def query(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head_dim

    @property
    def key(self) -> int:
        """Width of all key heads, which is that of the value heads."""
        return self.kv_heads * self.head_dim

    @property
    def patch_values(self) -> int:
        """Numbers in one patch as the processor hands it over."""
        return 3 * self.temporal * self.patch**2

    @property
    def token_pixels(self) -> int:
        """Pixels (width x height) that become one token."""
        return (self.patch * self.merge) ** 2

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters of the parts that `update.freeze` names."""
        return {"vision": self._vision(), "connector": self._connector(), "language": self._language()}

    @property
    def total(self) -> int:
        """All parameters."""
        return sum(self.parameters.values())

    @property
    def head(self) -> int:
        """Parameters of the embedding, and of the output head where it is another matrix."""
        return self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def linears(self) -> dict[str, tuple[int, int]]:
        """(in, out) of each linear map of one layer of the language model, by its name."""
        h, q, k, i = self.hidden, self.query, self.key, self.intermediate
        return {
            "q_proj": (h, q),
            "k_proj": (h, k),
            "v_proj": (h, k),
            "o_proj": (q, h),
            "gate_proj": (h, i),
            "up_proj": (h, i),
            "down_proj": (i, h),
        }

    @property
    def v_linears(self) -> dict[str, tuple[int, int]]:
        """The same of one layer of the vision tower."""
        h, i = self.v_hidden, self.v_intermediate
        attention = {"qkv": (h, 3 * h), "proj": (h, h)}
        if self.family == "qwen2_5_vl":
            return attention | {"gate_proj": (h, i), "up_proj": (h, i), "down_proj": (i, h)}
        return attention | {"linear_fc1": (h, i), "linear_fc2": (i, h)}

    def _language(self) -> int:
        # Qwen2.5 adds biases to queries, keys and values; Qwen3 normalises queries and keys instead.
        extra = self.query + 2 * self.key if self.family == "qwen2_5_vl" else 2 * self.head_dim
        layer = sum(a * b for a, b in self.linears.values()) + extra + 2 * self.hidden
        return self.layers * layer + self.head + self.hidden

    def _vision(self) -> int:
        h, i = self.v_hidden, self.v_intermediate
        attention = h * 3 * h + 3 * h + h * h + h
        if self.family == "qwen2_5_vl":
            block = attention + 2 * h + 2 * (h * i + i) + i * h + h
            return self.v_depth * block + self.patch_values * h
        block = attention + 4 * h + h * i + i + i * h + h
        return self.v_depth * block + self.patch_values * h + h + self.v_positions * h

    def _connector(self) -> int:
        wide = self.v_hidden * self.merge**2
        mlp = wide * wide + wide + wide * self.v_out + self.v_out
        if self.family == "qwen2_5_vl":
            return mlp + self.v_hidden
        # The deepstack mergers normalise after merging, the last one before.
        return self.v_mergers * mlp + 2 * self.v_hidden + (self.v_mergers - 1) * 2 * wide


def shape_of(config: Mapping[str, Any]) -> Shape:
    """The shape that a Hugging Face configuration describes.

    Args:
        config: `config.json` as a mapping; the language model's keys may stand in `text_config` or on top.

    Raises:
        DataError: If a key is missing, naming it.
    """
    text: Mapping[str, Any] = {**config, **(config.get("text_config") or {})}
    vision: Mapping[str, Any] = config.get("vision_config") or {}
    try:
        return Shape(
            family=str(config["model_type"]),
            hidden=text["hidden_size"],
            intermediate=text["intermediate_size"],
            layers=text["num_hidden_layers"],
            heads=text["num_attention_heads"],
            kv_heads=text["num_key_value_heads"],
            head_dim=text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"],
            vocab=text["vocab_size"],
            tied=bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
            v_depth=vision["depth"],
            v_hidden=vision["hidden_size"],
            v_intermediate=vision["intermediate_size"],
            v_out=vision["out_hidden_size"],
            v_positions=vision.get("num_position_embeddings") or 0,
            v_mergers=1 + len(vision.get("deepstack_visual_indexes") or ()),
            patch=vision["patch_size"],
            temporal=vision["temporal_patch_size"],
            merge=vision["spatial_merge_size"],
        )
    except KeyError as missing:
        raise DataError(f"the model's configuration has no {missing}", fix="give its shape by name") from None


def _config(text: tuple[int, int, int, int, int, int], tied: bool, vision: dict[str, Any]) -> dict[str, Any]:
    hidden, intermediate, layers, heads, kv_heads, vocab = text
    qwen3 = "deepstack_visual_indexes" in vision
    return {
        "model_type": "qwen3_vl" if qwen3 else "qwen2_5_vl",
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
            "patch_size": 16 if qwen3 else 14,
            "temporal_patch_size": 2,
            "spatial_merge_size": 2,
            **vision,
        },
    }


_TOWER = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420}
KNOWN: dict[str, dict[str, Any]] = {
    "Qwen2.5-VL-3B": _config((2048, 11008, 36, 16, 2, 151936), True, _TOWER),
    "Qwen2.5-VL-7B": _config((3584, 18944, 28, 28, 4, 152064), False, _TOWER),
    "Qwen2.5-VL-32B": _config((5120, 27648, 64, 40, 8, 152064), False, {**_TOWER, "intermediate_size": 3456}),
    "Qwen3-VL-4B": _config(
        (2560, 9728, 36, 32, 8, 151936),
        True,
        {
            "depth": 24,
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_position_embeddings": 2304,
            "deepstack_visual_indexes": [5, 11, 17],
        },
    ),
    "Qwen3-VL-8B": _config(
        (4096, 12288, 36, 32, 8, 151936),
        False,
        {
            "depth": 27,
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_position_embeddings": 2304,
            "deepstack_visual_indexes": [8, 16, 24],
        },
    ),
}
"""Sizes from the models' public `config.json` files: what arithmetic needs of models that are not here."""

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_SIZE = re.compile(r"(?<![0-9.])(\d+)b(?![a-z0-9])")


def known_name(name: str) -> str | None:
    """The known model that a name speaks of, e.g. `models/codev-7b-sft` of Qwen2.5-VL-7B; None if of none.

    No two known models share a size, so the size alone decides, unless the name says another family.
    """
    plain = name.lower().replace("qwen2_5", "qwen2.5").replace("_", "-")
    sizes = set(_SIZE.findall(plain.rsplit("/", 1)[-1]))
    found = [known for known in KNOWN if known.lower().rsplit("-", 1)[1].removesuffix("b") in sizes]
    families = {match.replace("-", "") for match in re.findall(r"qwen-?\d(?:\.\d)?", plain)}
    found = [known for known in found if not families or known.lower().split("-")[0] in families]
    return found[0] if len(found) == 1 else None


def find_shape(model: str, given: str | None) -> tuple[Shape, str] | None:
    """The shape of a model and where it was found; None where nothing tells it.

    Args:
        model: As the recipe names it: a folder or a hub name.
        given: The name of a known model, which wins.

    Raises:
        DataError: If there is no known model `given`, or a `config.json` lacks a size.
    """
    if given is not None:
        if given not in KNOWN:
            raise DataError(f"no shape is known by the name {given!r}", fix=f"known: {', '.join(KNOWN)}")
        return shape_of(KNOWN[given]), f"{given}, as asked"
    config = local_file(model, "config.json")
    if config is not None:
        return shape_of(_filled(config.parent)), f"{config}"
    name = known_name(model)
    return (shape_of(KNOWN[name]), f"{name}, by the name {model!r}") if name else None


def local_file(model: str, name: str) -> Path | None:
    """A file of a model folder, or of a hub model that was fetched before; None if it is not here."""
    if (Path(model) / name).is_file():
        return Path(model) / name
    if Path(model).is_dir() or not _HUB_NAME.fullmatch(model):
        return None
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(model, name)
    return Path(found) if isinstance(found, str) else None


def _filled(folder: Path) -> Mapping[str, Any]:
    """The configuration of a folder, with the defaults of its class where the file is silent."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, json.JSONDecodeError) as error:
        raise DataError(f"{folder / 'config.json'} cannot be read: {error}") from None
    values: dict[str, Any] = config.to_dict()
    return values
