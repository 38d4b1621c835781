"""A micro-batch and an optimiser step on the fake CUDA device: `python -m tests.cuda.step '[CASE, …]'`.

Each case is a mapping of the fields of `tests.cuda.model.Case`. Prints a list of results as JSON. It must run
in a process that has the device (`tests/cuda/guard.py`).
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.cuda.meter import Meter
from tests.cuda.model import CUDA, IMAGE, Build, Case, Speech, build, conversations
from tests.cuda.stand_ins import without_numbers
from vtune.models.packed import Packed, pack
from vtune.models.sequence_parallel import SequenceGroup, spread_out
from vtune.runs.plan.estimate import _copied as copied_of
from vtune.update import memory
from vtune.update.forward import GPU_CHUNK, PolicyForward, checkpoint_activations
from vtune.update.losses import Tokens
from vtune.update.losses.aggregation import token_weights
from vtune.update.losses.grpo import GRPO
from vtune.update.objective import policy_terms
from vtune.update.optimizer import HeldAdamW, layer_groups

OBJECTIVE = GRPO(
    algorithm="grpo", clip_low=0.2, clip_high=0.2, importance_cap=2.0,
    aggregation="token_mean", kl_weight=0.0, kl_estimator="k3",
)  # fmt: skip


def measure(case: Case, mode: FakeTensorMode) -> dict[str, Any]:
    """What a case takes, and what the plan predicts for it."""
    made = build(case, mode)
    with without_numbers(varlen=case.varlen), mode:
        rows, counted = conversations(case, made.shape)
        packed = pack(rows, image_id=IMAGE, merge=made.shape.merge, device=CUDA)
        assert packed.pictures is not None
        grids = np.array([pixels.grid for pixels in distinct(rows)])
        packed = replace(packed, pictures=replace(packed.pictures, grids=grids))
        found = micro_batch(case, made, packed, counted)
        found |= optimizer_step(case, made)
    load = load_of(case, packed, made.shape.vocab)
    return {
        "tokens": load.tokens,
        "patches": load.patches,
        "shown": load.shown,
        "planned": memory.backward(made.shape, load),
        "planned_step": memory.stepping(made.shape, load),
        "parameters": made.shape.total,
        "numbers": sum(p.numel() for p in made.model.parameters()),
        "weights": sum(p.numel() * p.element_size() for p in made.model.parameters()),
        **found,
    }


def distinct(rows: Any) -> Iterator[Any]:
    """Each picture of the rows once, in order of first appearance."""
    yield from {id(pixels): pixels for row in rows for pixels in row.pixels}.values()


def load_of(case: Case, packed: Packed, vocabulary: int) -> memory.Load:
    """The same micro-batch in the form that the plan takes."""
    assert packed.pictures is not None
    sizes = [prod(grid) for grid in packed.pictures.grids.tolist()]
    owners = spread_out(sizes, case.shared)
    return memory.Load(
        gpus=1,
        dtype_bytes=2,
        zero_stage=1,
        tokens=-(-packed.tokens // case.shared),
        patches=sum(size for size, owner in zip(sizes, owners, strict=True) if owner == 0),
        shown=sum(sizes),
        scored=GPU_CHUNK // vocabulary,
        copied=copied_of(8),
        checkpointing=case.checkpointing,
        frozen=case.frozen,
    )


def micro_batch(case: Case, made: Build, packed: Packed, counted: int) -> dict[str, Any]:
    """Forward, loss and backward, with the gradients of an earlier micro-batch present."""
    if case.checkpointing:
        checkpoint_activations(made.model)
    group = SequenceGroup(0, case.shared, None, None) if case.shared > 1 else None
    forward = PolicyForward(made.model, Speech(), group)  # type: ignore[arg-type]
    forward.train()
    for parameter in forward.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.empty_like(parameter)
    places = torch.empty(counted, dtype=torch.long, device=CUDA)
    meter = Meter()
    meter.hold([list(forward.parameters()), [p.grad for p in forward.parameters() if p.grad is not None]])
    before = meter.now
    meter.hold([packed.input_ids, packed.position_ids, packed.pictures and packed.pictures.levels])
    with meter:
        stats = forward(packed, places, places, forward.chunks(counted))
        ahead = sum(meter.kernels.values())
        numbers = torch.empty(counted, device=CUDA)
        stale, sequence = numbers.bool(), places.clone()
        terms = policy_terms(OBJECTIVE, Tokens(stats.logprobs, numbers, numbers, stale, sequence))
        loss = (token_weights(sequence, "token_mean", length=None) * terms.loss).sum()
        loss.backward()
    return {
        "devices": sorted({str(p.grad.device) for p in forward.parameters() if p.grad is not None}),
        "crossed": dict(meter.crossed),
        "largest": meter.largest,
        "peak": meter.peak - before,
        "held": before,
        "kernels_forward": ahead,
        "kernels": sum(meter.kernels.values()),
        "by_name": dict(meter.kernels),
    }


def optimizer_step(case: Case, made: Build) -> dict[str, Any]:
    """Memory of the second AdamW step over float32 copies as in DeepSpeed, beyond what stays allocated."""
    for group in (groups := layer_groups(made.model, made.family)):
        group["params"] = [torch.nn.Parameter(p.detach().float()) for p in group["params"]]
    masters = [p for group in groups for p in group["params"]]
    optimizer = HeldAdamW(groups, lambda: False, lr=1e-6, betas=(0.9, 0.98), weight_decay=0.0)
    meter = Meter()
    for number in range(2):
        if number:
            meter.hold([masters, [list(state.values()) for state in optimizer.state.values()]])
            before = meter.now
        with meter:
            for parameter in masters:
                parameter.grad = torch.empty_like(parameter)
            optimizer.step()
            optimizer.zero_grad()
    return {"optimizer": before, "peak_step": meter.peak - before}


def main() -> None:
    """Measure the cases of the command line."""
    torch.set_num_threads(1)
    # One mode for all cases: tensors that vtune caches for the next micro-batch belong to it.
    mode = FakeTensorMode()
    print(json.dumps([measure(Case(**given), mode) for given in json.loads(sys.argv[1])]))


if __name__ == "__main__":
    main()
