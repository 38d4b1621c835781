import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from safetensors.torch import load_file

from tests.conftest import load
from tests.runs.commands import vtune
from tests.update.build import BY_SEQUENCE, OBJECTIVE, items, logprobs_of, update, weights
from tests.update.test_memory import shape
from tests.update.two_processes import ADAPTERS, MODELS, RUNS, UPDATES, Run, learnt
from vtune.errors import DataError, RecipeError, RunFailed
from vtune.models.families import family_of, family_of_model
from vtune.models.pictures import PixelBudget
from vtune.models.policy import Policy, load_policy
from vtune.update.batch import Item, micro_batch
from vtune.update.deepspeed import MAX_SKIPPED, StepStats, Trainer
from vtune.update.forward import PolicyForward
from vtune.update.frozen import checksum_of_frozen
from vtune.update.losses import PolicyLoss
from vtune.update.memory import Load, gradients
from vtune.update.parts import depths_of, fingerprints, freeze, layer_group
from vtune.update.ranks import Ranks
from vtune.update.recipe import LoRA
from vtune.update.shards import write_adapters_alone
from vtune.update.starting import start

ALONE = Ranks(rank=0, world=1, local=0)
PARTS = ("vision", "connector", "language")


@pytest.fixture(scope="module", autouse=True)
def group() -> None:
    start(ALONE)


def trainer_of(
    policy: Policy, *, objective: PolicyLoss | None = None, steps: int = 3, **changes: Any
) -> Trainer:
    reference = policy.model.config._name_or_path
    return Trainer(policy, update(**changes), ALONE, steps=steps, objective=objective, reference=reference)


def stepped(trainer: Trainer, share: list[Item]) -> StepStats:
    """An update with a learning signal."""
    stats = trainer.step(share)
    assert stats is not None
    return stats


def close_to(values: Iterable[float | None]) -> list[Any]:
    """Compare numbers to 1e-4; unmeasured ones must stay None."""
    return [None if value is None else pytest.approx(value, rel=1e-4, abs=1e-4) for value in values]


@pytest.mark.train
def test_two_processes_learn_the_same_as_one(tiny: Path, tiny3: Path, pair: Path, tmp_path: Path) -> None:
    """With even, uneven and empty shares, and without pictures; compares saved weights."""
    folders = dict(zip(MODELS, (tiny, tiny3, pair / "even", pair / "even3"), strict=True))
    two = torch.load(pair / "learnt/done")
    assert two["world"] == 2
    measures: dict[str, tuple[Path, list[list[float | None]]]] = {}
    for number, (name, run) in enumerate(RUNS.items()):
        # The stage does not matter with one process, so the simplest is the reference.
        plain = run._replace(stage=1, changes=plainest(run))
        if repr(plain) not in measures:
            folder = tmp_path / f"alone-{number}"
            measures[repr(plain)] = folder, learnt(folders[run.model], ALONE, plain, folder)[1]
        alone, one = measures[repr(plain)]
        for kind, mine, theirs in zip(UPDATES, one, two["numbers"][name], strict=True):
            assert mine == close_to(theirs), f"{name}, {kind}"
        mine, theirs = (
            load_file(folder / "model.safetensors") for folder in (alone, pair / "learnt" / str(number))
        )
        before = load_file(folders[run.model] / "model.safetensors")
        torch.testing.assert_close(theirs, mine, rtol=0, atol=1e-4, msg=name)
        assert max(float((mine[key] - before[key]).abs().max()) for key in mine) > 1e-3


def plainest(run: Run) -> dict[str, Any]:
    return {
        key: run.changes[key]
        for key in run.changes
        if key not in ("offload", "overlap_comm", "sequence_parallel")
    }


