"""What vLLM's senders do with our weights, on fake GPUs without memory."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import vllm.distributed.weight_transfer.ipc_engine as ipc
import vllm.distributed.weight_transfer.packed_tensor as packed
from vllm.config.weight_transfer import WeightTransferConfig
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.v1.engine import UtilityOutput
from vllm.v1.engine.exceptions import EngineGenerateError
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder, UtilityResult

from tests.models.rows import ragged
from tests.models.test_shape import on_meta
from vtune.errors import RunFailed
from vtune.models.policy import Policy
from vtune.models.shape import known_shapes
from vtune.rollout import vllm, vllm_outputs, vllm_senders
from vtune.rollout.adapters import Adapters
from vtune.rollout.engine import Request, Sampling
from vtune.rollout.engine_thread import EngineThread
from vtune.rollout.submission import Answer
from vtune.rollout.tensor_parallel import TensorParallelGroup
from vtune.rollout.transfer import HANDLES, Link
from vtune.rollout.vllm_environment import BATCHED_TOKENS, child_environment, environment
from vtune.rollout.vllm_senders import HandleSender
from vtune.rollout.vllm_tensor_parallel import TensorParallelEngine


class Here(threading.local):
    """CUDA's current device, which is per thread and 0 in a new thread."""

    device = 0


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Here:
    """Eight fake GPUs: their tensors are on `meta`, and the handle tells the GPU."""
    here = Here()
    empty = torch.empty

    class Card:
        def __init__(self, number: int) -> None:
            self.uuid = f"GPU-{number}"

    class Stream:
        def synchronize(self) -> None:
            """Does nothing: there is nothing to wait for."""

    def on_meta(*shape: int, device: Any = None, **kinds: Any) -> torch.Tensor:
        return empty(*shape, device="meta" if device == "cuda" else device, **kinds)

    def handle(tensor: torch.Tensor) -> tuple[Any, tuple[Any, ...]]:
        # As in torch, the handle mixes types and numbers.
        kinds = (torch.Tensor, tensor.shape, (1,), 0, torch.UntypedStorage, torch.uint8)
        return None, (*kinds, here.device, b"h")

    monkeypatch.setattr(torch.cuda, "set_device", lambda device: setattr(here, "device", device.index))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: here.device)
    monkeypatch.setattr(torch.cuda, "get_device_properties", Card)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.accelerator, "current_stream", Stream)  # as used by vLLM from 0.33 on
    monkeypatch.setattr(torch.cuda, "ipc_collect", lambda: None)
    monkeypatch.setattr(packed.torch, "empty", on_meta)
    monkeypatch.setattr(packed, "reduce_tensor", handle)
    return here


class Told(Link):
    """A fake vLLM that records what it is sent."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.calls: list[str] = []

    async def init_weight_transfer_engine(self, info: dict[str, Any]) -> None:
        self.calls.append("init")
        assert info == {"packed": True}

    async def start_weight_update(self) -> None:
        self.calls.append("start")

    async def update_weights(self, info: dict[str, Any]) -> None:
        self.calls.append("update")
        self.updates.append(info)

    async def finish_weight_update(self, label: str) -> None:
        self.calls.append(label)


def sent(policy: Any, rank: int) -> Told:
    told = Told()

    async def send() -> None:
        sender = HandleSender(policy, torch.device("cuda", rank))
        await sender.send(lambda: weights(policy), told, "vtune-1")
        sender.close()

    asyncio.run(send())
    return told


def in_vllms_process(update: dict[str, Any]) -> ipc.IPCWeightTransferUpdateInfo:
    """An update as read by our backend in vLLM's process."""
    backend = vllm_senders.HandlesTransfer.__new__(vllm_senders.HandlesTransfer)
    return backend.parse_update_info(update)


def weights(policy: Any) -> Iterator[tuple[str, torch.Tensor]]:
    for name, parameter in policy.model.named_parameters():
        yield name, parameter.detach().to("meta")


@pytest.mark.parametrize("rank", range(4))
def test_a_rank_offers_handles_of_its_own_gpu(policy: Policy, gpus: Here, rank: int) -> None:
    gpus.device = rank  # as DeepSpeed sets it in the main thread
    told = sent(policy, rank)
    assert told.calls == ["init", "start", "update", "vtune-1"]
    read = [in_vllms_process(update) for update in told.updates]
    assert [list(one.ipc_handles) for one in read] == [[f"GPU-{rank}"]]
    assert [one.ipc_handles[f"GPU-{rank}"][6] for one in read] == [rank]
    assert read[0].names == [name for name, _ in policy.model.named_parameters()]


