"""Weight transfer to vLLM by memory handles on the same GPU, or through files.

The backends at the end of this module run in vLLM's own processes.
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

    # From 0.33 on, metadata equal to the last is not sent again; servers of 0.32 would then receive no
    # weights while the sender waits for them.
    def __eq__(self, other: object) -> bool:
        return False


class Source(WeightSource):
    """The policy's weights as vLLM's senders read them: one pass per `weights`."""

    def __init__(self, policy: Policy) -> None:
        # Computed now, not on first use in the middle of a transfer.
        self._metadata = _Metadata(ParamMeta(*one) for one in plain_shapes(policy))
        self.weights: Weights | None = None
        """The weights of the next transfer."""

    @cached_property
    def metadata(self) -> _Metadata:
        """Name, type and shape of each weight, in order."""
        return self._metadata

    def iter_full(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Name and unsharded tensor of each weight, in order."""
        assert self.weights is not None
        return self.weights()

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The form that vLLM 0.32 uses."""
        return self.iter_full()

    @property
    def buffer_bytes(self) -> int:
        """Size of the buffer in which weights travel: tensors are not split, so the largest must fit."""
        sizes = [one.dtype.itemsize * math.prod(one.shape) for one in self.metadata]
        largest: int = max(DEFAULT_PACKED_BUFFER_SIZE_BYTES, *sizes)
        return largest


class HandleSender:
    """Sends weights to a vLLM on this process's GPU: only handles to the trainer's memory are sent.

    Args:
        policy: The policy whose weights are sent.
        device: This process's GPU.
        tp_group: This process's group, if several processes share a vLLM; None: it has its own.
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
            weights: Unsharded, in every process of the group.
            link: To the vLLM; None if only the first process of the group has it.
            label: Label of the weights.
        """
        loop = asyncio.get_running_loop()
        self._source.weights = weights
        # vLLM's sender blocks, so it runs in a thread; its calls to the engine run in this loop.
        client = _NoClient() if link is None else _Pickling(link, loop, label)
        await loop.run_in_executor(self._thread, self._send, client)

    def close(self) -> None:
        """Stop the thread."""
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
    """Allocate memory that another process can open by handle, which expandable segments often do not allow.

    Torch's own out-of-memory message recommends them (`PYTORCH_CUDA_ALLOC_CONF`).
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

    vLLM's own sender assumes that all processes of the default group send to the same vLLM: it would wait for
    all of them at each buffer, and for ever if one of their vLLMs has died.
    """

    tp_group: TensorParallelGroup | None = None

    def _all_gather_and_merge_handles(self, handles: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self.tp_group is None:
            return handles
        of_all = self.tp_group.gather(handles)
        return [{key: one[key] for one in same for key in one} for same in zip(*of_all, strict=True)]

    def _post_send_sync(self) -> None:
        if self.tp_group is not None:
            # The buffer may be refilled only after the workers on all GPUs have read it.
            self.tp_group.gather(None)
        collect: Any = torch.cuda.ipc_collect
        collect()


class _NoClient:
    """A client for senders that make no calls to vLLM."""

    failure: Exception | None = None


class _Pickling(BlockingLink):
    """Sends handles as text: they contain types, which vLLM's encoder rejects.

    In vLLM's process, `HandlesTransfer` unpickles them. After a failure vLLM gets no more calls, but the pass
    over the weights is completed, since other processes gather in step with it.
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
    """Our backend for handles, in vLLM's process: it unpickles handles from its own parent process.

    vLLM's own backend does so only if `VLLM_ALLOW_INSECURE_SERIALIZATION` is set, which has a side effect:
    each result of vLLM's process then names its type, which a parent without the variable rejects.
    """

    def parse_update_info(self, update_dict: dict[str, Any]) -> IPCWeightTransferUpdateInfo:
        """One buffer of weights.

        Raises:
            ValueError: If a field is missing.
        """
        handles = pickle.loads(base64.b64decode(update_dict["ipc_handles_pickled"]))
        given = {**update_dict, "ipc_handles": handles, "ipc_handles_pickled": None}
        found: IPCWeightTransferUpdateInfo = super().parse_update_info(given)
        return found


@dataclass
class FilesInit(WeightTransferInitInfo):
    """Empty: nothing has to be agreed on."""


@dataclass
class FilesUpdate(WeightTransferUpdateInfo):
    """The file with the next weights."""

    path: str


class FilesTransfer(WeightTransferEngine[FilesInit, FilesUpdate]):
    """Our backend for files, in vLLM's process: loads safetensors files with a checkpoint's weight names."""

    init_info_cls = FilesInit
    update_info_cls = FilesUpdate

    def init_transfer_engine(self, init_info: FilesInit) -> None:
        """Does nothing: there is no connection to set up."""

    def start_weight_update(self) -> None:
        """Undo vLLM's post-processing of the loaded layers (on a CPU their weights are repacked)."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def finish_weight_update(self) -> None:
        """Post-process the layers again."""
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)
        # An output layer tied to the embedding receives no weights, so the call above skips it; without this
        # it would keep using the packed copy of the old ones.
        for layer in self.model.modules():
            if isinstance(layer, ParallelLMHead):
                layer.quant_method.process_weights_after_loading(layer)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load one file; unlike vLLM's own method, no device needs to be synchronised."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: FilesUpdate) -> None:
        """Load one file."""
        from safetensors.torch import load_file

        self.model.load_weights(list(load_file(update_info.path).items()))

    def shutdown(self) -> None:
        """Does nothing: nothing was started."""
