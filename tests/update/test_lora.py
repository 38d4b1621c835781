from pathlib import Path

import pytest
import torch

from tests.conftest import load
from tests.update.build import update
from vtune.errors import RecipeError
from vtune.models.families import FAMILIES, family_of_model
from vtune.models.policy import Policy, load_skeleton
from vtune.models.shape import find_shape, known_shapes, shape_of
from vtune.models.tiny import build_tiny
from vtune.update.lora import adapter_units, add_adapters, check_alone, check_shape, check_targets, units
from vtune.update.recipe import LoRA

LORA = LoRA(rank=4, alpha=8, targets=("q_proj", "down_proj"))


def adapted(tiny: Path) -> Policy:
    """A policy whose adapters have an effect; normally their second factor starts at zero."""
    policy = load(tiny)
    add_adapters(policy.model, LORA, ("vision", "connector"))
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.1)
    return policy


def test_adapters_equal_the_difference_of_merged_and_initial_weights(tiny: Path) -> None:
    start = dict(load(tiny).model.named_parameters())
    model = adapted(tiny).model
    alone = {name: tensor for unit in adapter_units(model) for name, tensor in unit.weights()}
    merged = {name: tensor for unit in units(model) for name, tensor in unit.weights()}
    found = set()
    for name, down in alone.items():
        if name.endswith(".lora_A.weight"):
            base = f"{name.removeprefix('base_model.model.').removesuffix('.lora_A.weight')}.weight"
            change = alone[name.replace("lora_A", "lora_B")] @ down * LORA.alpha / LORA.rank
            torch.testing.assert_close(merged[base], start[base] + change)
            found.add(base)
    assert found == {name for name, tensor in merged.items() if not torch.equal(tensor, start[name])}
    assert len(found) == len(alone) // 2 == 4
    assert sum(t.numel() for t in alone.values()) < 0.1 * sum(t.numel() for t in merged.values())


def test_adapters_are_initialised_without_touching_other_gpus(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    if not torch.backends.cuda.is_built():  # a CUDA build would look for a driver
        monkeypatch.setattr("torch.cuda.device_count", lambda: 8)
    before = torch.get_rng_state()
    add_adapters(load(tiny).model, LORA, ())
    assert torch.equal(torch.get_rng_state(), before)
    assert not [one for one in recwarn if "devices" in str(one.message)]


def test_an_output_head_tied_to_the_embedding_gets_no_adapter(tiny: Path) -> None:
    with pytest.raises(RecipeError, match="lm_head has the weights of the input embedding"):
        check_targets(str(tiny), update(lora=LoRA(rank=4, alpha=8, targets=("q_proj", "lm_head"))))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "nothing is adapted"),
        ({"lora": LORA}, "takes only those of the language model"),
        ({"lora": LORA, "freeze": ("connector",)}, "visual"),
    ],
)
def test_adapters_that_vllm_cannot_load_are_reported(
    tiny: Path, changes: dict[str, object], said: str
) -> None:
    """The tower has layers with the same names."""
    with pytest.raises(RecipeError, match=said):
        check_alone(str(tiny), update(**changes))


def test_adapters_of_the_language_model_can_be_handed_over_alone(tiny: Path) -> None:
    check_alone(str(tiny), update(lora=LORA, freeze=("vision", "connector")))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_shape_knows_the_names_of_the_linear_layers(family: str, tmp_path: Path) -> None:
    build_tiny(tmp_path / "model", ["a"], seed=0, family=family)
    found = find_shape(str(tmp_path / "model"), None)
    assert found is not None
    model = load_skeleton(str(tmp_path / "model"))
    part_of = family_of_model(model).part_of
    there: dict[str, set[str]] = {"vision": set(), "connector": set(), "language": set()}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            there[part_of(name)].add(name.rpartition(".")[2])
    there["language"] -= {"lm_head"} if found[0].tied else set()
    assert found[0].linear_names == there


@pytest.mark.parametrize(
    ("changes", "alone", "said"),
    [
        ({"lora": LoRA(rank=4, alpha=8, targets=("q_porj",))}, False, "is called q_porj"),
        ({"lora": LoRA(rank=4, alpha=8, targets=("qkv",)), "freeze": ("vision",)}, False, "is called qkv"),
        ({}, True, "nothing is adapted"),
        ({"lora": LORA}, True, r"at down_proj \(vision\)"),
    ],
)
def test_a_model_known_only_by_shape_gets_the_same_adapter_checks(
    changes: dict[str, object], alone: bool, said: str
) -> None:
    shape = shape_of(known_shapes()["Qwen2.5-VL-7B"])
    with pytest.raises(RecipeError, match=said):
        check_shape(shape, update(**changes), alone=alone)
    check_shape(shape, update(lora=LORA, freeze=("vision", "connector")), alone=True)
    check_shape(shape, update(), alone=False)
