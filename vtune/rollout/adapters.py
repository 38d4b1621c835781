"""Low-rank adapters on their way to vLLM: only their matrices, in a folder as peft writes it."""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vtune.errors import RecipeError
from vtune.models.adapter_files import write_adapters
from vtune.rollout.engine import Weights

NAME, NUMBER = "vtune", 1
"""Name and id of the only adapter in vLLM; each transfer replaces it."""
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks for which vLLM reserves room; an adapter of lower rank is padded with zeros."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """What vLLM needs to know about a run's adapters."""

    rank: int
    alpha: int
    targets: tuple[str, ...]
    """Names of linear layers."""

    @property
    def room(self) -> int:
        """The rank for which vLLM reserves room.

        Raises:
            RecipeError: If vLLM does not support a rank this high.
        """
        found = next((rank for rank in RANKS if rank >= self.rank), None)
        if found is None:
            raise RecipeError(
                f"update.lora.rank is {self.rank}, and vLLM takes adapters of {RANKS[-1]} at most",
                fix="lower it, or set rollout.adapters to merged",
            )
        return found


@contextmanager
def written(weights: Weights, adapters: Adapters, folder: Path) -> Iterator[Path]:
    """The adapters as a folder that vLLM loads, inside `folder`; it is removed afterwards.

    Args:
        weights: One pass over the adapters' matrices, by their names in peft's files.
        adapters: Their rank and scale.
        folder: A folder that vLLM can read too.
    """
    path = folder / uuid.uuid4().hex
    path.mkdir(parents=True)
    try:
        write_adapters(path, weights(), rank=adapters.rank, alpha=adapters.alpha, targets=adapters.targets)
        yield path.resolve()
    finally:
        shutil.rmtree(path)
