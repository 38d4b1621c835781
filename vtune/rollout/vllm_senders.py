"""Weight transfer to vLLM by memory handles on the same GPU, or through files.

The backends at its end run in vLLM's own processes.
"""

import asyncio
import base64
import contextlib
import math
import pickle
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from vllm.device_allocator.alloc_conf import (
    EXPANDABLE_SEGMENTS,
    conf_flag_enabled,
    current_alloc_conf,
    set_alloc_conf,
    with_conf_flag,
)
from vllm.distributed.weight_transfer.base import (
    ParamMeta,
    WeightSource,
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.ipc_engine import (
    IPCTrainerInitInfo,
    IPCTrainerWeightTransferEngine,
    IPCWeightTransferEngine,
    IPCWeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.packed_tensor import DEFAULT_PACKED_BUFFER_SIZE_BYTES
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from vtune.errors import RunFailed
from vtune.models.device import device_thread
from vtune.models.policy import Policy, plain_shapes
from vtune.rollout.engine import Weights
from vtune.rollout.tensor_parallel import TensorParallelGroup
from vtune.rollout.transfer import BlockingLink, Link


class _Metadata(list[ParamMeta]):
    """A list that can also be called: vLLM 0.32 calls `metadata()`, 0.33 reads `metadata`."""

    def __call__(self) -> "_Metadata":
        return self

    # From 0.33 on what equals the last one is not sent again, and servers of 0.32 would then take no weights
    # while the sender waits for them.
    def __eq__(self, other: object) -> bool:
        return False


class Source(WeightSource):
    """The policy's weights as vLLM's senders read them: once for each `weights`."""

    def __init__(self, policy: Policy) -> None:
        # Not when it is first asked for, in the middle of a transfer.
        self._metadata = _Metadata(ParamMeta(*one) for one in plain_shapes(policy))
        self.weights: Weights | None = None
        """Of the next transfer."""

    @cached_property
    def metadata(self) -> _Metadata:
        """Name, type and shape of each weight, in order."""
        return self._metadata

    def iter_full(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Name and unsharded tensor of each weight, in order."""
        assert self.weights is not None
        return self.weights()

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        """As vLLM 0.32 asks for them."""
        return self.iter_full()

    @property
    def buffer_bytes(self) -> int:
        """Of the buffer in which weights travel: no tensor is split, so the largest one fits in."""
        sizes = [one.dtype.itemsize * math.prod(one.shape) for one in self.metadata]
        largest: int = max(DEFAULT_PACKED_BUFFER_SIZE_BYTES, *sizes)
        return largest


class HandleSender:
    """Sends weights to a vLLM on this process's GPU: only handles to the trainer's memory are sent.

    Args:
        policy: Whose weights they are.
        device: The GPU of this process.
        tp_group: Of this process, where several share a vLLM; None: it has one of its own.
    """

    def __init__(
        self, policy: Policy, device: torch.device, tp_group: TensorParallelGroup | None = None
    ) -> None:
        self._source = Source(policy)
        self._thread = device_thread(device)
        self._tp_group = tp_group

    async def send(self, weights: Weights, link: Link | None, label: str) -> None:
        """Send all weights, a buffer at a time; all processes of a group call it together.

        Args:
            weights: Whole, in every process of a group.
            link: To the vLLM; None where the first process of the group has it.
            label: What they are called.
        """
        loop = asyncio.get_running_loop()
        self._source.weights = weights
        # vLLM's side of a transfer blocks; its calls of the engine run in this loop meanwhile.
        client = _NoClient() if link is None else _Pickling(link, loop, label)
        await loop.run_in_executor(self._thread, self._send, client)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    def _send(self, client: "_Pickling | _NoClient") -> None:
        info = IPCTrainerInitInfo(
            rank=self._tp_group.index if self._tp_group else 0,
            packed=True,
            packed_buffer_size_bytes=self._source.buffer_bytes,
        )
        engine = _Sender.trainer_init(info, client=client, source=self._source)
        engine.tp_group = self._tp_group
        with _shareable():
            engine.send_weights()
        if client.failure is not None:
            raise client.failure


@contextlib.contextmanager
def _shareable() -> Iterator[None]:
    """Allocate memory that another process can open by its handle: expandable segments often do not allow
    that.

    Torch's own message when memory runs out recommends them (`PYTORCH_CUDA_ALLOC_CONF`).
    """
    chosen = current_alloc_conf()
    if not conf_flag_enabled(chosen, EXPANDABLE_SEGMENTS):
        yield
        return
    set_alloc_conf(with_conf_flag(chosen, EXPANDABLE_SEGMENTS, False))
    try:
        yield
    finally:
        set_alloc_conf(chosen)


class _Sender(IPCTrainerWeightTransferEngine):
    """A sender that waits only for its own group.

    vLLM's own takes all processes of the default group for senders to the same vLLM: it would wait for all of
    them at each buffer, and for ever where the vLLM of one of them has died.
    """

    tp_group: TensorParallelGroup | None = None

    def _all_gather_and_merge_handles(self, handles: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self.tp_group is None:
            return handles
        of_all = self.tp_group.gather(handles)
        return [{key: one[key] for one in same for key in one} for same in zip(*of_all, strict=True)]

    def _post_send_sync(self) -> None:
        if self.tp_group is not None:
            # The buffer is filled again when the workers on all GPUs have read it.
            self.tp_group.gather(None)
        collect: Any = torch.cuda.ipc_collect
        collect()


class _NoClient:
    """What a sender asks that asks nothing."""

    failure: Exception | None = None


class _Pickling(BlockingLink):
    """Handles as text: they hold types, which vLLM's encoder refuses.

    vLLM's process reads them back by `HandlesTransfer`. After a failure nothing more is asked of vLLM, but
    the pass over the weights goes on to its end: other processes gather in step with it.
    """

    failure: Exception | None = None

    def update_weights(self, update_info: dict[str, Any]) -> None:
        text = base64.b64encode(pickle.dumps(update_info["ipc_handles"])).decode()
        super().update_weights({**update_info, "ipc_handles": None, "ipc_handles_pickled": text})

    def _wait(self, call: Coroutine[Any, Any, None]) -> None:
        if self.failure is not None:
            call.close()
            return
        try:
            super()._wait(call)
        except (RunFailed, EngineDeadError, EngineGenerateError) as error:
            self.failure = error


class HandlesTransfer(IPCWeightTransferEngine):
    """Our backend for handles, in vLLM's process: it reads those that its own parent has pickled.

    vLLM's own reads them only where `VLLM_ALLOW_INSECURE_SERIALIZATION` is set. More comes of that: each
    result of its process then names its type, which a parent without the variable refuses.
    """

    def parse_update_info(self, update_dict: dict[str, Any]) -> IPCWeightTransferUpdateInfo:
        """One buffer of weights.

        Raises:
            ValueError: If something is missing.
        """
        handles = pickle.loads(base64.b64decode(update_dict["ipc_handles_pickled"]))
        given = {**update_dict, "ipc_handles": handles, "ipc_handles_pickled": None}
        found: IPCWeightTransferUpdateInfo = super().parse_update_info(given)
        return found


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
        # would continue with what was packed from the old ones.
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
