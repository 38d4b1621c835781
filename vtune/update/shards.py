"""A checkpoint's weights as a plain Hugging Face folder, of which each process writes its share."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from vtune.files.writing import open_to_others
from vtune.models.adapter_files import write_adapters
from vtune.models.policy import Policy, save_policy, stored_names
from vtune.update.deepspeed import Trainer
from vtune.update.lora import adapted_layers, units
from vtune.update.manifest import ADAPTERS
from vtune.update.ranks import Ranks
from vtune.update.zero import buckets

WHOLE = "model.safetensors"
"""The file with all weights, if one process writes them."""
INDEX = "model.safetensors.index.json"
"""Otherwise, this file says which file holds which weight."""


class Share(NamedTuple):
    """Where a weight of the model is written."""

    rank: int
    """The process that writes it."""
    stored: str
    """Its name in the file."""


def write_weights(folder: Path, trainer: Trainer, policy: Policy, source: str, ranks: Ranks) -> None:
    """Write a Hugging Face folder: weights and config, tokenizer and processor from `source`.

    All processes call it together. A small model is written to one file.

    Args:
        folder: The target folder; it must exist.
        trainer: Holds the weights.
        policy: The policy being trained.
        source: Folder or hub name of the model.
        ranks: This process and the others.
    """
    shares = shares_of(policy, trainer.rollouts, ranks)
    # Each process copies only its own share to host memory.
    with trainer.gathered(torch.device("cpu"), keep=lambda name: shares[name].rank == ranks.rank) as found:
        if any(share.rank for share in shares.values()):
            _write_share(folder, found.model, source, shares, ranks)
        elif ranks.first:
            save_policy(found.model, source, folder)


def write_adapters_alone(folder: Path, trainer: Trainer, policy: Policy, source: str, ranks: Ranks) -> None:
    """Write a model's adapters, if it has any, to `folder / ADAPTERS`.

    All processes call it together, and the first one writes; for the arguments see `write_weights`.
    """
    lora = trainer.lora
    if lora is None:
        return
    if not ranks.first:
        for _ in trainer.adapters():  # all processes take part in gathering
            pass
        return
    (folder / ADAPTERS).mkdir()
    write_adapters(
        folder / ADAPTERS,
        trainer.adapters(),
        rank=lora.rank,
        alpha=lora.alpha,
        targets=adapted_layers(policy.model),
        base=str(Path(source).absolute()) if Path(source).is_dir() else source,
    )


def shares_of(policy: Policy, plain: Policy, ranks: Ranks) -> dict[str, Share]:
    """The share of each weight; all processes call it together.

    Weights gathered in the same bucket go to one process, and buckets go round-robin, so that each process
    writes about as much. If several weights are stored as one, or one as several, the first writes all.

    Args:
        policy: The policy being trained.
        plain: The same without adapters.
        ranks: This process and the others.
    """
    names = [[name for unit in bucket for name in unit.names] for bucket in buckets(units(policy.model))]
    # Names in the new files are those in the file that the first process read.
    stored = ranks.gather(stored_names(plain.model) if ranks.first else None)[0]
    shares: dict[str, Share] = {}
    for number, bucket in enumerate(names):
        rank = number % ranks.world if stored else 0
        shares |= {name: Share(rank, stored[name] if stored else name) for name in bucket}
    return shares


def _write_share(folder: Path, model: Any, source: str, shares: dict[str, Share], ranks: Ranks) -> None:
    """Write this process's file; the first one also writes everything except weights, and the index."""
    count = 1 + max(share.rank for share in shares.values())
    mine = {name: p.data for name, p in model.named_parameters() if shares[name].rank == ranks.rank}
    path = folder / shard(ranks.rank, count)
    # transformers takes files with such names for an earlier save, and the first process's save removes them.
    hidden = path.with_name(f".{path.name}")
    if ranks.first:
        parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        # Anything that is not a parameter is small and exists on every process.
        mine |= {name: held for name, held in model.state_dict().items() if name not in parameters}
        save_policy(model, source, folder, state_dict=dict(mine), one_file=True)
        (folder / WHOLE).rename(hidden)
    elif mine:
        from safetensors.torch import save_file

        held = {shares[name].stored: tensor.contiguous() for name, tensor in mine.items()}
        save_file(held, hidden, metadata={"format": "pt"})
        open_to_others(hidden)
    size = sum(tensor.nbytes for tensor in mine.values())
    written = ranks.gather((_names(hidden) if mine else [], size))
    if mine:
        hidden.rename(path)
    if ranks.first:
        _write_index(folder, [names for names, _ in written[:count]], sum(size for _, size in written))


def shard(rank: int, count: int) -> str:
    """Name of one process's file if this many processes write one."""
    return f"model-{rank + 1:05d}-of-{count:05d}.safetensors"


def _names(path: Path) -> list[str]:
    """The names of the weights in a file."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return sorted(file.keys())


def _write_index(folder: Path, written: Sequence[Sequence[str]], size: int) -> None:
    """Write which file holds which weight, as transformers does, and the total size in bytes."""
    files = {name: shard(rank, len(written)) for rank, names in enumerate(written) for name in names}
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(files.items()))}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