@pytest.mark.train
@pytest.mark.parametrize("objective", [None, OBJECTIVE, BY_SEQUENCE], ids=["sft", "rl", "rl by sequences"])
def test_the_micro_batch_size_does_not_change_the_update(tiny: Path, objective: PolicyLoss | None) -> None:
    found, flops = [], []
    for size in (1, 300, 4096):
        policy = load(tiny)
        trainer = trainer_of(policy, objective=objective, micro_tokens=size)
        stats = [asdict(stepped(trainer, items(policy, 7, seed=number))) for number in range(3)]
        flops.append([one.pop("flops") for one in stats])
        found.append((stats, weights(policy)))
    (first, learnt), *others = found
    assert first[0]["loss"] != first[2]["loss"]
    for stats, after in others:
        for mine, theirs in zip(first, stats, strict=True):
            assert list(mine.values()) == close_to(theirs.values())
        torch.testing.assert_close(after, learnt, rtol=1e-3, atol=1e-3)
    # A common prefix of two items is computed once if they are in the same micro-batch.
    assert all(apart > together for apart, *_, together in zip(*flops, strict=True))


@pytest.mark.train
def test_an_update_raises_the_probability_of_better_replies(tiny: Path) -> None:
    policy = load(tiny)
    trainer = trainer_of(policy, objective=OBJECTIVE.model_copy(update={"kl_weight": 0.0}), steps=1)
    drawn = items(policy, 4)
    before = logprobs_of(policy, drawn)
    signs = (1.0, -1.0, 1.0, -1.0)
    trainer.step(
        [
            replace(item, advantages=[sign] * item.counted, old_logprobs=old.tolist())
            for item, sign, old in zip(drawn, signs, before, strict=True)
        ]
    )
    gains = [float((new - old).mean()) for new, old in zip(logprobs_of(policy, drawn), before, strict=True)]
    assert [gain > 0 for gain in gains] == [sign > 0 for sign in signs]


@pytest.mark.train
def test_the_first_update_is_strictly_on_policy(tiny: Path) -> None:
    """Ratio 1: no clipping, rollout and training agree, and the KL to the initial weights is 0."""
    policy = load(tiny)
    drawn = items(policy, 4)
    old = logprobs_of(policy, drawn)
    stats = stepped(
        trainer_of(policy, objective=OBJECTIVE),
        [replace(item, old_logprobs=values.tolist()) for item, values in zip(drawn, old, strict=True)],
    )
    assert stats.clip_share == 0
    assert stats.kl == pytest.approx(0, abs=1e-6)
    assert stats.mismatch is not None
    assert stats.mismatch < 1e-4
    assert (stats.truncated_share, stats.mismatch_mean, stats.mismatch_kl) == pytest.approx(
        (0, 0, 0), abs=1e-5
    )
    assert stats.tokens == sum(item.counted for item in drawn)


@pytest.mark.train
def test_the_size_of_the_mismatch_is_reported(tiny: Path) -> None:
    """Each token had a slightly or much lower probability in generation than in training."""
    policy = load(tiny)
    drawn = items(policy, 2)
    low, cap = 0.1, 2.0
    shifted = [
        replace(item, old_logprobs=(values - shift).tolist(), off_policy=[False] * item.counted)
        for item, values, shift in zip(drawn, logprobs_of(policy, drawn), (low, 1.0), strict=True)
    ]
    objective = OBJECTIVE.model_copy(update={"kl_weight": 0.0, "importance_cap": cap})
    stats = stepped(trainer_of(policy, objective=objective), shifted)
    share = drawn[1].counted / sum(item.counted for item in drawn)
    assert stats.mismatch == pytest.approx(1, abs=1e-4)
    assert stats.mismatch_mean == pytest.approx(share + low * (1 - share), abs=1e-4)
    kl = share * (math.exp(1) - 2) + (1 - share) * (math.exp(low) - low - 1)
    assert stats.mismatch_kl == pytest.approx(kl, abs=1e-3)
    assert stats.truncated_share == pytest.approx(share)
    assert stats.clip_share == 0


