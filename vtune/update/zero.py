"""The DeepSpeed ZeRO configuration: what is sharded among processes, and what is gathered again."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vtune.update import memory
from vtune.update.lora import Unit
from vtune.update.recipe import Update

UNSPLIT = 10_000
"""Largest number of weights in a parameter that ZeRO-3 does not shard: norms and biases of any model."""
SHARE = re.compile(r"zero_pp_rank_(\d+)_")
"""Matches the files in which each process writes its own share of DeepSpeed's state."""
SHARD = re.compile(r"model-(\d{5})-of-\d{5}\.safetensors")
"""Matches weight files if there are several: the file of rank r has the number r + 1."""
BUCKET = 1 << 28
"""Weights gathered at a time: half a gigabyte in bfloat16."""


def config_of(recipe: Update, *, pinned: bool) -> dict[str, Any]:
    """DeepSpeed's settings.

    Args:
        recipe: The `update` section.
        pinned: Whether offloaded tensors are in pinned host memory.
    """
    host = {"device": "cpu", "pin_memory": pinned}
    zero: dict[str, Any] = {"stage": recipe.zero_stage, "overlap_comm": recipe.overlap_comm}
    if recipe.zero_stage == 3:
        zero["stage3_param_persistence_threshold"] = UNSPLIT
    if "optimizer" in recipe.offload:
        zero["offload_optimizer"] = host
    if "params" in recipe.offload:
        zero["offload_param"] = host
    split = recipe.dtype == "bfloat16" and recipe.zero_stage >= 2
    return {
        # In bfloat16 a sum over many micro-batches loses its small terms. A sharded float32 sum is small; an
        # unsharded one (stage 1) would take as much memory as the weights twice.
        "data_types": {"grad_accum_dtype": "fp32" if split else None},
        # Micro-batches are sized in tokens, which DeepSpeed need not know.
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        # An update ends when `step` is called, after any number of micro-batches.
        "managed_gradient_accumulation": False,
        "gradient_clipping": recipe.grad_clip,
        "steps_per_print": 10**9,
        "bf16": {"enabled": recipe.dtype == "bfloat16", "check_grad_overflow": True},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": zero,
    }


def with_buffer(settings: dict[str, Any], trained: int) -> dict[str, Any]:
    """The settings, with a gradient buffer no larger than all gradients together.

    DeepSpeed allocates the full size regardless of use: a gigabyte in bfloat16, which adapters would not
    fill.

    Args:
        settings: From `config_of`.
        trained: Number of parameters that the optimiser changes, over all processes.
    """
    size = {"reduce_bucket_size": min(memory.BUCKET, trained)}
    return settings | {"zero_optimization": settings["zero_optimization"] | size}


def writer_of(path: Path) -> int:
    """The process that writes a checkpoint file: the owner of a share of state or weights, else the first."""
    if shard := SHARD.fullmatch(path.name):
        return int(shard[1]) - 1
    found = SHARE.search(path.name)
    return int(found[1]) if found else 0


def buckets(found: Iterator[Unit]) -> Iterator[list[Unit]]:
    """Groups consecutive units into buckets of limited size."""
    bucket: list[Unit] = []
    size = 0
    for unit in found:
        bucket.append(unit)
        size += sum(getattr(parameter, "ds_numel", parameter.numel()) for parameter in unit.needs)
        if size >= BUCKET:
            yield bucket
            bucket, size = [], 0
    if bucket:
        yield bucket


def forget_gradients(optimizer: Any) -> None:
    """Drop the accumulated gradients of a skipped update.

    If the optimiser is offloaded, stage 2 of DeepSpeed 0.19 keeps float32 sums and adds to them: a single NaN
    gradient would stay in all following updates.
    """
    sums = getattr(optimizer, "averaged_gradients", None)
    if sums is not None and getattr(optimizer, "cpu_offload", False):
        optimizer.averaged_gradients = dict.fromkeys(sums)


def outside_zero(layer: Any) -> None:
    """Take a layer out of ZeRO-3's bookkeeping; its weights are gathered once per update, and then kept.

    ZeRO-3 gathers and prefetches in the order in which modules run, which must be the same on all processes.
    The output layer runs once per chunk of tokens, and processes have different numbers of chunks.
    """
    parameters = list(layer.parameters())
    for parameter in parameters:
        parameter.ds_persist = True
    for module in layer.modules():
        module._forward_pre_hooks.clear()
        module._forward_hooks.clear()

    def gather(*_: Any) -> None:
        # `ds_status` is a DeepSpeed `ZeroParamStatus`.
        if missing := [p for p in parameters if p.ds_status.name != "AVAILABLE"]:
            missing[0].all_gather(missing)

    layer.register_forward_pre_hook(gather)
