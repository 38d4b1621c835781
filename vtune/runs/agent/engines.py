"""Opens the engine that generates a run's rollouts."""

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from vtune.models.device import release_cache
from vtune.models.pictures import PixelBudget, widest
from vtune.models.policy import Dtype, Policy
from vtune.models.shape import find_shape
from vtune.rollout.adapters import NAME, Adapters
from vtune.rollout.engine import Engine, Weights
from vtune.rollout.engine_thread import EngineThread
from vtune.rollout.recipe import Rollout, TrainingRollout
from vtune.rollout.stopwatch import Stopwatch
from vtune.rollout.tensor_parallel import TensorParallelGroup
from vtune.rollout.transformers import TransformersEngine
from vtune.runs.agent.kinds import Kind, check_devices, check_tensor_parallel, check_vllm
from vtune.update.ranks import MEETINGS, Ranks

if TYPE_CHECKING:
    from vtune.rollout.fleet import Fleet

EVAL_GPU_MEMORY = 0.9
"""Share of the GPU for a vLLM that has the GPU to itself; vLLM's own default."""
SHORT_TOKENS = 1024
"""Token limit for the conversations with `vllm_on`."""


def training_engine(
    recipe: TrainingRollout,
    policy: Policy,
    *,
    model: str,
    dtype: Dtype,
    threads: int,
    ranks: Ranks,
    folder: Path,
    waiting: Stopwatch,
    also: Sequence[tuple[Rollout, PixelBudget]] = (),
    adapters: Adapters | None = None,
) -> Engine:
    """The engine that a recipe asks for; its weights arrive with the first `take`.

    Args:
        recipe: How conversations are generated.
        policy: The model in training.
        model: Folder or hub name of the model.
        dtype: Dtype of the weights.
        threads: CPU threads of this process, or of its vLLM on a CPU.
        ranks: Rank of this process; the first rank sends weights to the servers.
        folder: For weights in transit; servers must see it too.
        waiting: Stopwatch, covered while the engine generates.
        also: Conversations and pictures that it will handle besides those of training.
        adapters: Adapters of the model in training, if only these are handed over.
    """
    if recipe.engine == "transformers":
        return TransformersEngine(
            policy, max_batch=recipe.max_batch, waiting=waiting, threads=drawing_threads(recipe, threads)
        )
    check_vllm()
    if recipe.servers:
        from vtune.rollout.servers import ServersEngine

        send = _to_servers(policy, ranks, folder, adapters)
        name = None if adapters is None else NAME
        return ServersEngine(policy, recipe.servers, send, waiting=waiting, model=name)
    from vtune.rollout.vllm import Setup, VllmEngine
    from vtune.rollout.vllm_tensor_parallel import TensorParallelEngine

    gpus = recipe.tensor_parallel
    group = _tensor_parallel_group(gpus, policy, ranks)
    if group is not None and not group.first:
        return TensorParallelEngine(policy, group, waiting=waiting)
    setup = Setup(
        model=model,
        dtype=dtype,
        max_tokens=max(recipe.max_tokens, *(other.max_tokens for other, _ in also), 0),
        # The first process of a group generates for all of them.
        max_batch=recipe.max_batch * gpus,
        gpu_memory=recipe.gpu_memory,
        threads=threads,
        device=policy.device,
        tensor_parallel=gpus,
        budget=widest([policy.pictures.budget, *(budget for _, budget in also)]),
        adapters=adapters,
    )
    make = partial(VllmEngine, policy, setup, folder, waiting=waiting, tp_group=group)
    return make() if group is None else EngineThread(make, policy.device)


def drawing_threads(recipe: Rollout, threads: int) -> int:
    """How many of a process's CPU threads generate: one fewer if tools run between turns.

    Tools and judges run while the engine generates, and it has to wait for them in the end; a thread that
    spins between two matrix products keeps its core from them. The number depends only on the recipe, not on
    the machine's cores: with another number of threads sums, and therefore samples, differ in the last bit.
    """
    return threads if recipe.max_turns == 1 else max(1, threads - 1)


def _tensor_parallel_group(gpus: int, policy: Policy, ranks: Ranks) -> TensorParallelGroup | None:
    """The processes that share a vLLM with this one; None: this process has its own."""
    if gpus == 1:
        return None
    # vLLM asks for its share of the free memory on all their GPUs, and starts once the group is formed.
    release_cache(policy.device)
    return TensorParallelGroup.formed(ranks.rank, ranks.world, gpus, patience=MEETINGS)


def _to_servers(
    policy: Policy, ranks: Ranks, folder: Path, adapters: Adapters | None
) -> "Callable[[Weights, Fleet, str], Awaitable[None]]":
    """The function that sends weights to servers."""
    from vtune.rollout.sending import adapters_sender, files_sender

    if adapters is not None:
        return adapters_sender(folder, adapters, first=ranks.first)
    if policy.device.type == "cuda":
        from vtune.rollout.vllm_nccl import nccl_sender

        return nccl_sender(policy, policy.device, first=ranks.first)
    return files_sender(folder, first=ranks.first)


async def evaluation_engine(
    kind: Kind,
    recipe: Rollout,
    policy: Policy,
    *,
    model: str,
    dtype: Dtype,
    threads: int,
    folder: Path,
) -> Engine:
    """An engine for weights that stay as loaded; the arguments are those of `training_engine`.

    Each conversation is seeded by its own key: generated again on its own, it comes out the same.
    """
    gpus = recipe.tensor_parallel
    found = find_shape(model, None) if gpus > 1 else None
    check_tensor_parallel(gpus, found and found[0], kind=kind)
    if kind == "transformers":
        few = drawing_threads(recipe, threads)
        return TransformersEngine(policy, max_batch=recipe.max_batch, threads=few, apart=True)
    check_vllm()
    check_devices(gpus)
    from vtune.rollout.vllm import Setup, VllmEngine

    setup = Setup(
        model=model,
        dtype=dtype,
        max_tokens=recipe.max_tokens,
        max_batch=recipe.max_batch,
        gpu_memory=EVAL_GPU_MEMORY,
        threads=threads,
        tensor_parallel=gpus,
        device=torch.device("cuda" if torch.cuda.is_available() else "cpu"),
    )
    engine = VllmEngine(policy, setup, folder)
    await engine.keep_loaded()
    return engine


@asynccontextmanager
async def vllm_on(policy: Policy, folder: Path, dtype: Dtype) -> AsyncIterator[Engine]:
    """A vLLM with the weights of a model folder, for a few short turns; `policy` is the same model."""
    check_vllm()
    from vtune.rollout.vllm import Setup, VllmEngine

    setup = Setup(
        model=str(folder),
        dtype=dtype,
        max_tokens=SHORT_TOKENS,
        max_batch=1,
        gpu_memory=EVAL_GPU_MEMORY,
        threads=1,
        device=torch.device("cuda" if torch.cuda.is_available() else "cpu"),
    )
    with tempfile.TemporaryDirectory() as weights:
        engine = VllmEngine(policy, setup, Path(weights))
        try:
            await engine.keep_loaded()
            yield engine
        finally:
            await engine.aclose()
