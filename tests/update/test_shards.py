import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.conftest import load
from tests.update.shard_processes import BUCKET, RUNS
from tests.update.two_processes import ADAPTERS
from vtune.models.policy import Policy, stored_names
from vtune.update import shards
from vtune.update.ranks import Ranks


@pytest.mark.slow
@pytest.mark.train
def test_each_of_two_processes_writes_its_share_of_the_weights(tiny: Path, tiny3: Path, pair: Path) -> None:
    """With whole or split weights, with and without adapters: together they write the model."""
    for number, (third, _, lora) in enumerate(RUNS):
        model = tiny3 if third else tiny
        folder = (pair / "shards" / str(number) / "checkpoints/newest").resolve()
        files = [folder / shards.shard(rank, 2) for rank in range(2)]
        first, second = (load_file(file) for file in files)
        assert len({file.stat().st_mode for file in (*files, folder / "config.json")}) == 1
        sizes = [sum(tensor.nbytes for tensor in one.values()) for one in (first, second)]
        assert min(sizes) > 0.2 * max(sizes), sizes
        wanted = load_file(model / "model.safetensors")
        assert not first.keys() & second.keys()
        # Adapters start at zero.
        torch.testing.assert_close(first | second, wanted, rtol=0, atol=0)
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        assert index["metadata"]["total_size"] == sum(sizes)
        assert {name: folder / file for name, file in index["weight_map"].items()} == {
            name: file for file, one in zip(files, (first, second), strict=True) for name in one
        }
        assert not (folder / "model.safetensors").exists()
        body = dict(load(model).model.named_parameters())
        for name, read in load(folder).model.named_parameters():
            assert torch.equal(read, body[name]), name
        assert (folder / "adapters").is_dir() == lora
        # The next one was refused by both, although only the second one's weights had diverged.
        assert folder.name == "step-000003"
        refused = [(folder.parents[1] / f"refused-by-{rank}").read_text() for rank in range(2)]
        assert refused[0] == refused[1]
        assert "diverged after step 4" in refused[0]
    alone = load_file(folder / "adapters/adapter_model.safetensors")
    assert {name.split(".")[-3] for name in alone} == set(ADAPTERS.targets)
    assert all(tensor.numel() for tensor in alone.values())
    assert json.loads((folder / "adapters/adapter_config.json").read_text())["r"] == ADAPTERS.rank


def test_weights_are_stored_under_their_original_file_names(tiny: Path, tiny3: Path) -> None:
    for folder in (tiny, tiny3):
        stored = stored_names(load(folder).model)
        assert stored is not None
        assert set(stored.values()) == set(load_file(folder / "model.safetensors"))


def test_if_names_are_not_known_individually_the_first_process_writes_all(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = Ranks(rank=0, world=1, local=0)
    monkeypatch.setattr("vtune.update.zero.BUCKET", BUCKET)
    assert len({share.stored for share in shards.shares_of(policy, policy, alone).values()}) > 10
    monkeypatch.setattr(shards, "stored_names", lambda model: None)
    monkeypatch.setattr(Ranks, "gather", lambda self, value: [value, value])
    found = shards.shares_of(policy, policy, Ranks(rank=0, world=2, local=0))
    assert {share.rank for share in found.values()} == {0}
