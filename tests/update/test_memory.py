"""Memory estimates compared with the memory of real models."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed._tools.mem_tracker import MemTracker

from tests.conftest import load
from tests.update.build import OBJECTIVE, items, update
from vtune.models.families.shape import Shape
from vtune.models.fused import use_fused_modules
from vtune.models.policy import Policy
from vtune.models.shape import find_shape, known_shapes, shape_of
from vtune.update import memory
from vtune.update.deepspeed import Trainer
from vtune.update.forward import PolicyForward, checkpoint_activations
from vtune.update.memory import Load, backward, gradients, kv_token, on_host, resident, stepping, trained
from vtune.update.ranks import Ranks
from vtune.update.starting import start

SEVEN = shape_of(known_shapes()["Qwen2.5-VL-7B"])


def a_load(**changes: Any) -> Load:
    values: dict[str, Any] = {
        "gpus": 1,
        "dtype_bytes": 2,
        "zero_stage": 2,
        "tokens": 1000,
        "patches": 400,
        "scored": 1024,
        "checkpointing": False,
    }
    return Load(**(values | changes))


def shape(folder: Path) -> Shape:
    found = find_shape(str(folder), None)
    assert found is not None
    return found[0]


@contextmanager
def made() -> Iterator[Callable[[], list[torch.Tensor]]]:
    """Yield a function that returns all live tensors created in this block.

    Earlier objects are frozen, so that neither this nor the garbage collector visits them: in a full test run
    there are millions.
    """
    gc.collect()
    gc.freeze()

    def alive() -> list[torch.Tensor]:
        gc.collect()
        return [thing for thing in gc.get_objects() if type(thing) in (torch.Tensor, torch.nn.Parameter)]

    yield alive


def size_of(tensors: list[torch.Tensor]) -> int:
    """Bytes, counting each storage once; tensors on the device `meta` have none."""
    storages = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors if not t.is_meta
    }
    return sum(storages.values())


@pytest.mark.train
@pytest.mark.parametrize(
    ("dtype", "stage", "frozen"),
    [
        ("float32", 1, ()),
        ("float32", 1, ("vision", "connector")),
        ("bfloat16", 1, ()),
        ("bfloat16", 2, ("vision",)),
    ],
)
def test_memory_after_a_step_matches_the_estimate(
    tiny: Path, dtype: str, stage: int, frozen: tuple[str, ...]
) -> None:
    ranks = Ranks.of_this_process()
    start(ranks)
    with made() as alive:
        policy = load(tiny)
        policy.model.to(getattr(torch, dtype))
        recipe = update(zero_stage=stage, dtype=dtype, freeze=frozen)
        objective = OBJECTIVE.model_copy(update={"kl_weight": 0.0})
        trainer = Trainer(policy, recipe, ranks, steps=2, objective=objective, reference="")
        trainer.step(items(policy, 2))
        policy.model.zero_grad()
        policy.pictures._seen._kept.clear()
        found = size_of(alive())
    # DeepSpeed keeps a reference to its last engine.
    trainer._engine.destroy()
    size = 2 if dtype == "bfloat16" else 4
    load_ = a_load(dtype_bytes=size, zero_stage=stage, frozen=frozen)
    parts = resident(shape(tiny), load_)
    assert sum(trainer.trainable.values()) == trained(shape(tiny), load_)
    assert found == pytest.approx(sum(parts.values()), rel=0.05)


def model_of(width: int, layers: int, dtype: torch.dtype) -> tuple[Any, Shape]:
    """A model whose layers' activations outweigh those of embedding and head if it has enough layers."""
    import transformers

    hf: Any = transformers
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [8, 12, 12]}
    text = {
        "hidden_size": width, "intermediate_size": 3 * width, "num_hidden_layers": layers,
        "num_attention_heads": width // 64, "num_key_value_heads": 2, "vocab_size": 1024,
        "rope_parameters": rope, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    vision = {
        "depth": layers, "hidden_size": width // 2, "intermediate_size": width, "num_heads": 4,
        "out_hidden_size": width, "fullatt_block_indexes": [0],
    }  # fmt: skip
    ids = dict(zip(("image", "video", "vision_start", "vision_end"), range(1020, 1024), strict=True))
    tokens = {f"{name}_token_id": number for name, number in ids.items()}
    config = hf.Qwen2_5_VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=False, **tokens)
    model = hf.Qwen2_5_VLForConditionalGeneration(config).to(dtype).train()
    use_fused_modules(model)
    return model, shape_of(config.to_dict())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "run again"])
