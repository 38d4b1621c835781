"""`--dry-run`: memory, time, and what to change."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.judge.server import FakeJudge, serve
from tests.pages import blocks
from tests.reward.build import encode, noise, sample
from tests.runs.commands import rl, setting, sft, vtune
from vtune.config import find, load_recipe
from vtune.errors import RecipeError
from vtune.models.shape import known_shapes, shape_of
from vtune.report.plan import plan_lines
from vtune.runs.plan.estimate import kv_token, on_host, phases_of
from vtune.runs.plan.machine import hosts_of, machine_of
from vtune.runs.plan.plan import plan
from vtune.runs.plan.remedies import Remedy, _grown, changed, needed, remedies
from vtune.runs.plan.seconds import _at_once, _Conversation, _prefill_flops, step_of
from vtune.runs.train.rl_recipe import RLRecipe, check_machine, check_sizes
from vtune.runs.train.sft_recipe import SFTRecipe
from vtune.schema.message import Message, Picture
from vtune.schema.parquet import read_samples, read_trajectories, write_samples
from vtune.update.flops import Work, forward_flops
from vtune.update.recipe import Update

SEVEN = shape_of(known_shapes()["Qwen2.5-VL-7B"])


def codev(**changes: Any) -> RLRecipe:
    values = load_recipe(find("codev", "recipes.rl"), RLRecipe).model_dump(mode="json")
    values["update"] |= {"activation_checkpointing": True, "micro_tokens": 28672, "offload": (), "lora": None}
    values["rollout"] |= {"engine": "vllm", "servers": (), "gpu_memory": 0.5, "staleness": 0}
    for path, value in changes.items():
        section, _, key = path.partition("__")
        values[section][key] = value
    return RLRecipe.model_validate(values)


def of_sft(*given: str) -> SFTRecipe:
    return load_recipe(find("codev", "recipes.sft"), SFTRecipe, list(given))


def test_codev_fits_on_eight_gpus_of_80_gb_and_the_parts_add_up() -> None:
    found = plan(codev(), machine_of(8, 80))
    assert found["fits"]
    assert "remedies" not in found
    assert found["shape"].startswith("Qwen2.5-VL-7B, by the name 'models/codev-7b-sft': 8.29 B")
    update = found["memory_gb"]["update"]
    assert {"weights", "optimizer", "gradients", "activations", "pictures", "logits"} <= set(update)
    assert update["weights"] == pytest.approx(2 * 8.292, abs=0.01)
    assert update["optimizer"] == pytest.approx(12 * 8.292 / 8, abs=0.01)
    assert found["memory_gb"]["rollout"]["vLLM weights"] == update["weights"]
    peak = max(sum(parts.values()) for parts in found["memory_gb"].values())
    assert found["peak_gb"] == pytest.approx(peak, abs=0.1)
    assert found["peak_gb"] < found["room_gb"] < 80


def test_one_gpu_of_24_gb_gets_advice_that_works() -> None:
    machine = machine_of(1, 24)
    before = codev(update__activation_checkpointing=False, update__micro_tokens=65536)
    found = plan(before, machine)
    assert found["fits"] is False
    assert found["remedies"][0]["set"] == ["update.activation_checkpointing=true"]
    recipe: Any = before
    for one in found["remedies"]:
        recipe = taking(recipe, one["set"])
        phases = phases_of(recipe.model_dump(mode="json"), SEVEN, machine)
        assert one["peak_gb"] == round(max(sum(parts.values()) for parts in phases.values()), 1)
        assert one["fits"] == plan(recipe, machine)["fits"]
    (smaller,) = [text for text in found["otherwise"] if text.startswith("the smaller Qwen3-VL-4B, with ")]
    sets = smaller.partition(", with ")[2].partition(" (")[0]
    recipe = taking(before, re.split(r", (?=[a-z]+\.)", sets))
    assert plan(recipe, machine, shape="Qwen3-VL-4B")["fits"]
    assert not plan(recipe, machine)["fits"]


def taking(recipe: Any, words: list[str]) -> Any:
    sets = {key: yaml.safe_load(value) for key, _, value in (word.partition("=") for word in words)}
    return changed(recipe, Remedy(sets, ""))


def test_the_page_shows_the_real_output() -> None:
    """`…` stands for omitted lines."""
    (block,) = (text for text in blocks("cli/rl.md") if "# DOES NOT FIT" in text)
    command, *shown = block.splitlines()
    ended = vtune(*command.removeprefix("$ vtune ").split())
    assert ended.code == 0, ended.err
    parts = [part.strip("\n") for part in "\n".join(shown).split("…") if part.strip()]
    assert len(parts) > 1
    rest = f"\n{ended.out}"
    for part in parts:
        _, found, rest = rest.partition(f"\n{part}\n")
        assert found, f"not printed, or not as one piece and in this order:\n{part}"
        rest = f"\n{rest}"


def test_advice_that_does_not_affect_learning_comes_first() -> None:
    found = plan(codev(update__activation_checkpointing=False), machine_of(8, 80))
    assert [one["set"] for one in found["remedies"]] == [["update.activation_checkpointing=true"]]
    assert not found["remedies"][0]["changes_learning"]
    assert found["remedies"][0]["fits"]


def test_advice_keeps_offloading_and_freezing_and_adapters_suffice() -> None:
    """A list that is set replaces the recipe's: without `params` the weights came back to the GPU."""
    machine = machine_of(1, 24)
    given = ["update.zero_stage=3", "update.offload=[params]"]
    recipe = of_sft(*given, "update.freeze=[connector]")
    advised = [one.sets for one in remedies(recipe.model_dump(mode="json"), SEVEN, machine)]
    assert {"update.offload": ["params", "optimizer"]} in advised
    assert {"update.freeze": ["connector", "vision"]} in advised
    found = plan(of_sft(*given), machine)
    (remedy,) = found["remedies"]
    assert remedy["fits"]
    assert [word.partition("=")[0] for word in remedy["set"]] == ["update.lora"]