def test_sent_weights_pass_vllms_encoder_and_our_backend_reads_them(policy: Policy, gpus: Here) -> None:
    (update,) = sent(policy, 2).updates
    wire = MsgpackEncoder().encode(("update_weights", None, (), {"update_info": update}))
    arrived = MsgpackDecoder().decode(wire)[3]["update_info"]
    assert set(arrived) == {field.name for field in fields(ipc.IPCWeightTransferUpdateInfo)}
    assert in_vllms_process(arrived).ipc_handles["GPU-2"][0] is torch.Tensor


def test_our_backend_is_registered_in_vllm_and_loads_sent_weights(
    policy: Policy, gpus: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Called like in a worker; only the memory behind the handles is fake."""
    loaded: list[str] = []
    read: list[Any] = []

    def weights_of(*, ipc_handle: Any, names: list[str], **rest: Any) -> list[tuple[str, None]]:
        read.append((ipc_handle, rest["device_index"]))
        return [(name, None) for name in names]

    monkeypatch.setattr(ipc, "packed_ipc_consumer", weights_of)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)
    vllm.register()
    model = SimpleNamespace(load_weights=lambda found: loaded.extend(name for name, _ in found))
    config = SimpleNamespace(parallel_config=None, model_config=None)
    backend = WeightTransferEngineFactory.create_engine(
        WeightTransferConfig(backend=HANDLES), config, torch.device("cuda", 0), model
    )
    backend.init_transfer_engine(backend.parse_init_info({"packed": True}))
    for update in sent(policy, 3).updates:
        backend.update_weights(update)
    assert loaded == [name for name, _ in policy.model.named_parameters()]
    assert [(list(handle), device) for handle, device in read] == [(["GPU-3"], 0)]


def test_answers_of_vllms_process_can_be_read() -> None:
    """If `VLLM_ALLOW_INSECURE_SERIALIZATION` is set on only one side, the first answer ends the run."""
    with environment(child_environment(torch.device("cuda", 0), threads=1)):
        wire = MsgpackEncoder().encode(UtilityOutput(call_id=1, result=UtilityResult(True)))
    assert MsgpackDecoder(UtilityOutput).decode(wire).result.result is True


@pytest.mark.parametrize("name", known_shapes())
def test_every_tensor_of_a_known_model_fits_into_the_buffer(
    name: str, policy: Policy, gpus: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With vLLM's own producer, at full size, without memory."""

    class Known:
        model = on_meta(name).to(torch.bfloat16)

    metadata = [(n, p.dtype, tuple(p.shape)) for n, p in Known.model.named_parameters()]
    monkeypatch.setattr(vllm_senders, "plain_shapes", lambda policy: metadata)
    told = sent(Known, 0)
    assert [n for update in told.updates for n in update["names"]] == [n for n, _, _ in metadata]
    sizes = [sum(update["tensor_sizes"]) for update in told.updates]
    assert max(sizes) <= max(1 << 30, *(max(update["tensor_sizes"]) for update in told.updates))


def test_a_sender_waits_for_no_other_process(
    policy: Policy, gpus: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process has its own vLLM, and another's may have died."""
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 8)
    for name in ("all_gather_object", "barrier"):
        monkeypatch.setattr(torch.distributed, name, lambda *_: pytest.fail("waited for the others"))
    assert sent(policy, 1).calls[-1] == "vtune-1"


def test_compiled_code_is_stored_separately_per_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CACHE_ROOT", "/cache")
    found = []
    for rank in ("0", "11"):
        monkeypatch.setenv("RANK", rank)
        found.append(child_environment(torch.device("cuda", int(rank) % 8), threads=1)["VLLM_CACHE_ROOT"])
    monkeypatch.delenv("RANK")
    found.append(child_environment(torch.device("cuda", 0), threads=1)["VLLM_CACHE_ROOT"])
    assert found == ["/cache/rank-0", "/cache/rank-11", "/cache"]


class FakeLLM:
    """Records what the engine asks vLLM to do."""

    errored = False

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls
        self.output_processor = None

    def __getattr__(self, name: str) -> Any:
        async def call(*given: Any, **named: Any) -> None:
            self.calls.append(" ".join([name, *(str(one) for one in (given or named.values()))][:2]))

        return call


def test_cached_memory_is_released_before_vllm_allocates(
    policy: Policy, gpus: Here, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its start, and before each of its parts wakes up."""
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("empty_cache"))
    monkeypatch.setattr(
        vllm.AsyncLLM, "from_engine_args", lambda given: calls.append("start") or FakeLLM(calls)
    )
    monkeypatch.setattr(vllm, "keep_numbers_alone", lambda processor: None)
    device = torch.device("cuda", 1)
    setup = vllm.Setup(
        model=str(tiny),
        dtype="bfloat16",
        max_tokens=512,
        max_batch=4,
        gpu_memory=0.5,
        threads=1,
        device=device,
    )
    engine = vllm.VllmEngine(policy, setup, tmp_path)
    assert calls == ["empty_cache", "start"]
    calls.clear()

    async def hand_over() -> None:
        await engine.rest()
        await engine.take(lambda: weights(policy), 1)
        engine._sender.close()

    asyncio.run(hand_over())
    sent = [call.partition(" ")[0] for call in calls]
    assert sent == [
        "sleep",
        *("empty_cache", "wake_up", "pause_generation", "reset_prefix_cache", "reset_encoder_cache"),
        *("init_weight_transfer_engine", "start_weight_update", "update_weights", "finish_weight_update"),
        *("empty_cache", "wake_up", "resume_generation"),
    ]
    assert [call for call in calls if "wake" in call] == ["wake_up ['weights']", "wake_up ['kv_cache']"]


def test_a_vllm_with_adapter_updates_keeps_its_weights_while_asleep(
    policy: Policy, gpus: Here, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They move to host memory; only the adapters are sent when it wakes up."""
    calls: list[str] = []
    taken: list[Any] = []
    named: list[Any] = []

    class Adapting(FakeLLM):
        async def add_lora(self, request: Any) -> None:
            self.calls.append("add_lora")
            named.append(engine._adapter)
            taken.append(
                (request.load_inplace, sorted(file.name for file in Path(request.lora_path).iterdir()))
            )

    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("empty_cache"))
    monkeypatch.setattr(vllm.AsyncLLM, "from_engine_args", lambda given: Adapting(calls))
    monkeypatch.setattr(vllm, "keep_numbers_alone", lambda processor: None)
    setup = vllm.Setup(
        model=str(tiny), dtype="bfloat16", max_tokens=512, max_batch=4, gpu_memory=0.5, threads=1,
        device=torch.device("cuda", 0), adapters=Adapters(rank=16, alpha=32, targets=("q_proj",)),
    )  # fmt: skip
    found = vllm._arguments(policy, setup)
    assert (found.enable_lora, found.max_lora_rank) == (True, 16)
    engine = vllm.VllmEngine(policy, setup, tmp_path)
    calls.clear()

    async def hand_over() -> None:
        await engine.rest()
        await engine.take(lambda: iter([("a.lora_A.weight", torch.ones(2))]), 3)
        engine._sender.close()

    asyncio.run(hand_over())
    # Otherwise a turn that starts meanwhile would load them again with each batch.
    assert [one and one.load_inplace for one in named] == [None]
    assert calls == [
        "sleep 1", "empty_cache", "wake_up ['weights']", "pause_generation keep",
        "reset_prefix_cache True", "reset_encoder_cache", "add_lora",
        "update_weight_version vtune-3", "wake_up ['kv_cache']", "resume_generation",
    ]  # fmt: skip
    assert taken == [(True, ["adapter_config.json", "adapter_model.safetensors"])]
    assert engine._adapter.load_inplace is False


class FakeGroup(TensorParallelGroup):
    """A group of two threads in this process."""

    def __init__(self, index: int, address: Path, barrier: threading.Barrier, table: list[Any]) -> None:
        super().__init__(index, 2, None, address)
        self.both_here = barrier
        self.table = table

    def gather(self, value: Any) -> list[Any]:
        self.table[self.index] = value
        self.both_here.wait(60)
        found = list(self.table)
        self.both_here.wait(60)
        return found


class SharedLLM(FakeLLM):
    """A fake shared vLLM that answers turns and may die while it receives weights."""

    def __init__(self, calls: list[str], *, dies: bool) -> None:
        super().__init__(calls)
        self.dies = dies
        self.updates: list[dict[str, Any]] = []
        self.images: list[Any] = []

    async def update_weights(self, request: Any) -> None:
        self.calls.append("update_weights")
        if self.dies:
            raise vllm.EngineDeadError()
        self.updates.append(request.update_info)

    async def generate(
        self, prompt: dict[str, Any], sampling: Any, name: str, *, lora_request: Any
    ) -> AsyncIterator[Any]:
        assert lora_request is None
        self.calls.append("generate")
        self.images += prompt.get("multi_modal_data", {}).get("image", [])
        yield name


def shared(
    policy: Policy, gpus: Here, tiny: Path, folder: Path, patch: pytest.MonkeyPatch, *, dies: bool
) -> tuple[SharedLLM, list[str], list[Any]]:
    """A hand-over, a turn of the second process and a rest in a group of two; return each one's results.

    The two are the third and fourth process of their machine.
    """
    calls: list[str] = []
    llm = SharedLLM(calls, dies=dies)
    patch.setattr(vllm.AsyncLLM, "from_engine_args", lambda given: llm)
    patch.setattr(vllm, "keep_numbers_alone", lambda processor: None)
    patch.setattr(torch.cuda, "empty_cache", lambda: calls.append(f"empty_cache {gpus.device}"))
    row = ragged(policy)[0]
    patch.setattr(
        vllm_outputs,
        "answer_of",
        lambda name: Answer(row.token_ids, [5], [-0.1], "length", None, [("vtune-1", 1)]),
    )
    barrier, table = threading.Barrier(2), [None, None]
    groups = [FakeGroup(index, folder / "turns", barrier, table) for index in range(2)]
    setup = vllm.Setup(
        model=str(tiny), dtype="bfloat16", max_tokens=512, max_batch=4, gpu_memory=0.5, threads=1,
        device=torch.device("cuda", 2), tensor_parallel=2,
    )  # fmt: skip
    second = TensorParallelEngine(on_gpu(policy, 3), groups[1])
    first = EngineThread(lambda: vllm.VllmEngine(policy, setup, folder, tp_group=groups[0]), setup.device)
    sampling = Sampling(temperature=1.0, max_new_tokens=1)
    request = Request(token_ids=row.token_ids, pixels=row.pixels, sampling=sampling, key=(0, 0, 0, 0, 0))

    async def go(engine: Any, draws: bool) -> Any:
        await engine.rest()
        await engine.take(lambda: weights(policy), 1)
        found = await engine.generate(request) if draws else None
        await engine.rest()
        return found

    def run(engine: Any, number: int, draws: bool) -> Any:
        gpus.device = number  # as DeepSpeed sets it in the main thread
        try:
            return asyncio.run(go(engine, draws))
        except RunFailed as error:
            return error

    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(run, first, 2, False), threads.submit(run, second, 3, True)]
        return llm, calls, [one.result(120) for one in both]


