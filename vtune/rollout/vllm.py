"""vLLM in the training process, its engine core beside it; only this and `vllm_*.py` import vllm.

vLLM's own processes load this module too, through the entry point `vllm.general_plugins`, for the backends
that receive weights by handles and from files.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from PIL import Image
from vllm import SamplingParams
from vllm.config.weight_transfer import WeightTransferConfig
from vllm.distributed.weight_transfer.base import (
    WeightTransferInitRequest,
    WeightTransferUpdateRequest,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.lora.request import LoRARequest
from vllm.sampling_params import RequestOutputKind
from vllm.v1.core.sched.output import NewRequestData
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from vtune.errors import RunFailed
from vtune.models.device import release_cache
from vtune.models.pictures import PixelBudget, Pixels
from vtune.models.policy import Dtype, Policy
from vtune.rollout.adapters import NAME, NUMBER, RANKS, Adapters, written
from vtune.rollout.engine import Completion, Engine, Request, Weights
from vtune.rollout.stopwatch import Stopwatch
from vtune.rollout.submission import Answer, Kept, Submissions, label_of
from vtune.rollout.tensor_parallel import TensorParallelGroup, Turn, TurnServer
from vtune.rollout.transfer import FILES, HANDLES, send_files
from vtune.rollout.vllm_environment import BATCHED_TOKENS, child_environment, environment, starting
from vtune.rollout.vllm_outputs import keep_numbers_alone, turn_of
from vtune.rollout.vllm_senders import FilesTransfer, HandleSender, HandlesTransfer
from vtune.rollout.vllm_sleep import clear_what_wakes

T = TypeVar("T")

KEPT = 1 << 30
"""Size limit of the cache of decoded pictures and their patches, in bytes."""

KV_CACHE = 1 << 30
"""Bytes on a CPU, where the size cannot be given as a share of the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How vLLM is started in a training process."""

    model: str
    """Folder or hub name."""
    dtype: Dtype
    max_tokens: int
    """Of the longest conversation, in tokens."""
    max_batch: int
    """Concurrent conversations."""
    gpu_memory: float
    """Share of the GPU's memory that it may use."""
    threads: int
    """Only on a CPU."""
    device: torch.device
    tensor_parallel: int = 1
    """GPUs that share the model, starting at `device`."""
    budget: PixelBudget | None = None
    """Pixel budget of the largest pictures; None: the policy's."""
    adapters: Adapters | None = None
    """The policy's adapters, if only they are transferred and vLLM has loaded everything else itself. None:
    all weights."""