def test_advice_that_only_compensates_other_advice_is_dropped_with_it() -> None:
    """Beside weights that come back to the GPU, shorter conversations save something."""
    recipe = of_sft("update.zero_stage=3", "update.offload=[params]")
    lora = {"rank": 32, "alpha": 64.0, "targets": ["q_proj", "k_proj", "v_proj", "o_proj"]}
    back = Remedy({"update.offload": ["optimizer"]}, "the weights come back")
    adapters = Remedy({"update.lora": lora}, "adapters", True)
    shorter = Remedy({"max_tokens": 2560, "update.micro_tokens": 2560}, "shorter", True)
    assert needed(recipe, [back, adapters, shorter], SEVEN, machine_of(1, 24)) == [adapters]


def test_host_memory_includes_background_writes() -> None:
    found = [
        plan(codev(checkpoints__background=background), machine_of(8, 80)) for background in (False, True)
    ]
    assert found[0]["host_gb"] == 0
    written, weights = found[1]["disk_gb"]["a checkpoint"], 2 * SEVEN.total / 1e9
    assert found[1]["host_gb"] == pytest.approx(written - weights, abs=0.2)
    assert "116.1 GB of the host's memory" in "\n".join(plan_lines({"plan": found[1]}))


def test_each_host_holds_only_its_share() -> None:
    """What a background write needs is that of a host's processes; nobody says how many, then eight each."""
    one, two, alone = (
        plan(codev(checkpoints__background=True), machine_of(gpus, 80, hosts=hosts))
        for gpus, hosts in ((8, None), (16, None), (16, 1))
    )
    assert two["machine"]["hosts"] == 2
    assert two["host_gb"] == pytest.approx(one["host_gb"] / 2, abs=0.1)
    assert alone["host_gb"] == one["host_gb"]
    assert one["sandbox"] == alone["sandbox"] == {"sessions": 2048, "gb": 51.5}
    assert two["sandbox"] == {"sessions": 1024, "gb": 25.8}
    lines = list(plan_lines({"plan": two}))
    assert f"and {two['host_gb']:g} GB of each host's memory" in lines
    assert "fits: 16 GPU(s) of 80 GB on 2 machines (as asked; speeds of H100)" in lines


def test_vllm_concurrency_is_limited_by_its_cache() -> None:
    """Of the 32B on two GPUs; with 0.51 of 80 GB there is room for one of 28,672 tokens."""
    shape = shape_of(known_shapes()["Qwen2.5-VL-32B"])

    def drawing(share: float, memory: float) -> float:
        values = codev(rollout__tensor_parallel=2, rollout__gpu_memory=share).model_dump(mode="json")
        found: float = step_of(values, shape, machine_of(8, memory))["step"]["seconds, rollout"]
        return found

    assert drawing(0.51, 80) > 1.5 * drawing(0.6, 80) > 1.5 * 1.2 * drawing(0.9, 80)
    assert drawing(0.8, 141) == drawing(0.9, 141)  # room for all


def test_a_cache_is_split_over_at_most_as_many_gpus_as_heads() -> None:
    """The 3B model has two: with eight GPUs each holds as much of a conversation as with two."""
    shape, machine = shape_of(known_shapes()["Qwen2.5-VL-3B"]), machine_of(8, 80)
    at_once = {}
    for size in (2, 8):
        values = codev(rollout__tensor_parallel=size, rollout__max_batch=4096).model_dump(mode="json")
        values["prompts_per_step"] = 4096
        room = phases_of(values, shape, machine)["rollout"]["KV cache"] * 1e9 / kv_token(values, shape)
        at_once[size] = _at_once(values, shape, machine, 2293) * size
        assert at_once[size] == pytest.approx(room / (2293 * (0.25 + 0.75 / 8)))
    assert at_once[8] < 1.5 * at_once[2]


