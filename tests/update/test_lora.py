from pathlib import Path

import pytest
import torch

from tests.conftest import load
from tests.update.build import update
from vtune.errors import RecipeError
from vtune.models.policy import Policy
from vtune.update.lora import adapter_units, add_adapters, check_alone, check_targets, units
from vtune.update.recipe import LoRA

LORA = LoRA(rank=4, alpha=8, targets=("q_proj", "down_proj"))


def adapted(tiny: Path) -> Policy:
    """A policy whose adapters do something: their second factor begins at zero."""
    policy = load(tiny)
    add_adapters(policy.model, LORA, ("vision", "connector"))
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.1)
    return policy


def test_adapters_alone_are_what_merged_weights_hold_beside_the_starting_ones(tiny: Path) -> None:
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


def test_adapters_are_drawn_without_a_look_at_the_gpus_of_other_processes(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    if not torch.backends.cuda.is_built():  # one that is would look for a driver
        monkeypatch.setattr("torch.cuda.device_count", lambda: 8)
    before = torch.get_rng_state()
    add_adapters(load(tiny).model, LORA, ())
    assert torch.equal(torch.get_rng_state(), before)
    assert not [one for one in recwarn if "devices" in str(one.message)]


def test_an_output_head_that_is_the_embedding_gets_no_adapter(tiny: Path) -> None:
    with pytest.raises(RecipeError, match="lm_head has the weights of the input embedding"):
        check_targets(str(tiny), update(lora=LoRA(rank=4, alpha=8, targets=("q_proj", "lm_head"))))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "nothing is adapted"),
        ({"lora": LORA}, "takes those of the language model"),
        ({"lora": LORA, "freeze": ("connector",)}, "visual"),
    ],
)
def test_what_vllm_cannot_take_alone_is_told(tiny: Path, changes: dict[str, object], said: str) -> None:
    """The tower has layers of the same names."""
    with pytest.raises(RecipeError, match=said):
        check_alone(str(tiny), update(**changes))


def test_adapters_of_the_language_model_can_be_handed_over_alone(tiny: Path) -> None:
    check_alone(str(tiny), update(lora=LORA, freeze=("vision", "connector")))