@pytest.mark.train
@pytest.mark.parametrize("lora", [None, ADAPTERS], ids=["whole", "adapters"])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_trainer_resumes_exactly_from_its_checkpoint(
    tiny: Path, tmp_path: Path, stage: int, lora: LoRA | None
) -> None:
    changes: dict[str, Any] = {
        "zero_stage": stage,
        "warmup_steps": 3,
        "schedule": "cosine",
        "freeze": ("vision",),
        "lora": lora,
    }
    policy = load(tiny)
    trainer = trainer_of(policy, steps=4, **changes)
    for number in range(2):
        trainer.step(items(policy, 3, seed=number))
    trainer.save(tmp_path, {"step": 2})
    unbroken = [trainer.step(items(policy, 3, seed=number)) for number in (2, 3)]
    again = load(tiny)
    resumed = trainer_of(again, steps=4, **changes)
    assert resumed.load(tmp_path)["step"] == 2
    assert [resumed.step(items(again, 3, seed=number)) for number in (2, 3)] == unbroken
    first, second = learnt_weights(trainer), learnt_weights(resumed)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_checkpoint_holds_only_trained_state_and_fits_only_its_base(
    tiny: Path, tmp_path: Path, stage: int
) -> None:
    trainer = trainer_of(load(tiny), zero_stage=stage, lora=ADAPTERS)
    learnt = sum(trainer.trainable.values())
    trainer.save(tmp_path, {"step": 1})
    # Weights, master weights, two moments, and some metadata.
    written = sum(path.stat().st_size for path in tmp_path.rglob("*.pt"))
    assert written < 4 * 4 * learnt + 60_000 < (tiny / "model.safetensors").stat().st_size
    other = load(tiny)
    with torch.no_grad():
        other.model.model.language_model.layers[0].self_attn.k_proj.weight[1, 2] += 1e-3
    with pytest.raises(DataError, match="differ from those that the run was started with"):
        trainer_of(other, zero_stage=stage, lora=ADAPTERS).load(tmp_path)


@pytest.mark.parametrize("stage", [1, 3])
def test_a_checkpoint_without_a_trained_part_is_an_error(tiny: Path, tmp_path: Path, stage: int) -> None:
    trainer_of(load(tiny), zero_stage=stage, freeze=("vision", "connector")).save(tmp_path, {"step": 1})
    for path in tmp_path.rglob("*model_states.pt"):
        state = torch.load(path, weights_only=False)
        del state["module"]["model.model.language_model.norm.weight"]
        torch.save(state, path)
    with pytest.raises(RuntimeError, match=r"another model: model\.model\.language_model\.norm"):
        trainer_of(load(tiny), zero_stage=stage, freeze=("vision", "connector")).load(tmp_path)


@pytest.mark.train
def test_a_frozen_part_has_no_gradient_and_does_not_move(tiny: Path) -> None:
    for frozen in (("vision",), ("vision", "connector"), ("language",)):
        policy = load(tiny)
        before = weights(policy)
        trainer = trainer_of(policy, freeze=frozen)
        assert {part for part in PARTS if trainer.trainable[part] == 0} == set(frozen)
        trainer.step(items(policy, 3))
        moved = {part_of(name) for name, new in weights(policy).items() if not torch.equal(new, before[name])}
        assert moved == set(PARTS) - set(frozen)
        assert all(p.grad is None for p in policy.model.parameters() if not p.requires_grad)


def part_of(name: str) -> str:
    if "visual" not in name:
        return "language"
    return "connector" if "merger" in name else "vision"


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_gradient_norms_by_group_match_autograd_before_clipping(tiny: Path, stage: int) -> None:
    policy = load(tiny)
    share = items(policy, 3)
    plain = load(tiny)
    batch = micro_batch(share, plain)
    forward = PolicyForward(plain.model, plain.chat)
    stats = forward(batch.packed, batch.predicting, batch.targets, 1)
    (-stats.logprobs.sum() / len(batch.targets)).backward()
    squares: dict[str, float] = {}
    depths = depths_of([name for name, _ in plain.model.named_parameters()], plain.family)
    assert depths == {"vision": 2, "language": 2}
    for name, parameter in plain.model.named_parameters():
        square = float(parameter.grad.double().square().sum())
        for group in {layer_group(name, depths, plain.family), part_of(name)}:
            squares[group] = squares.get(group, 0.0) + square
    told = stepped(trainer_of(policy, zero_stage=stage, grad_clip=0.01, micro_tokens=100), share)
    assert told.grad_norm > 0.1
    assert told.grad_norms == pytest.approx({name: s**0.5 for name, s in squares.items()}, rel=1e-3)
    assert {"vision_early", "vision_late", "vision_ends", "connector", "language_ends"} < set(told.grad_norms)