class VllmEngine(Engine):
    """Generates turns with a vLLM in this process; every conversation advances on its own.

    A group's prompt and pictures are computed once: vLLM finds shared prefixes in its cache.

    Args:
        policy: Tokens and pictures; its weights come through `take`.
        setup: How vLLM is started.
        folder: For weights in transit on a CPU.
        waiting: Covered while something is generated.
        tp_group: The processes that share this vLLM, of which this is the first; None: it is not shared.
    """

    def __init__(
        self,
        policy: Policy,
        setup: Setup,
        folder: Path,
        *,
        waiting: Stopwatch | None = None,
        tp_group: TensorParallelGroup | None = None,
    ) -> None:
        self._policy = policy
        self._setup = setup
        self._folder = folder
        self._stopwatch = waiting or Stopwatch()
        self._submissions = Submissions(policy)
        self._pictures: Kept[Image.Image] = Kept(KEPT, lambda picture: picture.width * picture.height * 3)
        self._sender = HandleSender(policy, setup.device, tp_group) if setup.device.type == "cuda" else None
        self._tp_group = tp_group
        self._turn_server = TurnServer(tp_group.address, self._drawn) if tp_group else None
        self._resting = False
        self._adapter: LoRARequest | None = None
        # vLLM reserves its share of the memory that is free when it starts.
        release_cache(setup.device)
        variables = child_environment(setup.device, threads=setup.threads, gpus=setup.tensor_parallel)
        arguments = _arguments(policy, setup)
        with environment(variables), starting(setup.gpu_memory):
            self._llm = AsyncLLM.from_engine_args(arguments)
        keep_numbers_alone(self._llm.output_processor)

    async def generate(self, request: Request) -> Completion:
        """Generate one turn.

        Raises:
            RunFailed: If vLLM has died.
        """
        with self._stopwatch.covered():
            answer = await self._answer(
                "-".join(map(str, request.key)),
                self._submissions.prompt(request),
                [await self._pictures.of(pixels, self._shown) for pixels in request.pixels],
                [pixels.name for pixels in request.pixels],
                self._submissions.sampling(request),
            )
            return self._submissions.completion(request, answer)

    async def _drawn(self, turn: Turn, images: list[Image.Image]) -> Answer:
        """Generate a turn for another process of the group."""
        return await self._answer(turn.name, turn.token_ids, images, list(turn.names), turn.sampling)

    async def _answer(
        self,
        name: str,
        token_ids: list[int],
        images: list[Image.Image],
        names: list[str],
        sampling: dict[str, Any],
    ) -> Answer:
        prompt: dict[str, Any] = {"prompt_token_ids": token_ids}
        if images:
            prompt["multi_modal_data"] = {"image": images}
            # With these names vLLM finds pictures it has already processed, without reading their pixels.
            prompt["multi_modal_uuids"] = {"image": names}
        wanted = SamplingParams(**sampling, output_kind=RequestOutputKind.FINAL_ONLY)
        with _said():
            return await turn_of(
                self._llm, lambda: self._llm.generate(prompt, wanted, name, lora_request=self._adapter)
            )

    async def take(self, weights: Weights, version: int) -> None:
        """Transfer the weights: by files on a CPU, by handles to the same memory on a GPU.

        A tensor-parallel group runs this in step (`TensorParallelEngine.take`): the memory of all its GPUs is
        released before vLLM wakes on them, and each process sends the weights on its own GPU.
        """
        link, label = _Local(self._llm), label_of(version)
        if self._setup.adapters is not None:
            with _said():
                await self._take_adapters(weights, self._setup.adapters, link, label)
            return
        if self._sender is None:
            with _said():
                await send_files(weights, link, self._folder, label)
            return
        release_cache(self._setup.device)
        await self._together()
        await self._together(self._woken("weights", link.pause))
        await self._together(self._sender.send(weights, link, label))
        release_cache(self._setup.device)
        await self._together()
        await self._together(self._woken("kv_cache", link.resume))
        self._resting = False

    async def _take_adapters(self, weights: Weights, adapters: Adapters, link: "_Local", label: str) -> None:
        """Replace the previous adapters, even while turns are being generated."""
        with written(weights, adapters, self._folder) as path:
            release_cache(self._setup.device)
            await self._woken("weights", link.pause)
            # Turns must not use this request: each of their batches would load the folder again, which is
            # gone by then.
            new = LoRARequest(NAME, NUMBER, str(path), load_inplace=True)
            await _alive(self._llm, self._llm.add_lora(new))
            self._adapter = LoRARequest(NAME, NUMBER, str(path))
            await _alive(self._llm, self._llm.update_weight_version(label))
            await self._woken("kv_cache", link.resume)
        self._resting = False

    async def _together(self, work: Coroutine[Any, Any, None] | None = None) -> None:
        """Do something; in a group, all processes do so in step."""
        guarded = None if work is None else _explained(work)
        if self._tp_group is not None:
            await self._tp_group.barrier(guarded)
        elif guarded is not None:
            await guarded

    async def _woken(self, part: str, then: Callable[[], Awaitable[None]]) -> None:
        """If vLLM sleeps, wake the given part of its memory; then continue."""
        if self._resting:
            await _alive(self._llm, self._llm.wake_up([part]))
        await then()
        if self._turn_server is not None:
            await self._turn_server.open()

    async def keep_loaded(self) -> None:
        """Generate with the weights that vLLM has loaded itself, before any training."""
        with _said():
            await _alive(self._llm, self._llm.update_weight_version(label_of(0)))

    async def rest(self) -> None:
        """On a GPU, give vLLM's memory to training; the weights are sent again before the next turn."""
        if self._sender is not None:
            await self._together()  # all processes have finished generating
            # Weights that are not sent again are offloaded to host memory.
            level = 2 if self._setup.adapters is None else 1
            await self._together(_alive(self._llm, self._llm.sleep(level=level)))
            self._resting = True

    async def aclose(self) -> None:
        """Shut down vLLM's process."""
        if self._turn_server is not None:
            await self._turn_server.close()
        if self._sender is not None:
            self._sender.close()
        if self._tp_group is not None:
            self._tp_group.close()
        self._llm.shutdown()
        # At interpreter shutdown, it would complain about what is already gone.
        del self._llm

    async def _shown(self, pixels: Pixels) -> Image.Image:
        eyes = self._policy.pictures
        return await eyes.beside(eyes.shown, pixels)