@pytest.mark.parametrize("side", [0, 32], ids=["text", "picture"])
def test_the_peak_of_a_backward_pass_matches_the_estimate(
    dtype: torch.dtype, checkpointing: bool, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "LOGIT_BYTES", 0)  # nothing is scored
    # With checkpointing a layer keeps less, so more layers are needed to outweigh embedding and head.
    model, size = model_of(256, 4 if checkpointing else 2, dtype)
    if checkpointing:
        checkpoint_activations(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    tokens, patches = 512, side * side
    ids = torch.randint(3, 1000, (1, tokens))
    ids[0, : patches // 4] = 1020
    tracker = MemTracker()
    tracker.track_external(model)
    with tracker:
        seen = None
        if side:
            pixels, grid = torch.randn(patches, size.patch_values), torch.tensor([[1, side, side]])
            seen = {"image": model.get_image_features(pixels.to(dtype), grid, return_dict=True)}
        hidden = model.model(
            input_ids=ids, position_ids=torch.arange(tokens).expand(3, 1, tokens),
            attention_mask=torch.ones_like(ids), mm_encoder_outputs=seen, use_cache=False,
        ).last_hidden_state  # fmt: skip
        hidden.float().pow(2).sum().backward()
    bytes_ = torch.empty((), dtype=dtype).element_size()
    peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    found = peak - 2 * size.total * bytes_
    parts = backward(
        size, a_load(dtype_bytes=bytes_, tokens=tokens, patches=patches, checkpointing=checkpointing)
    )
    assert parts["logits"] == 0
    assert 0.8 < sum(parts.values()) / found < 1.25


def test_the_logits_of_a_chunk_match_the_estimate(policy: Policy, tiny: Path) -> None:
    size, rows = shape(tiny), 512
    forward = PolicyForward(policy.model, policy.chat)
    hidden = torch.randn(rows, size.hidden, requires_grad=True)
    tracker = MemTracker()
    tracker.track_external(policy.model)
    with tracker:
        forward._score(hidden, torch.zeros(rows, dtype=torch.long))[0].sum().backward()
    peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    found = peak["Total"] - size.total * 4
    policy.model.zero_grad()
    said = backward(size, a_load(dtype_bytes=4, tokens=rows, scored=rows))["logits"]
    assert 0.6 < said / found < 1.3


def test_zero_splits_the_optimizer_the_gradients_and_the_weights_in_turn() -> None:
    def parts(stage: int) -> dict[str, float]:
        load_ = a_load(gpus=8, zero_stage=stage)
        return resident(SEVEN, load_) | gradients(SEVEN, load_)

    one, two, three = (parts(stage) for stage in (1, 2, 3))
    assert one["optimizer"] == 12 * SEVEN.total / 8
    assert one["gradients"] == 2 * SEVEN.total
    assert two["gradients"] == 4 * SEVEN.total / 8, "they are added up in float32"
    assert three["weights"] == two["weights"] // 8
    assert two["weights"] == one["weights"] == 2 * SEVEN.total


def test_overlapping_communication_takes_a_second_buffer() -> None:
    def buffers(stage: int, *, overlap_comm: bool) -> float:
        load_ = a_load(gpus=8, zero_stage=stage, overlap_comm=overlap_comm)
        return gradients(SEVEN, load_)["buffers"]

    assert buffers(2, overlap_comm=True) == 2 * buffers(2, overlap_comm=False)
    assert buffers(3, overlap_comm=True) == buffers(3, overlap_comm=False)


def test_adapters_and_offload_leave_little_on_the_gpu() -> None:
    lora = a_load(lora_rank=16, lora_targets=("q_proj", "v_proj"))
    assert trained(SEVEN, lora) == 28 * 16 * (3584 + 3584 + 3584 + 512)
    both = a_load(lora_rank=16, lora_targets=("up_proj",))
    assert trained(SEVEN, both) == 16 * (28 * (3584 + 18944) + 32 * (1280 + 3420))
    assert backward(SEVEN, both)["pictures"] > backward(SEVEN, lora)["pictures"]
    assert resident(SEVEN, lora)["optimizer"] == 12 * trained(SEVEN, lora)
    away = a_load(zero_stage=3, gpus=2, offload=frozenset({"optimizer", "params"}))
    assert resident(SEVEN, away) == {"weights": 0.0, "optimizer": 0.0}
    assert stepping(SEVEN, away) == {}
    assert on_host(SEVEN, away) == 16 * SEVEN.total
    assert on_host(SEVEN, lora) == 0


def test_a_reference_is_a_second_copy_of_the_weights() -> None:
    assert resident(SEVEN, a_load(reference=True))["KL reference"] == 2 * SEVEN.total


def test_the_7b_models_kv_cache_takes_57_kilobytes_per_token() -> None:
    assert kv_token(SEVEN, 2) == 2 * 28 * 4 * 128 * 2 == 57344
