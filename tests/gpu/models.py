"""Models with random weights, tiny or of published shapes, so that nothing has to be downloaded."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from vtune.data import lens
from vtune.models.families import family_of_model
from vtune.models.policy import Dtype
from vtune.models.shape import known_shapes
from vtune.models.tiny import build_tiny

TOLERANCE: Mapping[Dtype, float] = {"float32": 1e-4, "bfloat16": 0.25}
"""Largest |log-probability in generation - in training|; bfloat16 rounding depends on the batch shape."""

SECTIONS = {"qwen2_5_vl": [16, 24, 24], "qwen3_vl": [24, 20, 20]}
"""Rotary pairs of a head for time, height and width (`mrope_section` in the models' `config.json`)."""
TOWER = {
    "qwen2_5_vl": {"num_heads": 16, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31]},
    "qwen3_vl": {"num_heads": 16},
}
"""Further settings of the published vision towers, besides widths."""
BUILT = "built"
"""A marker file in the folder of a completely built model."""
RANDOM = 0.02
"""Standard deviation of the weights."""


def tiny_model(folder: Path, family: str = "qwen2_5_vl") -> Path:
    """A tiny model, built once."""
    if not (folder / BUILT).exists():
        build_tiny(folder, lens.corpus(1, seed=0), seed=0, family=family)
        (folder / BUILT).touch()
    return folder


def published(folder: Path, name: str, *, layers: int | None = None) -> Path:
    """A model of a known shape with the tiny tokenizer and a padded vocabulary; built once.

    Args:
        folder: Where to build it.
        name: A key of `known_shapes`.
        layers: Layers of the language model; None: all.
    """
    values = json.loads(json.dumps(known_shapes()[name]))
    kind = values["model_type"]
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": SECTIONS[kind]}
    values["text_config"]["rope_parameters"] = rope | (
        {"mrope_interleaved": True} if kind == "qwen3_vl" else {}
    )
    values["vision_config"] |= TOWER[kind]
    if layers is not None:
        values["text_config"]["num_hidden_layers"] = layers
    return built(folder, kind, values, dtype=torch.bfloat16)


def middling(folder: Path) -> Path:
    """A model of 114 million parameters that sees small pictures like the tiny one; built once."""
    values = {
        "text_config": {
            "hidden_size": 768,
            "intermediate_size": 2048,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "num_key_value_heads": 4,
            "initializer_range": RANDOM,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10.0, "mrope_section": [8, 12, 12]},
        },
        "vision_config": {
            "depth": 12,
            "hidden_size": 512,
            "intermediate_size": 1408,
            "num_heads": 8,
            "out_hidden_size": 768,
            "fullatt_block_indexes": list(range(12)),
            "initializer_range": RANDOM,
        },
        "tie_word_embeddings": True,
    }
    return built(folder, "qwen2_5_vl", values, dtype=torch.float32)


def built(folder: Path, kind: str, values: Mapping[str, Any], *, dtype: torch.dtype) -> Path:
    """The tiny model of a family with these values in place of its own, and random weights."""
    if (folder / BUILT).exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)  # an earlier check may have hit its time limit here
    import transformers

    hf: Any = transformers
    build_tiny(folder, lens.corpus(1, seed=0), seed=0, family=kind)
    config = json.loads((folder / "config.json").read_text())
    for part in ("text_config", "vision_config"):
        config[part] |= {"initializer_range": RANDOM} | values[part]
    config["tie_word_embeddings"] = values["tie_word_embeddings"]
    config["text_config"]["tie_word_embeddings"] = values["tie_word_embeddings"]
    config["text_config"].pop("layer_types", None)
    config.pop("model_type")
    (folder / "model.safetensors").unlink()
    torch.manual_seed(0)
    settings = hf.AutoConfig.for_model(kind, **config)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = hf.AutoModelForImageTextToText.from_config(settings, dtype=dtype)
    model.save_pretrained(folder)
    (folder / BUILT).touch()
    return folder


@torch.no_grad()
def changed(model: Any) -> None:
    """Changed weights, whose log-probabilities differ by far more than rounding errors.

    Keys, values and features of pictures that are kept from the earlier weights differ from the new ones too:
    the last norm alone would change none of them, and nobody would notice that they were kept.
    """
    part_of = family_of_model(model).part_of
    for name, parameter in model.named_parameters():
        if name.endswith("language_model.norm.weight"):
            parameter.mul_(1.5)
        elif ".v_proj." in name or part_of(name) == "connector":
            parameter.neg_()