@pytest.mark.parametrize("stage", [1, 3])
def test_a_frozen_weight_that_changes_is_detected_and_trained_ones_are_ignored(
    tiny: Path, stage: int
) -> None:
    policy = load(tiny)
    trainer = trainer_of(policy, zero_stage=stage, freeze=("vision", "connector"))
    stepped(trainer, items(policy, 2))
    assert trainer.check_frozen() == ("vision", "connector")
    moved = policy.model.model.visual.blocks[0].attn.qkv.weight
    with torch.no_grad():
        getattr(moved, "ds_tensor", moved).view(-1)[5] += 1e-3
    with pytest.raises(RunFailed, match="vision should be frozen"):
        trainer.check_frozen()


@pytest.mark.parametrize(("rank", "own"), [(0, 4), (1, 3), (2, 0)])
def test_padding_of_a_split_weight_is_ignored(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, rank: int, own: int
) -> None:
    """Seven numbers on three processes; the padding after the last is never written."""
    model = torch.nn.Linear(1, 1, bias=False).requires_grad_(False)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda group: {"the group": rank}[group])
    family = load(tiny).family
    found: dict[tuple[int, float], tuple[str, ...]] = {}
    for place in range(4):
        for value in (0.0, 1.0, math.nan):
            share = torch.arange(2.0, 6.0)
            share[place] = value
            weight: Any = model.weight
            weight.ds_tensor, weight.ds_numel, weight.ds_process_group = share, 7, "the group"
            hashes = fingerprints(model, ("language",), family)
            found[place, value] = (hashes["language"], checksum_of_frozen(model))
    for place in range(4):
        told = {found[place, value] for value in (0.0, 1.0, math.nan)}
        assert len(told) == (3 if place < own else 1)


def test_a_frozen_part_has_no_gradient_norm(tiny: Path) -> None:
    policy = load(tiny)
    told = stepped(trainer_of(policy, freeze=("vision", "connector")), items(policy, 2))
    assert set(told.grad_norms) == {"language", "language_ends", "language_early", "language_late"}
    assert told.grad_norms["language"] == pytest.approx(told.grad_norm)


@given(depth=st.integers(3, 80))
def test_every_third_of_the_layers_has_a_third_of_all_layers(depth: int) -> None:
    family = family_of("qwen2_5_vl")
    names = [f"model.language_model.layers.{number}.mlp.up_proj.weight" for number in range(depth)]
    groups = [layer_group(name, depths_of(names, family), family) for name in names]
    assert list(dict.fromkeys(groups)) == ["language_early", "language_middle", "language_late"]
    sizes = Counter(groups).values()
    assert max(sizes) - min(sizes) <= 1


def test_freezing_counts_every_parameter_once(tiny: Path, tiny3: Path) -> None:
    for folder in (tiny, tiny3):
        model = load(folder).model
        family = family_of_model(model)
        everything = sum(parameter.numel() for parameter in model.parameters())
        left = freeze(model, (), family)
        assert sum(left.values()) == everything
        assert min(left.values()) > 0
        assert freeze(model, ("connector",), family) == {**left, "connector": 0}
        assert freeze(model, (), family) == left


def test_freezing_an_unknown_part_fails() -> None:
    stranger = torch.nn.ModuleDict({"encoder": torch.nn.Linear(2, 2), "head": torch.nn.Linear(2, 2)})
    with pytest.raises(RunFailed, match="freezing vision had no effect"):
        freeze(stranger, ("vision",), family_of("qwen2_5_vl"))


def test_freezing_everything_fails(tiny: Path) -> None:
    with pytest.raises(RunFailed, match="nothing to train"):
        freeze(load(tiny).model, PARTS, family_of("qwen2_5_vl"))


