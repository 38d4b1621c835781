"""Low-rank adapters on their way to vLLM: their two matrices alone, in a folder as peft writes one."""

import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vtune.errors import RecipeError
from vtune.files.writing import open_to_others
from vtune.rollout.engine import Weights

NAME, NUMBER = "vtune", 1
"""Of the only adapter, at vLLM: each hand-over takes its place."""
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""For which vLLM makes room; an adapter of a lower rank is filled up with zeros."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """What vLLM has to know of the adapters of a run."""

    rank: int
    alpha: int
    targets: tuple[str, ...]
    """Names of linear layers."""

    @property
    def room(self) -> int:
        """The rank for which vLLM makes room.

        Raises:
            RecipeError: If it makes none for so large a rank.
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
    """The adapters as a folder that vLLM loads, inside of `folder`; nothing stays there.

    Args:
        weights: One pass over the adapters' matrices, by their names in peft's files.
        adapters: Their rank and scale.
        folder: Which vLLM sees too.
    """
    from safetensors.torch import save_file

    path = folder / uuid.uuid4().hex
    path.mkdir(parents=True)
    try:
        config = {
            "peft_type": "LORA",
            "r": adapters.rank,
            "lora_alpha": adapters.alpha,
            "target_modules": list(adapters.targets),
            "bias": "none",
        }
        (path / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
        # One at a time to the CPU: a gathered tensor is good only until the next is asked for.
        held = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in weights()}
        save_file(held, path / "adapter_model.safetensors")
        open_to_others(path / "adapter_model.safetensors")
        yield path.resolve()
    finally:
        shutil.rmtree(path)
