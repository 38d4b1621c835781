import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.conftest import load
from tests.update.pair import both_end_well
from vtune.models.policy import Policy, stored_names
from vtune.update import shards
from vtune.update.ranks import Ranks

WRITE = """
import sys
from pathlib import Path
import torch
from tests.update.build import update
from tests.update.two_processes import ADAPTERS
from vtune.models.pictures import PixelBudget
from vtune.runs.train.checkpoint_manager import CheckpointManager
from vtune.update import zero
from vtune.update.deepspeed import Trainer, start
from vtune.update.loading import starting_policy
from vtune.update.ranks import Ranks
from vtune.update.recipe import Checkpoints

zero.BUCKET = 30_000
torch.set_num_threads(1)
ranks = start(Ranks.of_this_process())
budget = PixelBudget(min_pixels=3136, max_pixels=12544)
for number, (model, stage, lora) in enumerate(RUNS):
    recipe = update(zero_stage=stage, lora=ADAPTERS if lora else None)
    policy = starting_policy(model, budget, recipe, ranks)
    trainer = Trainer(policy, recipe, ranks, steps=1, objective=None, reference=model)
    often = Checkpoints(every=1, minutes=None, keep=1, background=number > 0)
    with CheckpointManager(often, Path(str(number)), ranks) as checkpoints:
        checkpoints.save(trainer, policy, model, 3)
    trainer.load(Path(str(number), "checkpoints/newest/deepspeed"))
"""


@pytest.mark.slow
@pytest.mark.train
def test_each_of_two_processes_writes_its_share_of_the_weights(
    tiny: Path, tiny3: Path, tmp_path: Path
) -> None:
    """Whole on each or split, with adapters and without: what they write together is the model."""
    runs = [(str(tiny), 1, False), (str(tiny), 3, False), (str(tiny3), 3, True)]
    both_end_well(f"RUNS = {runs!r}\n{WRITE}", tmp_path)
    for number, (model, *_) in enumerate(runs):
        folder = (tmp_path / str(number) / "checkpoints/newest").resolve()
        files = [folder / shards.shard(rank, 2) for rank in range(2)]
        first, second = (load_file(file) for file in files)
        sizes = [sum(tensor.nbytes for tensor in one.values()) for one in (first, second)]
        assert min(sizes) > 0.2 * max(sizes), sizes
        wanted = load_file(Path(model) / "model.safetensors")
        assert not first.keys() & second.keys()
        # Adapters begin at zero.
        torch.testing.assert_close(first | second, wanted, rtol=0, atol=0)
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        assert index["metadata"]["total_size"] == sum(sizes)
        assert {name: folder / file for name, file in index["weight_map"].items()} == {
            name: file for file, one in zip(files, (first, second), strict=True) for name in one
        }
        assert not (folder / "model.safetensors").exists()
        body = dict(load(Path(model)).model.named_parameters())
        for name, read in load(folder).model.named_parameters():
            assert torch.equal(read, body[name]), name


def test_weights_are_stored_under_the_names_of_the_file_that_they_came_from(tiny: Path, tiny3: Path) -> None:
    for folder in (tiny, tiny3):
        stored = stored_names(load(folder).model)
        assert stored is not None
        assert set(stored.values()) == set(load_file(folder / "model.safetensors"))


def test_where_names_are_not_known_one_by_one_the_first_process_writes_all(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = Ranks(rank=0, world=1, local=0)
    monkeypatch.setattr("vtune.update.zero.BUCKET", 30_000)
    assert len({share.stored for share in shards.shares_of(policy, policy, alone).values()}) > 10
    monkeypatch.setattr(shards, "stored_names", lambda model: None)
    monkeypatch.setattr(Ranks, "gather", lambda self, value: [value, value])
    found = shards.shares_of(policy, policy, Ranks(rank=0, world=2, local=0))
    assert {share.rank for share in found.values()} == {0}