def _arguments(policy: Policy, setup: Setup) -> AsyncEngineArgs:
    on_gpu = setup.device.type == "cuda"
    budget = setup.budget or policy.pictures.budget
    device: dict[str, Any] = (
        {
            "gpu_memory_utilization": setup.gpu_memory,
            "enable_sleep_mode": True,
            "max_num_batched_tokens": BATCHED_TOKENS,
            "tensor_parallel_size": setup.tensor_parallel,
            # Each GPU has the whole vision tower and its share of the pictures: the tower's widths may not be
            # divisible.
            "mm_encoder_tp_mode": "data" if setup.tensor_parallel > 1 else "weights",
        }
        if on_gpu
        else {
            "kv_cache_memory_bytes": KV_CACHE,
            # A prompt shorter than a block is never found in the cache; 32 is the minimum on a CPU.
            "block_size": 32,
            "enforce_eager": True,
            # Runs the model in the scheduler's process: two processes would wait for each other in a loop.
            "distributed_executor_backend": "uni",
        }
    )
    return AsyncEngineArgs(
        model=setup.model,
        dtype=setup.dtype,
        max_model_len=setup.max_tokens,
        max_num_seqs=setup.max_batch,
        limit_mm_per_prompt={"video": 0},
        # Pictures arrive already resized; the limits say how much room they may take.
        mm_processor_kwargs={
            "do_resize": False,
            "size": {"shortest_edge": budget.min_pixels, "longest_edge": budget.max_pixels},
        },
        # Over the distribution that is sampled from, bans included: the one that is trained.
        logprobs_mode="processed_logprobs",
        generation_config="vllm",
        weight_transfer_config=WeightTransferConfig(backend=HANDLES if on_gpu else FILES),
        disable_log_stats=True,
        enable_lora=setup.adapters is not None,
        max_loras=1,
        max_lora_rank=setup.adapters.room if setup.adapters else RANKS[0],
        **device,
    )


@contextlib.contextmanager
def _said() -> Iterator[None]:
    """Report vLLM's failure in our words, with the reason why it could not generate."""
    try:
        yield
    except (EngineDeadError, EngineGenerateError) as error:
        dead = isinstance(error, EngineDeadError)
        why = f"has died: {error}" if dead else f"could not generate a turn: {error.__cause__ or error}"
        raise RunFailed(
            f"the vLLM of this process {why}",
            fix="look at its messages above, then continue with --resume",
        ) from error


async def _explained(work: Awaitable[None]) -> None:
    with _said():
        await work


async def _alive(llm: AsyncLLM, call: Awaitable[T]) -> T:
    """The result of a call, or an error if vLLM dies: the call would wait for ever.

    Raises:
        RunFailed: If vLLM could not carry it out.
    """
    task = asyncio.ensure_future(call)
    while not task.done():
        await asyncio.wait({task}, timeout=0.5)
        if not task.done() and llm.errored:
            task.cancel()
            raise EngineDeadError()
    try:
        return task.result()
    except (EngineDeadError, EngineGenerateError):
        raise
    except Exception as error:
        # vLLM passes on the failure of a worker as a bare exception, and keeps running.
        raise RunFailed(
            f"the vLLM of this process failed a request: {error}",
            fix="look at its messages above, then continue with --resume",
        ) from error


class _Local:
    """The transfer API of a vLLM in this process."""

    def __init__(self, llm: AsyncLLM) -> None:
        self._llm = llm

    async def pause(self) -> None:
        llm = self._llm
        # Its own clearing would drop the processed pictures too, which running turns rely on.
        await _alive(llm, llm.pause_generation(mode="keep", clear_cache=False))
        await _alive(llm, llm.reset_prefix_cache(reset_running_requests=True, reset_connector=True))
        await _alive(llm, llm.reset_encoder_cache())

    async def init_weight_transfer_engine(self, info: dict[str, Any]) -> None:
        await _alive(self._llm, self._llm.init_weight_transfer_engine(WeightTransferInitRequest(info)))

    async def start_weight_update(self) -> None:
        await _alive(self._llm, self._llm.start_weight_update())

    async def update_weights(self, info: dict[str, Any]) -> None:
        await _alive(self._llm, self._llm.update_weights(WeightTransferUpdateRequest(info)))

    async def finish_weight_update(self, label: str | None) -> None:
        await _alive(self._llm, self._llm.finish_weight_update(label))

    async def resume(self) -> None:
        await _alive(self._llm, self._llm.resume_generation())


def register() -> None:
    """Register our backends, and patch what new weights and sleep need; vLLM calls it in each process."""
    for name, backend in ((FILES, FilesTransfer), (HANDLES, HandlesTransfer)):
        if name not in WeightTransferEngineFactory._registry:
            WeightTransferEngineFactory.register_engine(name, backend)
    NewRequestData.from_request = classmethod(_with_its_pictures)
    clear_what_wakes()


_from_request = NewRequestData.from_request.__func__


def _with_its_pictures(
    kind: type[NewRequestData],
    /,
    request: Any,
    block_ids: Any,
    prefill_token_ids: list[int] | None = None,
    **rest: Any,
) -> NewRequestData:
    """What vLLM's worker is told about a turn, with the patches of all its pictures.

    vLLM omits pictures whose keys and values it has cached, and does not send them when it recomputes the
    turn after a cache reset. A runner that is given `prefill_token_ids` is sent everything again, and needs
    no help.
    """
    found: NewRequestData = _from_request(kind, request, block_ids, prefill_token_ids, **rest)
    if prefill_token_ids is None:
        found.mm_features = request.mm_features
    return found
