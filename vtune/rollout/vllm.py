"""vLLM in the training process (its engine core beside it): the only file that imports vllm.

vLLM's own processes load it too, through the entry point `vllm.general_plugins`, for the backend that takes
weights from files.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from PIL import Image
from vllm import SamplingParams
from vllm.config.weight_transfer import WeightTransferConfig
from vllm.distributed.weight_transfer.base import (
    ParamMeta,
    WeightSource,
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferInitRequest,
    WeightTransferUpdateInfo,
    WeightTransferUpdateRequest,
)
from vllm.distributed.weight_transfer.factory import (
    WeightTransferEngineFactory,
    WeightTransferTrainerFactory,
)
from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo
from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from vtune.errors import RunFailed
from vtune.models.pictures import PixelBudget
from vtune.models.policy import Dtype, Policy, plain_shapes
from vtune.rollout.engine import Completion, Request, Weights
from vtune.rollout.servers import Fleet
from vtune.rollout.stopwatch import Stopwatch
from vtune.rollout.submission import Answer, Kept, Submissions, label_of
from vtune.rollout.transfer import FILES, Link, send_files

T = TypeVar("T")

KEPT = 1 << 30
"""Bytes of pictures that stay put together, and of their patches."""

KV_CACHE = 1 << 30
"""Bytes on a CPU, where no share of a device can be asked for."""

LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Of our training group: vLLM's processes form one of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How vLLM is started in a training process."""

    model: str
    """Folder or hub name."""
    dtype: Dtype
    max_tokens: int
    """Of the longest conversation."""
    max_batch: int
    """Conversations at the same time."""
    gpu_memory: float
    """Share of the GPU that it may take."""
    threads: int
    """On a CPU."""
    device: torch.device
    budget: PixelBudget | None = None
    """Of the largest pictures; None: that of the policy."""


class VllmEngine:
    """Draws turns with a vLLM of this process; every conversation goes on by itself.

    A group's prompt and pictures are computed once: vLLM finds what it has of a prefix in its cache.

    Args:
        policy: Tokens and pictures; its weights come by `take`.
        setup: How vLLM is started.
        folder: For weights on a CPU on their way.
        waiting: Covered while something is drawn.
    """

    cohorts = 1

    def __init__(
        self, policy: Policy, setup: Setup, folder: Path, *, waiting: Stopwatch | None = None
    ) -> None:
        self._policy = policy
        self._setup = setup
        self._folder = folder
        self._stopwatch = waiting or Stopwatch()
        self._submissions = Submissions(policy)
        self._pictures: Kept[Image.Image] = Kept(KEPT, lambda picture: picture.width * picture.height * 3)
        self._on_gpu = setup.device.type == "cuda"
        self._source = _Source(policy)
        self._resting = False
        with _environment(_child_environment(setup)):
            self._llm = AsyncLLM.from_engine_args(_arguments(policy, setup))
        _keep_numbers_alone(self._llm.output_processor)

    def join(self, cohort: int) -> None:
        """Nothing waits for others here."""

    def leave(self, cohort: int) -> None:
        """Nothing waits for others here."""

    async def generate(self, request: Request) -> Completion:
        """Draw one turn.

        Raises:
            RunFailed: If vLLM has died.
        """
        with self._stopwatch.covered():
            images = [self._picture(pixels) for pixels in request.pixels]
            prompt: dict[str, Any] = {"prompt_token_ids": self._submissions.prompt(request)}
            if images:
                prompt["multi_modal_data"] = {"image": images}
            sampling = SamplingParams(
                **self._submissions.sampling(request), output_kind=RequestOutputKind.FINAL_ONLY
            )
            name = "-".join(map(str, request.key))
            last: Any = None
            with _said():
                async for output in self._llm.generate(prompt, sampling, name):
                    last = output
            return self._submissions.completion(request, _answer(last))

    async def take(self, weights: Weights, version: int) -> None:
        """Hand the weights over: by files on a CPU, by handles to the same memory on a GPU."""
        with _said():
            if not self._on_gpu:
                await send_files(weights, _Local(self._llm), self._folder, label_of(version))
                return
            if self._resting:
                await _alive(self._llm, self._llm.wake_up(["weights"]))
            link = _Local(self._llm)
            await link.pause()
            # vLLM's side of a transfer blocks; what it tells its engine runs in this loop meanwhile.
            client = _Blocking(link, asyncio.get_running_loop(), label_of(version))
            self._source.weights = weights
            await asyncio.to_thread(_send_handles, self._source, client)
            if self._resting:
                await _alive(self._llm, self._llm.wake_up(["kv_cache"]))
                self._resting = False
            await link.resume()

    async def keep_loaded(self) -> None:
        """Draw with the weights that it has loaded itself: those before any training."""
        with _said():
            await _alive(self._llm, self._llm.update_weight_version(label_of(0)))

    async def rest(self) -> None:
        """On a GPU, give its memory to the training; the weights are sent again before the next turn."""
        if self._on_gpu:
            with _said():
                await _alive(self._llm, self._llm.sleep(level=2))
            self._resting = True

    async def aclose(self) -> None:
        """End vLLM's process."""
        self._llm.shutdown()
        # Left to the end of the interpreter, it would complain of what is gone by then.
        del self._llm

    def _picture(self, pixels: Any) -> Image.Image:
        found = self._pictures.get(pixels)
        return found or self._pictures.put(pixels, self._policy.pictures.shown(pixels))