@pytest.mark.train
def test_without_counted_tokens_there_is_no_update(tiny: Path) -> None:
    policy = load(tiny)
    before = weights(policy)
    trainer = trainer_of(policy)
    silent = [replace(item, loss_mask=[False] * len(item.token_ids)) for item in items(policy, 2)]
    assert trainer.step([]) is None
    assert trainer.step(silent) is None
    assert all(torch.equal(new, before[name]) for name, new in weights(policy).items())
    assert trainer.step(items(policy, 2)) is not None


@pytest.mark.train
def test_a_nan_loss_stops_the_run(tiny: Path) -> None:
    policy = load(tiny)
    trainer = trainer_of(policy)
    with torch.no_grad():
        policy.model.lm_head.weight[5, 0] = torch.nan
    with pytest.raises(RunFailed, match="the loss of update 0 is nan"):
        trainer.step(items(policy, 2))


@pytest.mark.train
def test_a_folder_without_state_is_refused(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="holds no DeepSpeed state"):
        trainer_of(load(tiny)).load(tmp_path)


@pytest.mark.train
@pytest.mark.parametrize("stage", [1, 3])
def test_only_adapters_learn_and_saved_weights_are_merged(tiny: Path, tmp_path: Path, stage: int) -> None:
    policy = load(tiny)
    before = load_file(tiny / "model.safetensors")
    run = Run(stage, OBJECTIVE, changes={"lora": ADAPTERS, "freeze": ("vision",)})
    trainer, _ = learnt(tiny, ALONE, run, tmp_path / "saved")
    assert trainer.trainable["vision"] == 0
    assert 0 < sum(trainer.trainable.values()) < 0.1 * sum(value.numel() for value in before.values())
    after = load_file(tmp_path / "saved/model.safetensors")
    assert after.keys() == before.keys()
    moved = {key for key in after if not torch.equal(after[key], before[key])}
    assert {key.split(".")[-2] for key in moved} == set(ADAPTERS.targets)
    # The adapters alone, as peft applies them to their base.
    write_adapters_alone(tmp_path, trainer, trainer._policy, str(tiny), ALONE)
    ended = vtune("export", tmp_path / "adapters", tmp_path / "merged", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["merged"]
    merged = load_file(tmp_path / "merged/model.safetensors")
    assert {key for key in merged if not torch.equal(merged[key], before[key])} == moved
    for key in moved:
        torch.testing.assert_close(merged[key], after[key])
    # The saved weights are the trained ones: a plain model gives the same results as the one with adapters.
    drawn = items(policy, 3)
    saved = logprobs_of(load(tmp_path / "saved"), drawn)
    with trainer.gathered() as whole:
        torch.testing.assert_close(logprobs_of(whole, drawn), saved, rtol=0, atol=0)
    if stage == 1:
        torch.testing.assert_close(logprobs_of(trainer._policy, drawn), saved, rtol=0, atol=1e-5)


def test_an_adapter_without_a_matching_layer_is_an_error(tiny: Path) -> None:
    lora = LoRA(rank=2, alpha=2, targets=("q_proj", "query"))
    with pytest.raises(RecipeError, match="no trainable linear layer is called query"):
        trainer_of(load(tiny), lora=lora)
    # The tower's layers are not available if it is frozen.
    with pytest.raises(RecipeError, match="is called qkv"):
        trainer_of(load(tiny), lora=LoRA(rank=2, alpha=2, targets=("qkv",)), freeze=("vision",))


@pytest.mark.train
def test_adapter_rank_and_alpha_take_effect(tiny: Path) -> None:
    counts, moved = [], []
    for rank, alpha in ((2, 4), (4, 8), (4, 80)):
        policy = load(tiny)
        before = policy.model.model.language_model.layers[0].self_attn.q_proj.weight.detach().clone()
        lora = LoRA(rank=rank, alpha=alpha, targets=("q_proj",))
        trainer = trainer_of(policy, lora=lora)
        trainer.step(items(policy, 3))
        counts.append(sum(trainer.trainable.values()))
        name = "model.language_model.layers.0.self_attn.q_proj.weight"
        moved.append(float((dict(trainer.weights())[name] - before).abs().sum()))
    assert counts[1] == counts[2] == 2 * counts[0]
    assert moved[2] > 5 * moved[1] > 0


@pytest.mark.train
def test_parts_without_adapters_count_no_backward_pass(tiny: Path) -> None:
    """Adapters only in the language model: MFU is the same whether or not `freeze` names the other parts."""
    lora = LoRA(rank=2, alpha=2, targets=("q_proj",))
    policies = [(load(tiny), freeze) for freeze in ((), ("vision", "connector"))]
    found = [
        stepped(trainer_of(one, lora=lora, freeze=parts), items(one, 2)).flops for one, parts in policies
    ]
    assert found[0] == found[1]


@pytest.mark.train
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_offload_is_enabled_on_request(tiny: Path, stage: int) -> None:
    for offload in ((), ("optimizer",), *([("optimizer", "params")] if stage == 3 else [])):
        zero = trainer_of(load(tiny), zero_stage=stage, offload=offload)._engine.optimizer
        optimizer = zero.offload_optimizer if stage == 3 else zero.cpu_offload
        assert bool(optimizer) == ("optimizer" in offload)
        if stage == 3:
            assert bool(zero.offload_param) == ("params" in offload)


def test_overlap_is_enabled_if_gradients_are_split(tiny: Path) -> None:
    for overlap in (False, True):
        engine = trainer_of(load(tiny), zero_stage=2, overlap_comm=overlap)._engine
        assert engine.zero_overlap_comm() is overlap
    with pytest.raises(ValidationError, match="overlap_comm needs zero_stage 2 or 3"):
        update(zero_stage=1, overlap_comm=True)


@pytest.mark.parametrize("lora", [None, ADAPTERS], ids=["whole", "adapters"])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_gradient_buffer_is_no_larger_than_all_gradients(
    tiny: Path, stage: int, lora: LoRA | None
) -> None:
    trainer = trainer_of(load(tiny), zero_stage=stage, lora=lora)
    zero = trainer._engine.optimizer
    assert zero.reduce_bucket_size == sum(trainer.trainable.values())
    plan = Load(
        gpus=1, dtype_bytes=4, zero_stage=1, tokens=0, patches=0, scored=0, checkpointing=True,
        lora_rank=lora.rank if lora else 0, lora_targets=lora.targets if lora else (),
    )  # fmt: skip
    assert gradients(shape(tiny), plan)["buffers"] == 4 * zero.reduce_bucket_size


def test_weights_stay_on_the_device_below_stage_3() -> None:
    with pytest.raises(ValidationError, match="needs zero_stage 3"):
        update(zero_stage=2, offload=("params",))


@pytest.mark.train
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_an_exploding_update_is_skipped_only_above_the_bound(tiny: Path, stage: int) -> None:
    policy, calm = load(tiny), load(tiny)
    share, wild = items(policy, 3), items(policy, 3, seed=1)
    trainer, other = (trainer_of(one, zero_stage=stage, skip_grad_norm=100.0) for one in (policy, calm))
    assert not stepped(trainer, share).skipped
    assert not stepped(other, share).skipped
    between = learnt_weights(trainer)
    for poison in (1e9, math.nan, math.inf):
        with poisoned(trainer, poison):
            stats = stepped(trainer, wild)
        assert stats.skipped
        torch.testing.assert_close(learnt_weights(trainer), between, rtol=0, atol=0)
    # As if the updates had never happened: weights and optimiser state are unchanged.
    for one in (trainer, other):
        assert not stepped(one, share).skipped
    torch.testing.assert_close(learnt_weights(trainer), learnt_weights(other), rtol=0, atol=0)


@pytest.mark.train
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_skipped_update_leaves_no_residue_in_an_offloaded_optimizer(tiny: Path, poison: float) -> None:
    """Otherwise those of DeepSpeed's stage 2 in bfloat16 would stay NaN from then on."""
    budget = PixelBudget(min_pixels=3136, max_pixels=12544)
    changes = {"zero_stage": 2, "skip_grad_norm": 100.0, "dtype": "bfloat16", "offload": ("optimizer",)}
    policies = [
        load_policy(str(tiny), budget=budget, dtype="bfloat16", device=torch.device("cpu")) for _ in range(2)
    ]
    trainer, other = (trainer_of(one, **changes) for one in policies)
    share, wild = items(policies[0], 3), items(policies[0], 3, seed=1)
    for one in (trainer, other):
        assert not stepped(one, share).skipped
    with poisoned(trainer, poison):
        assert stepped(trainer, wild).skipped
    for one in (trainer, other):
        assert not stepped(one, share).skipped
    torch.testing.assert_close(learnt_weights(trainer), learnt_weights(other), rtol=0, atol=0)


@pytest.mark.train
def test_too_many_skipped_updates_in_a_row_end_the_run(tiny: Path) -> None:
    policy = load(tiny)
    trainer = trainer_of(policy, skip_grad_norm=1e-9)
    for _ in range(MAX_SKIPPED):
        assert stepped(trainer, items(policy, 2)).skipped
    with pytest.raises(RunFailed, match="11 updates in a row were skipped"):
        trainer.step(items(policy, 2))


@pytest.mark.train
@pytest.mark.parametrize("stage", [1, 3])
def test_without_a_bound_a_nan_ends_the_run(tiny: Path, stage: int) -> None:
    policy = load(tiny)
    trainer = trainer_of(policy, zero_stage=stage)
    with poisoned(trainer, math.nan), pytest.raises(RunFailed, match="the loss of update 0 is nan"):
        trainer.step(items(policy, 2))
    with gradient_lost(trainer), pytest.raises(RunFailed, match="the gradient of update 0 is not a number"):
        trainer.step(items(policy, 2))


def learnt_weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in trainer.weights()}


