import json
import math
import socket
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import ROOT, load
from tests.runs.commands import environment
from tests.update.build import OBJECTIVE, items, logprobs_of, update, weights
from tests.update.two_processes import RUNS, UPDATES, losses
from vtune.errors import RunFailed
from vtune.models.policy import Policy
from vtune.update.batch import Item
from vtune.update.deepspeed import StepStats, Trainer, freeze, start
from vtune.update.ranks import Ranks
from vtune.update.recipe import PolicyLoss

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
    """An update that has something to learn from."""
    stats = trainer.step(share)
    assert stats is not None
    return stats


def close_to(values: Iterable[float | None]) -> list[Any]:
    """Numbers to 1e-4; what was not measured stays None."""
    return [None if value is None else pytest.approx(value, rel=1e-4, abs=1e-4) for value in values]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.train
def test_two_processes_and_one_give_the_same_losses(tiny: Path, tmp_path: Path) -> None:
    """For both objectives and stages, with shares that are even, uneven, empty, and without a picture."""
    out = tmp_path / "losses.json"
    words = [
        "--num_gpus",
        "2",
        "--master_port",
        str(free_port()),
        str(ROOT / "tests/update/two_processes.py"),
    ]
    launched = subprocess.run(
        [str(Path(sys.executable).with_name("deepspeed")), *words, str(tiny), str(out)],
        env=environment(PYTHONPATH=str(ROOT)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert out.is_file(), launched.stdout + launched.stderr
    two = json.loads(out.read_text())
    assert two["world"] == 2
    for name, run in RUNS.items():
        one = losses(tiny, ALONE, *run)
        for kind, mine, theirs in zip((*UPDATES, "weights"), one, two["losses"][name], strict=True):
            assert mine == close_to(theirs), f"{name}, {kind}"


@pytest.mark.train
@pytest.mark.parametrize("objective", [None, OBJECTIVE], ids=["sft", "rl"])
def test_the_size_of_micro_batches_changes_no_update(tiny: Path, objective: PolicyLoss | None) -> None:
    found = []
    for size in (1, 300, 4096):
        policy = load(tiny)
        trainer = trainer_of(policy, objective=objective, micro_tokens=size)
        stats = [asdict(stepped(trainer, items(policy, 7, seed=number))) for number in range(3)]
        found.append((stats, weights(policy)))
    (first, learnt), *others = found
    assert first[0]["loss"] != first[2]["loss"]
    for stats, after in others:
        for mine, theirs in zip(first, stats, strict=True):
            assert list(mine.values()) == close_to(theirs.values())
        torch.testing.assert_close(after, learnt, rtol=1e-3, atol=1e-3)


@pytest.mark.train
def test_an_update_moves_the_probability_of_what_was_better(tiny: Path) -> None:
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
    """Ratio 1: nothing is clipped, rollout and training agree, and the KL to the starting weights is 0."""
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
def test_the_size_of_the_mismatch_is_told(tiny: Path) -> None:
    """Each token was drawn a little less, or much less, likely than training says."""
    policy = load(tiny)
    drawn = items(policy, 2)
    low, cap = 0.1, 2.0
    shifted = [
        replace(item, old_logprobs=(values - shift).tolist(), moved=False)
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
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_trainer_goes_on_exactly_where_its_checkpoint_was_written(
    tiny: Path, tmp_path: Path, stage: int
) -> None:
    changes: dict[str, Any] = {
        "zero_stage": stage,
        "warmup_steps": 3,
        "schedule": "cosine",
        "freeze": ("vision",),
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
    first, second = weights(policy), weights(again)
    assert all(torch.equal(first[name], second[name]) for name in first)


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


def test_freezing_counts_every_parameter_once(tiny: Path, tiny3: Path) -> None:
    for folder in (tiny, tiny3):
        model = load(folder).model
        everything = sum(parameter.numel() for parameter in model.parameters())
        left = freeze(model, ())
        assert sum(left.values()) == everything
        assert min(left.values()) > 0
        assert freeze(model, ("connector",)) == {**left, "connector": 0}
        assert freeze(model, ()) == left


def test_freezing_a_part_that_is_not_there_fails() -> None:
    stranger = torch.nn.ModuleDict({"encoder": torch.nn.Linear(2, 2), "head": torch.nn.Linear(2, 2)})
    with pytest.raises(RunFailed, match="freezing vision had no effect"):
        freeze(stranger, ("vision",))


def test_freezing_everything_fails(tiny: Path) -> None:
    with pytest.raises(RunFailed, match="nothing to train"):
        freeze(load(tiny).model, PARTS)


@pytest.mark.train
def test_without_a_token_there_is_no_update(tiny: Path) -> None:
    policy = load(tiny)
    before = weights(policy)
    trainer = trainer_of(policy)
    silent = [replace(item, loss_mask=[False] * len(item.token_ids)) for item in items(policy, 2)]
    assert trainer.step([]) is None
    assert trainer.step(silent) is None
    assert all(torch.equal(new, before[name]) for name, new in weights(policy).items())
    assert trainer.step(items(policy, 2)) is not None


@pytest.mark.train
def test_a_loss_that_is_no_number_stops_the_run(tiny: Path) -> None:
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