def _arguments(policy: Policy, setup: Setup) -> AsyncEngineArgs:
    on_gpu = setup.device.type == "cuda"
    budget = setup.budget or policy.pictures.budget
    device: dict[str, Any] = (
        {"gpu_memory_utilization": setup.gpu_memory, "enable_sleep_mode": True}
        if on_gpu
        else {
            "kv_cache_memory_bytes": KV_CACHE,
            # A prompt shorter than a block is never found in the cache; 32 is the least on a CPU.
            "block_size": 32,
            "enforce_eager": True,
            # The model in the process of its scheduler: two would wait for each other in a loop.
            "distributed_executor_backend": "uni",
        }
    )
    return AsyncEngineArgs(
        model=setup.model,
        dtype=setup.dtype,
        max_model_len=setup.max_tokens,
        max_num_seqs=setup.max_batch,
        limit_mm_per_prompt={"video": 0},
        # What comes is resized already; the limits tell how much room pictures may take.
        mm_processor_kwargs={
            "do_resize": False,
            "size": {"shortest_edge": budget.min_pixels, "longest_edge": budget.max_pixels},
        },
        # Of the distribution that is drawn from, bans included: the one that is trained.
        logprobs_mode="processed_logprobs",
        generation_config="vllm",
        weight_transfer_config=WeightTransferConfig(backend="ipc" if on_gpu else FILES),
        disable_log_stats=True,
        **device,
    )


