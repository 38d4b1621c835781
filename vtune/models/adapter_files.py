"""A folder of low-rank adapters, as peft writes one."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from torch import Tensor

from vtune.files.writing import open_to_others

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"


def write_adapters(
    folder: Path,
    weights: Iterable[tuple[str, Tensor]],
    *,
    rank: int,
    alpha: float,
    targets: Sequence[str],
    base: str | None = None,
) -> None:
    """Write adapters to `folder`, which must exist.

    Args:
        folder: The target folder.
        weights: The matrices of every adapter, under their names in a peft file; each need only be valid
            until the next one is requested.
        rank: Rank of the adapters.
        alpha: The adapters are scaled by `alpha / rank`.
        targets: Names, or name endings, of the layers that have an adapter.
        base: Folder or hub name of the base model, for tools that load both.
    """
    from safetensors.torch import save_file

    config = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "target_modules": list(targets),
        "bias": "none",
        "base_model_name_or_path": base,
        "inference_mode": True,
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    # Copied one at a time: a gathered tensor is valid only until the next one is requested.
    held = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in weights}
    save_file(held, folder / WEIGHTS, metadata={"format": "pt"})
    open_to_others(folder / WEIGHTS)