@pytest.mark.parametrize(("gpus", "hosts"), [(8, 2), (16, 2), (16, 8), (8, 1)])
def test_advice_never_spreads_a_vllm_over_machines(gpus: int, hosts: int) -> None:
    model = "model=Qwen/Qwen2.5-VL-32B-Instruct"
    machine = machine_of(gpus, 80, hosts=hosts)
    for one in plan(load_recipe(find("codev", "recipes.rl"), RLRecipe, [model]), machine)["remedies"]:
        recipe = load_recipe(find("codev", "recipes.rl"), RLRecipe, [model, *one["set"]])
        check_machine(recipe, gpus // hosts)
        assert gpus // hosts % recipe.update.sequence_parallel == 0


@pytest.mark.parametrize(("gpus", "hosts"), [(1, 1), (8, 1), (12, 2), (16, 2), (20, 4), (64, 8)])
def test_gpus_take_as_few_machines_as_have_the_same_number_each(gpus: int, hosts: int) -> None:
    assert hosts_of(gpus) == hosts


def test_more_gpus_are_advised_on_similar_machines() -> None:
    four = machine_of(8, 80, hosts=2)
    assert [_grown(four, gpus).hosts for gpus in (16, 32)] == [4, 8]
    assert _grown(machine_of(12, 80), 16).hosts == 2  # six do not divide 16
    assert _grown(machine_of(1, 80), 8).hosts == 1


def test_gpus_of_this_machine_count_as_one_host(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"name": ["NVIDIA H100"] * 16, "memory.total": ["81559 MiB"] * 16}
    monkeypatch.setattr("vtune.runs.plan.machine._driver", said.__getitem__)
    assert [machine_of(gpus, None).hosts for gpus in (None, 16, 32)] == [1, 1, 4]


def test_advice_leaves_memory_for_many_conversations() -> None:
    """With the least that starts, two GPUs to a vLLM, one conversation of 28,672 tokens would be there."""
    recipe = load_recipe(find("codev", "recipes.rl"), RLRecipe, ["model=Qwen/Qwen2.5-VL-32B-Instruct"])
    found = plan(recipe, machine_of(16, 80))
    assert [one["fits"] for one in found["remedies"]] == [False, False, True]
    assert found["remedies"][1]["set"] == ["rollout.tensor_parallel=4", "rollout.gpu_memory=0.5"]
    assert found["then"][0].startswith("KV cache: room for 10 conversations of 28672 tokens")
    assert found["then"][1].startswith("a step takes about ")
    assert any(line.startswith("  then: KV cache") for line in plan_lines({"plan": found}))


def test_a_step_that_cannot_start_has_no_time_estimate() -> None:
    small, large = (plan(codev(), machine_of(8, memory), steps=10)["step"] for memory in (24, 141))
    timed = {"seconds", "seconds, update", "seconds, rollout", "tokens per second", "hours, all steps"}
    assert large.keys() - small.keys() == timed
    assert small == {key: large[key] for key in small}
    assert small.keys() == {"conversations", "tokens", "tokens, at most", "written"}


def test_gpus_that_share_a_row_each_hold_a_part_of_it() -> None:
    machine = machine_of(8, 80)
    alone, four = (
        phases_of(
            codev(rollout__max_tokens=131072, update__sequence_parallel=size).model_dump(mode="json"),
            SEVEN,
            machine,
        )["update"]
        for size in (1, 4)
    )
    assert four["activations"] == pytest.approx(alone["activations"] / 4, rel=0.01)
    assert alone["pictures"] / 4 < four["pictures"] < alone["pictures"] / 2
    assert four["one layer at work"] < alone["one layer at work"] / 2
    assert four["weights"] == alone["weights"]


def test_advice_shares_a_row_too_long_for_one_gpu() -> None:
    found = plan(codev(rollout__max_tokens=131072), machine_of(8, 80))
    assert found["fits"] is False
    (shared,) = [one for one in found["remedies"] if any("sequence_parallel" in word for word in one["set"])]
    assert shared["set"] == ["update.sequence_parallel=4", "update.micro_tokens=32768"]
    assert not shared["changes_learning"]
    assert found["remedies"][-1]["fits"]


def test_advice_shares_a_row_only_within_a_machine() -> None:
    """Two exchanges per layer need the links within a machine."""
    values = codev().model_dump(mode="json")
    offered = remedies(values, shape_of(known_shapes()["Qwen3-VL-8B"]), machine_of(32, 80))
    assert {one.sets.get("update.sequence_parallel", 0) for one in offered} - {0} == {2, 4, 8}


def test_a_row_is_not_shared_by_more_gpus_than_heads_allow() -> None:
    with pytest.raises(
        RecipeError, match="sequence_parallel 8 does not divide the model's 28 attention heads"
    ):
        plan(codev(update__sequence_parallel=8), machine_of(8, 80))
    with pytest.raises(RecipeError, match="6 processes do not split into groups of"):
        plan(codev(update__sequence_parallel=4), machine_of(6, 80))


def test_no_advice_is_given_that_the_recipe_would_refuse() -> None:
    shipped = load_recipe(find("codev", "recipes.rl"), RLRecipe)
    found = plan(shipped, machine_of(1, 24))
    assert found["remedies"]
    for one in found["remedies"]:
        load_recipe(find("codev", "recipes.rl"), RLRecipe, one["set"])


@pytest.mark.skipif(
    "activation_checkpointing" not in Update.model_fields, reason="the recipe has no such key yet"
)
def test_the_shipped_codev_fits_on_eight_gpus_of_80_gb() -> None:
    assert plan(load_recipe(find("codev", "recipes.rl"), RLRecipe), machine_of(8, 80))["fits"]


def test_more_gpus_or_a_smaller_model_are_advised_if_settings_do_not_suffice() -> None:
    found = plan(codev(), machine_of(1, 40))
    (more,) = [text for text in found["otherwise"] if text.startswith("4 GPUs of 40 GB, with ")]
    assert "update.sequence_parallel=4" in more
    assert "rollout.engine=transformers" not in more
    lines = list(plan_lines({"plan": found}))
    assert any(line.startswith("DOES NOT FIT: 1 GPU(s) of 40 GB") for line in lines)
    assert any("what to change" in line for line in lines)


def test_separate_servers_leave_the_training_gpus_alone() -> None:
    machine = machine_of(8, 80)
    beside = phases_of(codev().model_dump(mode="json"), SEVEN, machine)["rollout"]
    away = phases_of(codev(rollout__servers=("http://a",)).model_dump(mode="json"), SEVEN, machine)["rollout"]
    assert set(beside) - set(away) == {"vLLM weights", "vLLM at work", "KV cache"}


def test_a_batch_generated_during_training_takes_memory_too() -> None:
    machine = machine_of(8, 80)
    one, two = (
        phases_of(codev(rollout__staleness=value).model_dump(mode="json"), SEVEN, machine) for value in (0, 1)
    )
    assert set(two["update"]) - set(one["update"]) == {"vLLM weights", "vLLM at work", "KV cache"}
    assert not plan(codev(rollout__staleness=1), machine)["fits"]


def test_a_vllm_with_adapter_updates_sleeps_in_host_memory() -> None:
    machine = machine_of(8, 80)
    lora = {"rank": 16, "alpha": 32, "targets": ("q_proj",)}
    merged, alone, ahead = (
        codev(update__lora=lora, **more).model_dump(mode="json")
        for more in (
            {},
            {"rollout__adapters": "alone"},
            {"rollout__adapters": "alone", "rollout__staleness": 1},
        )
    )
    assert "weights on their way" in phases_of(merged, SEVEN, machine)["hand-over"]
    assert "weights on their way" not in phases_of(alone, SEVEN, machine)["hand-over"]
    asleep = on_host(alone, SEVEN, machine) - on_host(merged, SEVEN, machine)
    assert asleep == pytest.approx(8 * 16.58, abs=0.2)
    assert on_host(ahead, SEVEN, machine) == on_host(merged, SEVEN, machine)


def test_adapters_of_the_recipe_are_not_replaced_by_others() -> None:
    lora = {"rank": 64, "alpha": 64, "targets": ("q_proj",)}
    values = codev(update__lora=lora).model_dump(mode="json")
    assert not any("update.lora" in one.sets for one in remedies(values, SEVEN, machine_of(1, 24)))


def test_the_plan_knows_what_vllm_needs_when_it_wakes() -> None:
    """Its weights next to the trainer's, and the transfer buffer, which is as large as the embedding."""
    machine = machine_of(8, 80)
    phases = phases_of(codev().model_dump(mode="json"), SEVEN, machine)
    waking = phases["hand-over"]
    assert waking["vLLM weights"] == waking["weights"]
    assert waking["weights on their way"] == pytest.approx(152064 * 3584 * 2 / 1e9, abs=0.01)
    assert "KV cache" not in waking
    for phase in ("update", "optimizer step"):
        assert phases[phase]["vLLM's graphs"] == 1.0
    split = phases_of(codev(update__zero_stage=3).model_dump(mode="json"), SEVEN, machine)
    assert split["hand-over"]["weights on their way"] - waking["weights on their way"] == pytest.approx(
        0.54, abs=0.01
    )
    for changes in ({"rollout__servers": ("http://a",)}, {"rollout__engine": "transformers"}):
        assert "hand-over" not in phases_of(codev(**changes).model_dump(mode="json"), SEVEN, machine)


def test_the_plan_states_the_disk_space_of_checkpoints() -> None:
    """16 bytes per weight: bfloat16 twice, and three float32 numbers."""
    found = plan(codev(checkpoints__keep=3), machine_of(8, 80))
    one = 16 * SEVEN.total / 1e9
    assert found["disk_gb"] == {
        "a checkpoint": round(one, 1), "at the same time": 4, "together": round(4 * one, 1)
    }  # fmt: skip
    line = f"a checkpoint takes {one:.1f} GB of disk; 4 at a time take {4 * one:.1f} GB"
    assert line in list(plan_lines({"plan": found}))
    more = {"newest": 2, "every": 100, "best": None}
    assert plan(codev(checkpoints__keep=more), machine_of(8, 80))["disk_gb"]["at the same time"] == 5


def test_a_recipe_by_epochs_is_planned_with_the_steps_of_its_data() -> None:
    machine, curve = machine_of(8, 80), "checkpoints.keep={newest: 2, every: 500}"
    by_steps = plan(of_sft("epochs=null", "steps=7800", curve), machine)
    assert by_steps["disk_gb"]["at the same time"] == 2 + 1 + 7800 // 500
    assert by_steps["step"]["hours, all steps"] > 1
    by_epochs = plan(of_sft("epochs=3.0", curve), machine, steps=7800)
    assert (by_epochs["disk_gb"], by_epochs["step"]) == (by_steps["disk_gb"], by_steps["step"])


def test_checkpoints_for_the_curve_are_reported_even_without_the_data() -> None:
    ended = vtune(
        *("sft", "--recipe", "codev", "--dry-run", "--gpus", "8", "--gpu-memory", "80"),
        *setting(checkpoints__keep="{newest: 2, every: 500}"),
    )
    assert ended.code == 0, ended.err
    assert "3 at a time take 371.5 GB, and one more is kept every 500 steps" in ended.out
    assert "hours, all steps" not in ended.out


def test_a_dry_run_of_epochs_counts_the_steps_of_the_data(tiny: Path, lens: Path, tmp_path: Path) -> None:
    """There are 48."""
    words = sft(tiny, lens / "traces.parquet", tmp_path / "run")
    found = planned(*words, *setting(checkpoints__every=10, checkpoints__keep="{newest: 2, every: 10}"))
    assert found["steps"] == 48
    assert found["plan"]["disk_gb"]["at the same time"] == 2 + 1 + 48 // 10
    assert "hours, all steps" in found["plan"]["step"]


@pytest.mark.parametrize(
    ("name", "mib", "like"),
    [
        ("NVIDIA A100-SXM4-80GB", 81920, "A100"),
        ("NVIDIA A100 80GB PCIe", 81920, "A100"),
        ("NVIDIA A100-SXM4-40GB", 40960, "A100 40GB"),
        ("NVIDIA H100 80GB HBM3", 81559, "H100"),
        ("NVIDIA RTX A1000", 8188, "RTX 4090"),
    ],
)
def test_a_gpu_sold_in_two_memory_sizes_has_the_right_speed(
    name: str, mib: int, like: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = tmp_path / "nvidia-smi"
    driver.write_text(f'#!/bin/sh\ncase "$1" in *name*) echo "{name}";; *) echo "{mib} MiB";; esac\n')
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    machine = machine_of(None, None)
    assert machine.said == f"{name}; speeds of {like}"


def test_a_shared_vllm_has_its_share_of_weights_and_cache_on_each_gpu() -> None:
    """So orsta-32b runs on one machine with eight GPUs."""
    machine = machine_of(8, 141)
    given = ["rollout.servers=[]", "rollout.gpu_memory=0.3", "rollout.tensor_parallel=8"]
    recipe = load_recipe(find("orsta-32b", "recipes.rl"), RLRecipe, given)
    shape = shape_of(known_shapes()["Qwen2.5-VL-32B"])
    found = plan(recipe, machine)
    assert found["fits"]
    parts = shape.parameters
    weights = 2 * (parts["vision"] + parts["connector"] + parts["language"] / 8) / 1e9
    assert found["memory_gb"]["rollout"]["vLLM weights"] == pytest.approx(weights, abs=0.01)
    alone = load_recipe(find("orsta-32b", "recipes.rl"), RLRecipe, given[:2])
    assert not plan(alone, machine)["fits"]
    values = recipe.model_dump(mode="json")
    one = recipe.rollout.max_tokens * 2 * shape.layers * shape.key * 2 / 8 / 1e9
    fit = int(phases_of(values, shape, machine)["rollout"]["KV cache"] / one)
    (note,) = found["notes"]
    assert note.startswith(f"KV cache: room for {fit} conversations of {recipe.rollout.max_tokens} tokens")
    with pytest.raises(RecipeError, match="28 attention heads"):
        plan(codev(rollout__tensor_parallel=8), machine)


@pytest.mark.parametrize("gpus", [4, 8])
def test_advice_shares_a_vllm_before_generating_with_the_trained_weights(gpus: int) -> None:
    """So a 32B fits as it is: its plan said that no change of the recipe alone is enough."""
    machine = machine_of(gpus, 80)
    recipe: Any = load_recipe(find("codev", "recipes.rl"), RLRecipe)
    found = plan(recipe, machine, shape="Qwen2.5-VL-32B")
    assert not found["fits"]
    assert found["remedies"][-1]["fits"]
    for one in found["remedies"]:
        assert not one["changes_learning"]
        recipe = taking(recipe, one["set"])
    assert (recipe.rollout.engine, recipe.rollout.tensor_parallel) == ("vllm", gpus)
    check_sizes(recipe, gpus)
    assert plan(recipe, machine, shape="Qwen2.5-VL-32B")["fits"]


def test_a_vllm_is_shared_by_as_many_gpus_as_its_engine_takes() -> None:
    def sizes(**changes: Any) -> set[int]:
        offered = remedies(codev(**changes).model_dump(mode="json"), SEVEN, machine_of(8, 80))
        return {one.sets.get("rollout.tensor_parallel", 0) for one in offered} - {0}

    assert sizes() == {2, 4}, "of its 28 heads"
    assert sizes(rollout__tensor_parallel=2) == {4, 1}, "the trained weights draw on one GPU each"
    assert sizes(rollout__servers=("http://a",)) == set()
    assert (
        sizes(rollout__adapters="alone", update__lora={"rank": 8, "alpha": 8, "targets": ("q_proj",)})
        == set()
    )


@pytest.mark.parametrize(
    ("gpus", "memory", "changes", "share"),
    [
        (8, 80, {"rollout__gpu_memory": 0.1}, 0.5),
        (8, 80, {"rollout__gpu_memory": 0.25}, 0.5),
        (8, 40, {"rollout__gpu_memory": 0.4}, 0.51),
        (8, 80, {"rollout__staleness": 1}, 0.26),
    ],
)
def test_a_memory_share_too_small_for_vllm_does_not_fit_and_is_not_advised(
    gpus: int, memory: float, changes: dict[str, Any], share: float
) -> None:
    """vLLM needs 16.58 GB for the weights, 2.17 for working memory and 1.64 for one conversation: 20.39.

    Whatever else the trainer leaves is for more conversations.
    """
    machine = machine_of(gpus, memory)
    found = plan(codev(**changes), machine)
    assert not found["fits"]
    assert [f"rollout.gpu_memory={share}"] in [one["set"] for one in found["remedies"]]
    assert found["remedies"][-1]["fits"]
    recipe: Any = codev(**changes)
    for one in found["remedies"]:
        recipe = taking(recipe, one["set"])
    assert recipe.rollout.gpu_memory * memory >= 20.39
    assert plan(recipe, machine)["fits"]


def test_a_memory_share_too_small_for_vllm_is_reported_with_the_need() -> None:
    lines = list(plan_lines({"plan": plan(codev(rollout__gpu_memory=0.1), machine_of(8, 80))}))
    assert any(line.startswith("DOES NOT FIT") for line in lines)
    assert "rollout.gpu_memory 0.1 gives vLLM 8.0 GB, but it needs 20.4 GB to start" in lines


def test_advice_that_moves_memory_to_the_host_says_how_much() -> None:
    # A checkpoint that is written in the background has a copy there, too.
    recipe = load_recipe(find("orsta-32b", "recipes.rl"), RLRecipe, ["checkpoints.background=false"])
    found = plan(recipe, machine_of(8, 80))
    (remedy,) = found["remedies"]
    assert remedy["set"] == ["update.offload=[optimizer]"]
    assert remedy["host_gb"] == pytest.approx(14 * 32.76, abs=1)
    assert any(
        f"and {remedy['host_gb']:g} GB of the host's memory" in line for line in plan_lines({"plan": found})
    )


def test_a_step_of_codev_takes_minutes_on_eight_h200_as_its_authors_had() -> None:
    """288 GPU hours for 200 steps on 8 H200 (CodeV §5.1) are 648 s per step, tools and judges included."""
    values = codev().model_dump(mode="json")
    step = step_of(values, SEVEN, machine_of(8, 141))["step"]
    assert step["conversations"] == 2048
    assert 648 / 8 < step["seconds"] < 648
    twice = step_of(values, SEVEN, machine_of(16, 141))["step"]
    assert twice["seconds"] == pytest.approx(step["seconds"] / 2, rel=0.1)


def test_a_dry_run_refuses_a_vllm_spread_over_machines(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("first slots=4\nsecond slots=4\n")
    words = ["rl", "--recipe", "codev", "--dry-run", "--gpus", "2", "--hostfile", tmp_path / "hosts"]
    ended = vtune(*words, "--gpu-memory", "80", "--set", "rollout.tensor_parallel=4")
    assert ended.code == 2
    assert "rollout.tensor_parallel 4 would spread one vLLM over several machines" in ended.err
    assert "which have 2 processes each" in ended.err


def test_untrained_parts_take_no_backward_time() -> None:
    """By hand, of 6 N D: the forward, the gradient of inputs, that of weights, and the forward once more."""
    machine = machine_of(8, 141)

    def seconds(**changes: Any) -> float:
        found: float = step_of(codev(**changes).model_dump(mode="json"), SEVEN, machine)["step"][
            "seconds, update"
        ]
        return found

    towers, lora = ["vision", "connector"], {"rank": 8, "alpha": 8.0, "targets": ["q_proj"]}
    tokens, patches, share = 300 + 1275 + 318 + 400, (1275 + 318) * 4, 2048 // 8
    part = SEVEN.parameters
    body = part["language"] - SEVEN.head
    language = 2 * tokens * body + 2 * SEVEN.layers * SEVEN.query * tokens**2
    language += 2 * 400 * SEVEN.vocab * SEVEN.hidden
    looking = 2 * patches * (part["vision"] + part["connector"] / 4)
    speed = 0.35 * 989e12 / share
    assert seconds() == pytest.approx(4 * (language + looking) / speed, rel=0.001)
    assert seconds(update__freeze=towers) == pytest.approx((4 * language + looking) / speed, rel=0.001)
    for frozen in ([], towers):
        found = seconds(update__freeze=frozen, update__lora=lora)
        assert found == pytest.approx((3 * language + looking) / speed, rel=0.001)


def test_a_prompt_is_prefilled_once_per_group_and_with_transformers_once_per_turn() -> None:
    """By hand, in operations per conversation of 100 written tokens after a prompt of 1000 and a crop of 200.

    A single conversation of two turns reads its prompt, and then, with transformers, prompt, turn and crop.
    """
    shape = shape_of(known_shapes()["Qwen2.5-VL-3B"])
    row = _Conversation(tokens=1300, prompt=1000, patches=480, shared_patches=400, written=100, turns=2)

    def reads(tokens: int, patches: int) -> float:
        return sum(forward_flops(shape, Work(tokens, tokens**2 / 2, patches, 0)).values())

    prompt = reads(1000, 400)
    for again, own in ((False, reads(1200, 480)), (True, reads(1250, 480))):
        alone = _prefill_flops(shape, row, 1, again=again)
        assert alone == pytest.approx(own + prompt * again)
        shared = _prefill_flops(shape, row, 8, again=again)
        assert alone - shared == pytest.approx((1 + again) * prompt * 7 / 8)


def test_generation_ahead_on_servers_takes_no_step_time() -> None:
    """And a plan says how fast it takes them to be: it does not know what they run on."""
    found = [
        step_of(
            codev(rollout__servers=["http://a:8000"], rollout__staleness=ahead).model_dump(mode="json"),
            SEVEN,
            machine_of(8, 80),
        )
        for ahead in (0, 1)
    ]
    update, rollout = (found[1]["step"][f"seconds, {phase}"] for phase in ("update", "rollout"))
    assert found[0]["step"]["seconds"] == pytest.approx(update + rollout, abs=0.11)
    assert found[1]["step"]["seconds"] == max(update, rollout)
    assert found[0]["assumed"]["servers"].startswith("as fast as 8 such GPUs")
    assert "servers" not in step_of(codev().model_dump(mode="json"), SEVEN, machine_of(8, 80))["assumed"]


def test_a_dry_run_for_several_machines_states_the_needs_of_each(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("one slots=8\ntwo slots=8\n")
    words = ["rl", "--recipe", "orsta-32b", "--dry-run", "--gpus", "8", "--gpu-memory", "80", "--json"]
    check = json.loads(vtune(*words, "--hostfile", hosts).out)["check"]
    assert check["plan"]["machine"]["hosts"] == 2
    assert any("http://localhost" in line and "each of the 2 machines" in line for line in check["warnings"])
    assert any(line.startswith("rollout server http://localhost:8000: ") for line in check["missing"])
    servers = check["plan"]["servers"]
    assert servers > 0
    beside = f"besides these, {servers} vLLM server(s) need their own GPUs to generate"
    lines = list(plan_lines(check))
    place = next(n for n, line in enumerate(lines) if line.startswith(("fits", "DOES NOT")))
    assert lines[place + 1] == beside
    assert not any(
        "their own GPUs" in line for line in plan_lines({"plan": plan(codev(), machine_of(8, 80))})
    )
    alone = json.loads(vtune(*words).out)["check"]
    assert not any("machines" in line for line in alone["warnings"])
    judged = "eval={every: 1, suites: [{suite: lens, settings: {reward.judge: JUDGE}}]}"
    judge = (
        "{base_url: 'http://127.0.0.1:9/v1', model: big, api_key_env: null, concurrency: 1, retries: 0, "
        "timeout_s: 1, temperature: 0.0, max_tokens: 8}"
    )
    words = ["sft", "--recipe", "codev", "--dry-run", "--gpus", "8", "--gpu-memory", "80", "--json"]
    words += setting(**{"eval": judged.removeprefix("eval=").replace("JUDGE", judge)})
    (warning,) = json.loads(vtune(*words, "--hostfile", hosts).out)["check"]["warnings"]
    assert "reward.judge.base_url is http://127.0.0.1:9/v1, which each of the 2 machines" in warning


@pytest.mark.parametrize("tools", [("python",), ()])
def test_a_run_without_code_needs_no_sandbox_memory(
    tools: tuple[str, ...], lens: Path, tmp_path: Path
) -> None:
    data = tmp_path / "some.parquet"
    write_samples(data, [replace(one, tools=tools) for one in read_samples(lens / "train.parquet")])
    words = ["rl", "--recipe", "codev-tiny", "--dry-run", "--json", "--set", f"data=[{data}]"]
    check = json.loads(vtune(*words, "--set", "model=nobody/none-7b").out)["check"]
    assert check["missing"]
    assert (check["plan"]["sandbox"] is None) is (not tools)


def test_a_dry_run_without_model_and_data_estimates_and_lists_what_is_missing() -> None:
    ended = vtune("rl", "--recipe", "codev", "--dry-run", "--gpus", "8", "--gpu-memory", "80", "--json")
    assert ended.code == 0, ended.err
    check = json.loads(ended.out)["check"]
    *here, judge = check["missing"]
    assert here == ["model models/codev-7b-sft", "data file data/curated/codev-rl/samples.parquet"]
    assert judge.startswith(
        "judge (http://localhost:18901/v1, model Qwen/Qwen2.5-VL-32B-Instruct): the judge gave"
    )
    assert check["plan"]["memory_gb"]["update"]["weights"] == pytest.approx(16.58, abs=0.01)
    started = vtune("rl", "--recipe", "codev", "--out", "/nonexistent/run")
    assert started.code == 2


def test_a_missing_index_is_listed_and_an_invalid_one_refused(tiny: Path, lens: Path, tmp_path: Path) -> None:
    section = {"index": str(tmp_path / "index"), "top_k": 3, "max_chars": 100}
    given = ("--set", f"tools={json.dumps({'text_search': section})}")
    words = rl(tiny, lens / "train.parquet", tmp_path / "run", *given)
    ended = vtune(*words, "--dry-run", "--json")
    assert ended.code == 0, ended.err
    assert f"index {tmp_path / 'index'} (tools.text_search)" in json.loads(ended.out)["check"]["missing"]
    assert (vtune(*words).code, (tmp_path / "run").exists()) == (2, False)
    (tmp_path / "index").mkdir()
    ended = vtune(*words, "--dry-run")
    assert (ended.code, "no index in" in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            ["update.lora={rank: 64, alpha: 128, targets: [q_porj]}"],
            "no trainable linear layer is called q_porj",
        ),
        (["rollout.adapters=alone", "update.lora=null"], "nothing is adapted"),
    ],
)
def test_a_dry_run_refuses_adapters_that_a_run_would_refuse(
    settings: list[str], said: str, tiny: Path, lens: Path, tmp_path: Path
) -> None:
    given = [word for one in settings for word in ("--set", one)]
    by_shape = vtune("rl", "--recipe", "codev", "--dry-run", "--gpus", "8", "--gpu", "H100", *given)
    assert (by_shape.code, said in by_shape.err) == (2, True), by_shape.err
    given += ["--set", "rollout.engine=vllm"] if "adapters" in settings[0] else []
    here = rl(tiny, lens / "train.parquet", tmp_path / "run", "--dry-run", *given)
    ended = vtune(*here)
    assert (ended.code, said in ended.err) == (2, True), ended.err


def test_the_plan_is_printed_above_the_recipe_as_comments(tmp_path: Path) -> None:
    ended = vtune("sft", "--recipe", "codev", "--dry-run", "--gpus", "8", "--gpu-memory", "141")
    assert ended.code == 0, ended.err
    assert "# missing here, so a start would fail: model Qwen/Qwen2.5-VL-7B-Instruct;" in ended.out
    assert "# weights " in ended.out
    copy = tmp_path / "copy.yaml"
    copy.write_text(ended.out)
    again = vtune("sft", "--recipe", copy, "--dry-run", "--gpus", "8", "--gpu-memory", "141")
    assert again.out == ended.out


def test_a_dry_run_reads_shape_and_pictures_from_local_files(tiny: Path, lens: Path, tmp_path: Path) -> None:
    for words in (
        rl(tiny, lens / "train.parquet", tmp_path / "run", "--dry-run", "--json"),
        sft(tiny, lens / "traces.parquet", tmp_path / "run", "--dry-run", "--json"),
    ):
        ended = vtune(*words)
        assert ended.code == 0, ended.err
        check = json.loads(ended.out)["check"]
        assert check["missing"] == []
        assert check["plan"]["fits"]
        file, _, count = check["plan"]["shape"].partition(": ")
        assert file == str(tiny / "config.json")
        assert re.fullmatch(r"\d\.\d\d M parameters", count)
        assert check["plan"]["assumed"]["from data"]
        assert not (tmp_path / "run").exists()


def pictured(folder: Path, count: int) -> Path:
    """A file of samples with `count` pictures each, judged by a model."""
    images = tuple(Picture(encode(noise(448, 448, number))) for number in range(count))
    text = "<image>" * count + "What colour is the cup?\nOptions:\nA. red\nB. blue"
    rows = [sample(id=f"quiz/{n}", images=images, prompt=(Message("user", text),)) for n in range(4)]
    write_samples(folder / f"{count}.parquet", rows)
    return folder / f"{count}.parquet"


def planned(*words: str | Path) -> Any:
    ended = vtune(*words, "--dry-run", "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)["check"]


def asked_by(judge: FakeJudge) -> list[str]:
    text = ", ".join(
        f"{key}: {value}" for key, value in judge.endpoint(api_key_env="null").model_dump().items()
    )
    return setting(reward__judge="{" + text + "}")


def test_the_plan_uses_the_datas_pictures_even_without_the_model(tmp_path: Path) -> None:
    with serve("1") as judge:
        words = ["rl", "--recipe", "codev", "--gpus", "8", "--gpu-memory", "80", *asked_by(judge)]
        words += setting(rollout__max_turns=1)
        one, three = (planned(*words, *setting(data=f"[{pictured(tmp_path, count)}]")) for count in (1, 3))
    assert one["missing"] == three["missing"] == ["model models/codev-7b-sft"]
    assert (one["samples"], one["judged_looks"], one["judged_answers"]) == (4, 4, 0)
    assert [plan["plan"]["assumed"]["pictures of a row"] for plan in (one, three)] == [1.0, 3.0]
    each = one["plan"]["assumed"]["tokens of a picture"]
    assert each == three["plan"]["assumed"]["tokens of a picture"] == 448 * 448 // 28**2
    tokens = [plan["plan"]["assumed"]["tokens per conversation"] for plan in (one, three)]
    assert tokens[1] - tokens[0] == 2 * each
    memory = [plan["plan"]["memory_gb"]["update"]["pictures"] for plan in (one, three)]
    assert memory[1] == pytest.approx(3 * memory[0], rel=0.01)


def test_the_pictures_of_traces_are_all_counted(tiny: Path, lens: Path, tmp_path: Path) -> None:
    traces = list(read_trajectories(lens / "traces.parquet"))[:64]
    mean = sum(len(trace.images) for trace in traces) / len(traces)
    assert mean > 1
    found = planned(*sft(tiny, lens / "traces.parquet", tmp_path / "run"))["plan"]["assumed"]
    assert found["pictures of a row"] == pytest.approx(mean, abs=0.005)


def test_a_judge_that_does_not_answer_is_found_by_a_dry_run_and_at_the_start(
    tiny: Path, tmp_path: Path
) -> None:
    words = ["rl", "--recipe", "codev-tiny", "--out", tmp_path / "run", *setting(model=tiny)]
    words += setting(data=f"[{pictured(tmp_path, 1)}]")
    with serve(404) as judge:
        (missing,) = planned(*words, *asked_by(judge))["missing"]
        started = vtune(*words, *asked_by(judge))
    assert missing.startswith(
        f"judge ({judge.endpoint().base_url}, model judge): the judge gave no reply: NotFound"
    )
    assert started.code == 1
    assert "the judge gave no reply: NotFoundError" in started.err
    assert not (tmp_path / "run").exists()
    with serve("") as judge:
        assert "its 8 max_tokens were spent on thoughts" in planned(*words, *asked_by(judge))["missing"][0]
    with serve("1") as judge:
        assert planned(*words, *asked_by(judge))["missing"] == []
    (request,) = judge.requests
    assert [part["type"] for part in request["messages"][1]["content"]] == ["text", "image_url"]


def test_a_judge_that_no_sample_needs_is_not_asked(tiny: Path, lens: Path, tmp_path: Path) -> None:
    with serve(404) as judge:
        words = rl(tiny, lens / "train.parquet", tmp_path / "run", *asked_by(judge))
        assert planned(*words)["missing"] == []
    assert judge.requests == []


def test_an_occupied_default_folder_does_not_stop_a_dry_run(
    tiny: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/codev-tiny").mkdir(parents=True)
    (tmp_path / "runs/codev-tiny/recipe.yaml").write_text("seed: 0\n")
    given = setting(model=tiny, data=f"[{lens / 'train.parquet'}]")
    ended = vtune("rl", "--recipe", "codev-tiny", *given, *setting(prompts_per_step=64), "--dry-run")
    assert ended.code == 0, ended.err
    assert "runs/codev-tiny holds a run already: starting needs another --out, or --resume" in ended.err
    assert "warning: prompts_per_step is 64, and the data have 16 samples" in ended.err
    asked = vtune("rl", "--recipe", "codev-tiny", *given, "--dry-run", "--out", "runs/codev-tiny")
    assert asked.code == 2
    assert vtune("rl", "--recipe", "codev-tiny", *given).code == 2
    (tmp_path / "runs/codev-tiny/curation.json").touch()
    curated = vtune("rl", "--recipe", "codev-tiny", *given, "--dry-run")
    assert "runs/codev-tiny holds a curation: starting needs another --out" in curated.err


def test_the_numbers_of_a_dry_run_are_in_tables(tiny: Path, lens: Path, tmp_path: Path) -> None:
    lines = vtune(*rl(tiny, lens / "train.parquet", tmp_path / "run", "--dry-run")).out.splitlines()
    at = lines.index("# a step:")
    rows = {line[3:].split("  ")[0].strip(): line for line in lines[at + 1 : lines.index("#", at)]}
    assert {"conversations", "tokens", "seconds", "hours, all steps"} <= set(rows)
    assert len({line.index(line.split()[-1]) for line in rows.values()}) == 1, "the values are aligned"
    assert "# the run:" in lines
    assert "# assumed:" in lines


def test_prompts_must_split_over_the_planned_gpus(tiny: Path, lens: Path, tmp_path: Path) -> None:
    ended = vtune(*rl(tiny, lens / "train.parquet", tmp_path / "run", "--dry-run", "--gpus", "3"))
    assert ended.code == 2
    assert "does not split over 3 processes" in ended.err


def test_a_row_that_does_not_split_is_refused_by_a_dry_run_and_at_the_start(
    tiny: Path, lens: Path, tmp_path: Path
) -> None:
    """The tiny model has three heads."""
    runs = {
        "rl": rl(tiny, lens / "train.parquet", tmp_path / "run"),
        "sft": sft(tiny, lens / "traces.parquet", tmp_path / "run"),
    }
    shared = setting(update__sequence_parallel=2)
    for words in runs.values():
        planned = vtune(*words, *shared, "--dry-run", "--gpus", "2")
        assert planned.code == 2
        assert "does not divide the model's 3 attention heads and 3 key heads" in planned.err
        started = vtune(*words, *shared)
        assert started.code == 2
        assert "1 processes do not split into groups of update.sequence_parallel 2" in started.err
    assert not (tmp_path / "run").exists()


def test_without_a_shape_there_is_no_estimate_and_the_option_is_named(tmp_path: Path) -> None:
    words = ["rl", "--recipe", "codev", "--dry-run", *setting(model="models/mine"), "--gpu-memory", "80"]
    assert "name one with --shape" in vtune(*words).out
    assert "shape: Qwen3-VL-8B, as asked" in vtune(*words, "--shape", "Qwen3-VL-8B").out
    assert vtune(*words, "--shape", "nobody").code == 2


def test_planning_options_without_a_plan_are_refused() -> None:
    ended = vtune("rl", "--recipe", "codev", "--gpu-memory", "80")
    assert ended.code == 2
    assert "only with --dry-run" in ended.err


def test_a_plan_for_a_gpu_type_uses_its_memory_and_speed() -> None:
    words = ["rl", "--recipe", "codev", "--dry-run", "--gpus", "8", "--json"]

    def planned(*options: str) -> dict[str, Any]:
        plan: dict[str, Any] = json.loads(vtune(*words, *options).out)["check"]["plan"]
        return plan

    slow, fast, less = planned("--gpu", "A100"), planned("--gpu", "h100"), planned("--gpu", "A100 40GB")
    assert (slow["machine"]["memory_gb"], less["machine"]["memory_gb"]) == (80, 40)
    assert slow["memory_gb"] == fast["memory_gb"]
    ratio = slow["step"]["seconds, update"] / fast["step"]["seconds, update"]
    assert ratio == pytest.approx(989 / 312, rel=0.01)
    both = planned("--gpu", "A100", "--gpu-memory", "40")
    assert both["machine"]["memory_gb"] == 40
    refused = vtune(*words, "--gpu", "A10")
    assert (refused.code, "A100 40GB" in refused.err) == (2, True)


@pytest.mark.parametrize("memory", ["inf", "nan", "1e300", "0"])
def test_a_gpu_memory_that_no_gpu_has_is_refused(memory: str) -> None:
    ended = vtune("rl", "--recipe", "codev", "--dry-run", "--gpu-memory", memory)
    assert (ended.code, "--gpu-memory" in ended.err) == (2, True)