@contextmanager
def poisoned(trainer: Trainer, factor: float) -> Iterator[None]:
    """Scale every loss by this factor."""
    forward = trainer._forward

    def wrong(*given: Any, **named: Any) -> Any:
        loss, *rest = forward(*given, **named)
        return loss * factor, *rest

    trainer._forward = wrong  # type: ignore[method-assign]
    try:
        yield
    finally:
        trainer._forward = forward  # type: ignore[method-assign]


@contextmanager
def gradient_lost(trainer: Trainer) -> Iterator[None]:
    """Finite losses with a NaN gradient."""

    def lose(gradient: torch.Tensor) -> torch.Tensor:
        return gradient * math.nan

    hook = next(p for p in trainer._policy.model.parameters() if p.requires_grad).register_hook(lose)
    try:
        yield
    finally:
        hook.remove()


@pytest.mark.parametrize("stage", [2, 3])
def test_split_bfloat16_gradients_are_summed_in_float32(tiny: Path, stage: int) -> None:
    """Many micro-batches give the gradient of one; summing in bfloat16 would lose small terms."""
    policy = in_bfloat16(tiny)
    trainer = trainer_of(policy, zero_stage=stage, dtype="bfloat16", micro_tokens=1)
    share = items(policy, 12, seed=1)
    total = sum(item.counted for item in share)
    expected = gradient_in_parts(in_bfloat16(tiny), share, total)
    stats = stepped(trainer, share)
    assert trainer._engine.optimizer.gradient_accumulation_dtype is torch.float32
    assert stats.grad_norm == pytest.approx(expected, rel=1e-3)


def in_bfloat16(folder: Path) -> Policy:
    policy = load(folder)
    policy.model.to(torch.bfloat16)
    return policy


def gradient_in_parts(policy: Policy, share: list[Item], total: int) -> float:
    """The gradient norm from each item's separate bfloat16 gradient, summed in float64."""
    module = PolicyForward(policy.model, policy.chat)
    sums: dict[str, torch.Tensor] = {}
    for item in share:
        module.zero_grad()
        batch = micro_batch([item], policy)
        stats = module(batch.packed, batch.predicting, batch.targets, 1)
        (-stats.logprobs.sum() / total).backward()
        for name, parameter in module.named_parameters():
            if parameter.grad is not None:
                sums[name] = sums.get(name, 0) + parameter.grad.double()
    return math.sqrt(sum(float(one.square().sum()) for one in sums.values()))