def on_gpu(policy: Policy, number: int) -> Any:
    """The policy as if on a GPU."""
    return SimpleNamespace(
        device=torch.device("cuda", number), model=policy.model, chat=policy.chat, pictures=policy.pictures
    )


@pytest.mark.parametrize(
    ("ends", "asked"),
    [(["length"], 1), (["abort", "error", "length"], 3), (["error", "abort", "error", "length"], 3)],
)
def test_a_turn_aborted_by_vllm_is_tried_three_times(
    ends: list[str], asked: int, policy: Policy, gpus: Here, tiny: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    calls: list[str] = []
    row = ragged(policy)[0]
    left = iter(ends)

    def answered(name: str) -> Answer:
        end = next(left)
        tokens, labels = ([5], [("vtune-1", 1)]) if end == "length" else ([], [])
        return Answer(row.token_ids, tokens, [-0.1] * len(tokens), end, None, labels)

    monkeypatch.setattr(vllm.AsyncLLM, "from_engine_args", lambda given: SharedLLM(calls, dies=False))
    monkeypatch.setattr(vllm, "keep_numbers_alone", lambda processor: None)
    monkeypatch.setattr(vllm_outputs, "answer_of", answered)
    setup = vllm.Setup(
        model=str(tiny), dtype="bfloat16", max_tokens=512, max_batch=4, gpu_memory=0.5, threads=1,
        device=torch.device("cuda", 0),
    )  # fmt: skip
    engine = vllm.VllmEngine(policy, setup, tmp_path)
    sampling = Sampling(temperature=1.0, max_new_tokens=1)
    request = Request(token_ids=row.token_ids, pixels=row.pixels, sampling=sampling, key=(0, 0, 0, 0, 0))
    if asked == len(ends):
        assert asyncio.run(engine.generate(request)).token_ids == (5,)
    else:
        with pytest.raises(RunFailed, match=r"aborted a turn \(error\)"):
            asyncio.run(engine.generate(request))
    assert calls.count("generate") == asked


@pytest.mark.parametrize(
    ("fails", "errored", "asked"), [(1, False, 2), (2, False, 3), (3, False, 3), (1, True, 1)]
)
def test_a_turn_whose_picture_is_lost_in_this_process_is_retried(
    fails: int, errored: bool, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM checks for a processed picture first and fetches it later."""
    calls = 0

    async def ask() -> AsyncIterator[str]:
        nonlocal calls
        calls += 1
        if calls <= fails:
            raise EngineGenerateError
        yield "output"

    drawn = Answer([1], [5], [-0.1], "length", None, [("vtune-1", 1)])
    monkeypatch.setattr(vllm_outputs, "answer_of", lambda output: drawn)
    turn = vllm_outputs.turn_of(SimpleNamespace(errored=errored), ask)
    if fails == asked:
        with pytest.raises(EngineGenerateError):
            asyncio.run(turn)
    else:
        assert asyncio.run(turn) is drawn
    assert calls == asked


def test_a_tensor_parallel_group_sends_weights_of_all_gpus_and_one_generates_for_all(
    policy: Policy, gpus: Here, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm, calls, found = shared(policy, gpus, tiny, tmp_path, monkeypatch, dies=False)
    assert found[0] is None
    assert found[1].token_ids == (5,)
    assert [sorted(in_vllms_process(update).ipc_handles) for update in llm.updates] == [["GPU-2", "GPU-3"]]
    (image,) = llm.images[:1]
    assert image.tobytes() == policy.pictures.shown(ragged(policy)[0].pixels[0]).convert("RGB").tobytes()
    words = [call.partition(" ")[0] for call in calls]
    assert {call for call in calls if call.startswith("empty")} == {"empty_cache 2", "empty_cache 3"}
    assert words[0] == "empty_cache", "before vLLM starts"
    assert words[1] == words[-1] == "sleep"
    # Both GPUs' memory is released before vLLM takes any; vLLM sleeps once the other process has generated.
    assert words[2:5] == ["empty_cache", "empty_cache", "wake_up"]
    again = words.index("wake_up", 5)
    assert words[again - 2 : again] == ["empty_cache", "empty_cache"]
    assert words.index("generate") == len(words) - 2


def test_a_tensor_parallel_group_ends_together_if_its_vllm_dies_during_an_update(
    policy: Policy, gpus: Here, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, found = shared(policy, gpus, tiny, tmp_path, monkeypatch, dies=True)
    assert [type(one) for one in found] == [RunFailed, RunFailed]


def test_a_shared_vllm_sees_the_gpus_of_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda", 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert child_environment(device, threads=1, gpus=2)["CUDA_VISIBLE_DEVICES"] == "2,3"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert child_environment(device, threads=1, gpus=2)["CUDA_VISIBLE_DEVICES"] == "6,7"
    assert child_environment(device, threads=1)["CUDA_VISIBLE_DEVICES"] == "6"


def test_a_shared_vllm_gets_the_right_arguments(policy: Policy, tiny: Path) -> None:
    for gpus, mode in ((1, "weights"), (4, "data")):
        setup = vllm.Setup(
            model=str(tiny), dtype="bfloat16", max_tokens=512, max_batch=4, gpu_memory=0.5, threads=1,
            device=torch.device("cuda", 0), tensor_parallel=gpus,
        )  # fmt: skip
        found = vllm._arguments(policy, setup)
        assert (found.tensor_parallel_size, found.mm_encoder_tp_mode) == (gpus, mode)
        assert (found.max_num_seqs, found.max_num_batched_tokens) == (4, BATCHED_TOKENS)
