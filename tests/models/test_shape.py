import json
from pathlib import Path
from typing import Any

import pytest
import torch

from vtune.errors import DataError
from vtune.models.shape import find_shape, known_name, known_shapes, shape_of

# Parameters of the published models, in billions.
PUBLISHED = {
    "Qwen2.5-VL-3B": 3.75,
    "Qwen2.5-VL-7B": 8.29,
    "Qwen2.5-VL-32B": 33.45,
    "Qwen3-VL-4B": 4.44,
    "Qwen3-VL-8B": 8.77,
}


def on_meta(name: str) -> Any:
    """The real model on the meta device."""
    import transformers

    config = json.loads(json.dumps(known_shapes()[name]))
    sections = [16, 24, 24] if name.startswith("Qwen2.5") else [24, 20, 20]
    config["text_config"]["rope_parameters"] = {
        "rope_type": "default", "rope_theta": 1e6, "mrope_section": sections,
    }  # fmt: skip
    family = "Qwen2_5_VL" if config.pop("model_type") == "qwen2_5_vl" else "Qwen3VL"
    settings = getattr(transformers, f"{family}Config")(**config)
    settings.tie_word_embeddings = config["tie_word_embeddings"]
    with torch.device("meta"):
        return getattr(transformers, f"{family}ForConditionalGeneration")(settings)


@pytest.mark.parametrize("name", known_shapes())
def test_parameters_of_a_known_model_are_counted_exactly(name: str) -> None:
    counts = {"vision": 0, "connector": 0, "language": 0}
    for path, parameter in on_meta(name).named_parameters():
        part = ("connector" if "merger" in path else "vision") if ".visual." in path else "language"
        counts[part] += parameter.numel()
    shape = shape_of(known_shapes()[name])
    assert shape.parameters == counts
    assert round(shape.total / 1e9, 2) == PUBLISHED[name]


def test_parameters_of_a_folder_are_counted_exactly(each_policy: Any, tiny: Path, tiny3: Path) -> None:
    for folder in (tiny, tiny3):
        found = find_shape(str(folder), None)
        assert found is not None
        if found[0].family == each_policy.model.config.model_type:
            assert found[0].total == sum(p.numel() for p in each_policy.model.parameters())
            assert found[1] == str(folder / "config.json")
            return
    raise AssertionError("neither folder is of the policy's family")


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("models/codev-7b-sft", "Qwen2.5-VL-7B"),
        ("Qwen/Qwen2.5-VL-32B-Instruct", "Qwen2.5-VL-32B"),
        ("qwen2_5_vl_3b", "Qwen2.5-VL-3B"),
        ("a/qwen3-vl-4b-sft", "Qwen3-VL-4B"),
        ("Qwen/Qwen3-VL-8B-Instruct", "Qwen3-VL-8B"),
        ("qwen2.5-vl-8b", None),
        ("my/model-72b", None),
        ("runs/demo/tiny", None),
        ("runs-7b/latest", None),
        ("from-3b-to-7b", None),
    ],
)
def test_a_name_gives_a_shape_only_if_unambiguous(name: str, known: str | None) -> None:
    assert known_name(name) == known


def test_a_requested_shape_overrides_the_folder(tiny: Path) -> None:
    found = find_shape(str(tiny), "Qwen3-VL-8B")
    assert found is not None
    assert (found[0].hidden, found[1]) == (4096, "Qwen3-VL-8B, as asked")
    with pytest.raises(DataError, match="no shape is known"):
        find_shape(str(tiny), "Qwen9")


def test_language_model_keys_may_be_top_level_as_in_published_files() -> None:
    nested = known_shapes()["Qwen2.5-VL-7B"]
    flat = {**nested["text_config"], **{k: v for k, v in nested.items() if k != "text_config"}}
    assert shape_of(flat) == shape_of(nested)
    del flat["num_hidden_layers"]
    with pytest.raises(DataError, match="num_hidden_layers"):
        shape_of(flat)