def _child_environment(setup: Setup) -> dict[str, str | None]:
    """Variables of vLLM's processes; None takes one away."""
    found: dict[str, str | None] = {
        **dict.fromkeys(LAUNCHER),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        # A forked child would inherit torch's threads in a state that nobody knows.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    }
    if setup.device.type == "cuda":
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        number = setup.device.index or 0
        return found | {"CUDA_VISIBLE_DEVICES": visible.split(",")[number] if visible else str(number)}
    # Bound to cores, it would share the first ones with every other rank's. Compiling the sampler takes 10 s.
    return found | {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # What vLLM asks for to take "uni" on a CPU; the scheduler has a process of its own all the same.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "OMP_NUM_THREADS": str(setup.threads),
        "TORCH_COMPILE_DISABLE": "1",
    }


@contextlib.contextmanager
def _environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """These variables for processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    try:
        _set(values)
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextlib.contextmanager
def _said() -> Iterator[None]:
    """VLLM's death in our words."""
    try:
        yield
    except (EngineDeadError, EngineGenerateError) as error:
        raise RunFailed(
            f"the vLLM of this process has died: {error}",
            fix="look at its messages above, then go on with --resume",
        ) from error


def _keep_numbers_alone(processor: Any) -> None:
    """No text of single tokens beside their log-probabilities: nobody reads it.

    To make it took a third of this process's time, in which it has conversations to lead.
    """
    add = processor.add_request

    def add_request(request: Any, *given: Any, **named: Any) -> None:
        add(request, *given, **named)
        processor.request_states[request.request_id].logprobs_processor.tokenizer = None

    processor.add_request = add_request


def _answer(output: Any) -> Answer:
    (choice,) = output.outputs
    return Answer(
        prompt=output.prompt_token_ids,
        token_ids=choice.token_ids,
        logprobs=[
            entry[token].logprob for entry, token in zip(choice.logprobs, choice.token_ids, strict=True)
        ],
        finish=choice.finish_reason,
        stop=choice.stop_reason,
        spans=[(span.version, span.end) for span in choice.weight_versions or ()],
    )


async def _alive(llm: AsyncLLM, call: Awaitable[T]) -> T:
    """The result of a call, or its end when vLLM dies: it would wait for the answer for ever."""
    task = asyncio.ensure_future(call)
    while not task.done():
        await asyncio.wait({task}, timeout=0.5)
        if not task.done() and llm.errored:
            task.cancel()
            raise EngineDeadError()
    return task.result()


class _Local:
    """The transfer API of a vLLM in this process."""

    def __init__(self, llm: AsyncLLM) -> None:
        self._llm = llm

    async def pause(self) -> None:
        await _alive(self._llm, self._llm.pause_generation(mode="keep", clear_cache=True))

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


class _Blocking:
    """The same for the sending side of vLLM's own backends, which calls and waits."""

    def __init__(self, link: Link, loop: asyncio.AbstractEventLoop, label: str) -> None:
        self._link = link
        self._loop = loop
        self._label = label

    def _wait(self, call: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self._wait(self._link.init_weight_transfer_engine(init_info))

    def start_weight_update(self) -> None:
        self._wait(self._link.start_weight_update())

    def update_weights(self, update_info: Any) -> None:
        self._wait(self._link.update_weights(update_info))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._wait(self._link.finish_weight_update(weight_version or self._label))


class _Source(WeightSource):
    """The policy's weights as vLLM's senders read them: once for each `weights`."""

    def __init__(self, policy: Policy) -> None:
        self._metadata = [ParamMeta(*one) for one in plain_shapes(policy)]
        self.weights: Weights | None = None
        """Of the next transfer."""

    def metadata(self) -> list[ParamMeta]:
        return self._metadata

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        assert self.weights is not None
        return self.weights()


def _send_handles(source: _Source, client: _Blocking) -> None:
    """To a vLLM on the same GPU: only handles to the trainer's memory travel, a buffer at a time."""
    # Each process is the sender to its own vLLM.
    info = IPCTrainerInitInfo(rank=0, packed=True)
    WeightTransferTrainerFactory.trainer_init(info, client=client, source=source).send_weights()


def nccl_sender(policy: Policy, *, first: bool) -> Callable[[Weights, Fleet, str], Awaitable[None]]:
    """Sends weights to servers on other GPUs; every process of the training calls it.

    Args:
        policy: Whose weights they are.
        first: Whether this process sends; the others only help to gather.
    """
    source = _Source(policy)
    senders: dict[tuple[str, ...], Any] = {}

    async def send(weights: Weights, fleet: Fleet, label: str) -> None:
        source.weights = weights
        if not first:
            for _ in source:
                pass
            return
        await fleet.pause()
        client = _Blocking(fleet, asyncio.get_running_loop(), label)
        # A group is formed anew when a server has gone or come back.
        members = tuple(server.url for server in fleet.left())
        if members not in senders:
            senders.clear()
            info = NCCLTrainerInitInfo(
                master_address=socket.gethostbyname(socket.gethostname()),
                master_port=_free_port(),
                world_size=1 + await fleet.workers(),
                rank=0,
            )
            senders[members] = await asyncio.to_thread(
                WeightTransferTrainerFactory.trainer_init, info, client=client, source=source
            )
        senders[members].client = client
        await asyncio.to_thread(senders[members].send_weights)
        await fleet.resume()

    return send


@dataclass
class FilesInit(WeightTransferInitInfo):
    """Nothing has to be agreed on."""


@dataclass
class FilesUpdate(WeightTransferUpdateInfo):
    """Weights in one file."""

    path: str


class FilesTransfer(WeightTransferEngine[FilesInit, FilesUpdate]):
    """Our backend, in vLLM's process: weights by the names of a checkpoint, from safetensors files."""

    init_info_cls = FilesInit
    update_info_cls = FilesUpdate

    def init_transfer_engine(self, init_info: FilesInit) -> None:
        """Nothing to meet."""

    def start_weight_update(self) -> None:
        """Undo what loading had done to the layers (on a CPU their weights are repacked)."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def finish_weight_update(self) -> None:
        """Do it again."""
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)
        # No weights come for an output layer that is tied to the embedding, so it is passed over above, and
        # would go on with what was packed from the old ones.
        for layer in self.model.modules():
            if isinstance(layer, ParallelLMHead):
                layer.quant_method.process_weights_after_loading(layer)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load one file; no device has to be waited for."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: FilesUpdate) -> None:
        """Load one file."""
        from safetensors.torch import load_file

        self.model.load_weights(list(load_file(update_info.path).items()))

    def shutdown(self) -> None:
        """Nothing to end."""


def _free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def register() -> None:
    """Make our backend known; vLLM calls it in each of its processes."""
    if FILES not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(FILES, FilesTransfer)
