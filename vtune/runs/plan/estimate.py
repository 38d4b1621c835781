"""A recipe's memory by phase and part, for the largest micro-batch that its limits allow."""

from collections.abc import Mapping
from typing import Any

from vtune.models.families.shape import Shape
from vtune.rollout.vllm_environment import BATCHED_TOKENS
from vtune.runs.plan.machine import GB, Machine
from vtune.sections import Strict
from vtune.update import memory
from vtune.update.forward import CHUNK, GPU_CHUNK
from vtune.update.zero import BUCKET

VLLM_GRAPHS_GB = 1.0
"""CUDA graphs and context of vLLM's engine. Ours."""
ASLEEP = "vLLM's graphs"
"""Memory that a sleeping vLLM keeps."""
TRANSFER = 1 << 30
"""Bytes of the buffer in which weights are sent to vLLM, unless a tensor is larger."""
PICTURES_A_CALL = 5
"""Most pictures that one tool call may return."""
TRACE_PICTURES = 6
"""Most pictures in one trace, if only `max_tokens` limits them. Ours."""

PROMPT_SHARE = 0.75
"""Assumed share of a conversation that its whole group shares: the prompt with the picture. Ours."""


def phases_of(values: Mapping[str, Any], shape: Shape, machine: Machine) -> dict[str, dict[str, float]]:
    """GB on one GPU by phase and part."""
    load = load_of(values, shape, machine)
    stays = memory.resident(shape, load)
    phases = {
        "update": stays | memory.gradients(shape, load) | memory.backward(shape, load),
        "optimizer step": stays | memory.gradients(shape, load) | memory.stepping(shape, load),
    }
    if draws(values):
        drawing = _rollout(values, shape, load, machine.memory_gb)
        phases["rollout"] = stays | drawing
        if values["rollout"].get("staleness"):
            # The next step is generated meanwhile, so vLLM does not sleep.
            phases = {phase: parts | drawing for phase, parts in phases.items()}
        elif engine_of(values) == "vllm" and machine.kind == "gpu":
            phases = {phase: parts | {ASLEEP: VLLM_GRAPHS_GB * GB} for phase, parts in phases.items()}
            phases["rollout"] = stays | drawing
            phases["hand-over"] = stays | _hand_over(values, shape, load)
    return {phase: {part: size / GB for part, size in parts.items()} for phase, parts in phases.items()}


def _hand_over(values: Mapping[str, Any], shape: Shape, load: memory.Load) -> dict[str, float]:
    """Bytes for weights being sent to the vLLM beside the trainer, which is awake except for its KV cache."""
    b = load.dtype_bytes
    largest = shape.vocab * shape.hidden * b
    gathered = BUCKET * b if load.zero_stage == 3 or load.lora_rank else 0
    awake = {"vLLM weights": vllm_needs(values, shape)["vLLM weights"], ASLEEP: VLLM_GRAPHS_GB * GB}
    if _adapters_alone(values):
        return awake
    return awake | {"weights on their way": float(max(TRANSFER, largest) + gathered)}


def _adapters_alone(values: Mapping[str, Any]) -> bool:
    """Whether vLLM keeps its weights, and receives only adapters."""
    return bool(values["rollout"].get("adapters", "merged") == "alone")


def load_of(values: Mapping[str, Any], shape: Shape, machine: Machine) -> memory.Load:
    """The largest micro-batch that the recipe allows, and how it is trained."""
    update = values["update"]
    longest = longest_of(values)
    measured = machine.pictures
    if draws(values):
        pictures = measured.most + PICTURES_A_CALL * (values["rollout"]["max_turns"] - 1)
    else:
        pictures = TRACE_PICTURES if measured.pixels is None else measured.most
    visual = min(longest, pictures * values["images"]["max_pixels"] // shape.token_pixels)
    # A conversation longer than a micro-batch's budget gets its own micro-batch.
    shared = sharing_rows(values)
    row = max(update["micro_tokens"] * shared, longest)
    patches = row * visual // longest * shape.merge**2
    tokens = -(-row // shared)
    lora = update["lora"] or {}
    return memory.Load(
        gpus=machine.gpus,
        dtype_bytes=bytes_of(values),
        zero_stage=update["zero_stage"],
        tokens=tokens,
        # A picture is encoded by a single process.
        patches=min(patches, max(-(-patches // shared), values["images"]["max_pixels"] // shape.patch**2)),
        shown=patches,
        scored=max(1, (GPU_CHUNK if machine.kind == "gpu" else CHUNK) // shape.vocab),
        copied=_copied(values["group_size"]) if draws(values) else 0.0,
        checkpointing=bool(update["activation_checkpointing"]),
        frozen=tuple(update["freeze"]),
        # With adapters, the reference is the model without them.
        reference=draws(values) and values["loss"]["kl_weight"] > 0 and not lora,
        lora_rank=lora.get("rank", 0),
        lora_targets=tuple(lora.get("targets") or ()),
        overlap_comm=bool(update.get("overlap_comm")),
        offload=frozenset(update["offload"] or ()),
    )


def _copied(group_size: int) -> float:
    """Tokens whose keys and values a group's conversations see, relative to the tokens in the group's row."""
    if group_size == 1:
        return 0.0
    return group_size / (PROMPT_SHARE + group_size * (1 - PROMPT_SHARE))


def draws(values: Mapping[str, Any]) -> bool:
    """Whether it is a recipe of `vtune rl`."""
    return "rollout" in values


def longest_of(values: Mapping[str, Any]) -> int:
    """Tokens of the longest conversation."""
    found: int = values["rollout"]["max_tokens"] if draws(values) else values["max_tokens"]
    return found


def bytes_of(values: Mapping[str, Any]) -> int:
    """Bytes per number in the training dtype."""
    return 2 if values["update"]["dtype"] == "bfloat16" else 4


def engine_of(values: Mapping[str, Any]) -> str:
    """`transformers`, `vllm` beside the trainer, or `servers` elsewhere."""
    rollout = values["rollout"]
    return "servers" if rollout["servers"] else str(rollout.get("engine", "transformers"))


def rows_of(values: Mapping[str, Any], machine: Machine) -> int:
    """Number of simultaneous conversations of one process."""
    share = -(-values["prompts_per_step"] * values["group_size"] // machine.gpus)
    return int(min(values["rollout"]["max_batch"], share))


def _rollout(
    values: Mapping[str, Any], shape: Shape, load: memory.Load, memory_gb: float
) -> dict[str, float]:
    """Bytes that generating needs in addition to resident memory."""
    engine = engine_of(values)
    if engine == "servers":
        return {}
    if engine == "vllm":
        needed = vllm_needs(values, shape)
        spare = values["rollout"]["gpu_memory"] * memory_gb * GB - sum(needed.values())
        return needed | {"KV cache": needed["KV cache"] + max(0.0, spare)}
    b, longest = load.dtype_bytes, longest_of(values)
    one = longest * memory.kv_token(shape, b)
    share = -(-values["prompts_per_step"] * values["group_size"] // load.gpus)
    rows = min(values["rollout"]["max_batch"], share)
    # The trained model generates, with sharded weights gathered and adapters merged.
    gathered = {"gathered weights": float(shape.total * b)} if load.zero_stage == 3 or load.lora_rank else {}
    return gathered | {
        "KV cache": float(rows * one),
        # Later turns have nothing in common: all rows are prefilled again, at the same time.
        "reading the turns": float(rows * longest * memory.prefill_token(shape, b)),
    }


def vllm_needs(values: Mapping[str, Any], shape: Shape) -> dict[str, float]:
    """Bytes on a GPU for a vLLM that can hold one conversation; with less it refuses to start."""
    b, gpus = bytes_of(values), sharing(values)
    # Each GPU has the whole vision tower.
    weights = shape.total - shape.parameters["language"] * (1 - 1 / gpus)
    return {
        "vLLM weights": float(weights * b),
        "vLLM at work": BATCHED_TOKENS * memory.prefill_token(shape, b) + VLLM_GRAPHS_GB * GB,
        "KV cache": _cached(values, shape),
    }


def sharing(values: Mapping[str, Any]) -> int:
    """Number of GPUs that share a vLLM."""
    found: int = values["rollout"].get("tensor_parallel", 1)
    return found


def sharing_rows(values: Mapping[str, Any]) -> int:
    """Number of processes that share a row in training."""
    found: int = values["update"].get("sequence_parallel", 1)
    return found


def kv_token(values: Mapping[str, Any], shape: Shape) -> float:
    """Bytes per token of keys and values on each GPU of a vLLM; a key head is on at least one GPU."""
    return memory.kv_token(shape, bytes_of(values)) / min(sharing(values), shape.kv_heads)


def _cached(values: Mapping[str, Any], shape: Shape) -> float:
    """Bytes on a GPU for the keys and values of one conversation."""
    return longest_of(values) * kv_token(values, shape)


def _vllm_lacks(values: Mapping[str, Any], shape: Shape, machine: Machine) -> float:
    """GB by which `rollout.gpu_memory` falls short of what a vLLM beside the trainer needs."""
    # On a CPU it limits nothing.
    if not draws(values) or engine_of(values) != "vllm" or machine.kind == "cpu":
        return 0.0
    share: float = values["rollout"]["gpu_memory"]
    return max(0.0, sum(vllm_needs(values, shape).values()) / GB - share * machine.memory_gb)


def vllm_notes(
    values: Mapping[str, Any], shape: Shape, machine: Machine, phases: Mapping[str, Mapping[str, float]]
) -> list[str]:
    """Notes on what a vLLM beside the trainer can hold, or lacks; empty if there is none."""
    if not draws(values) or engine_of(values) != "vllm":
        return []
    if _vllm_lacks(values, shape, machine):
        share: float = values["rollout"]["gpu_memory"]
        needed = sum(vllm_needs(values, shape).values()) / GB
        given = f"rollout.gpu_memory {share:g} gives vLLM {share * machine.memory_gb:.1f} GB"
        return [f"{given}, but it needs {needed:.1f} GB to start"]
    fit = int(phases["rollout"]["KV cache"] * GB / _cached(values, shape))
    rows = rows_of(values, machine) * sharing(values)
    more = "" if fit >= rows else " (more if they are shorter)"
    longest = longest_of(values)
    room = f"{fit} conversation{'s' if fit > 1 else ''} of {longest} tokens{more}"
    return [f"KV cache: room for {room}; {rows} are requested at once"]


def cache_of(values: Mapping[str, Any], shape: Shape, machine: Machine) -> float:
    """Bytes on a GPU that a vLLM beside the trainer has for keys and values."""
    return _rollout(values, shape, load_of(values, shape, machine), machine.memory_gb)["KV cache"]


def on_host(values: Mapping[str, Any], shape: Shape, machine: Machine) -> float:
    """GB of memory on each host, over all its processes."""
    load = load_of(values, shape, machine)
    held = memory.on_host(shape, load)
    if values["checkpoints"].get("background"):
        held += memory.state(shape, load)  # until it is written
    if draws(values) and engine_of(values) == "vllm" and machine.kind == "gpu":
        # If the weights are not sent again, they are offloaded here while training.
        sleeps = _adapters_alone(values) and not values["rollout"].get("staleness")
        held += vllm_needs(values, shape)["vLLM weights"] * machine.gpus * sleeps
    return round(held / machine.hosts / GB, 1)


def sessions_of(values: Mapping[str, Any], machine: Machine) -> int:
    """Sandbox sessions on each host, if code may run: one per conversation."""
    return rows_of(values, machine) * machine.of_a_host


def on_disk(
    values: Mapping[str, Any], shape: Shape, machine: Machine, *, steps: int | None
) -> dict[str, float]:
    """GB of one checkpoint, and of all that exist at the same time while the next one is written.

    If the number of steps is unknown, `and one more every` says after how many steps another one is kept.
    """
    keep = values["checkpoints"]["keep"]
    count = (keep["newest"] + (keep["best"] is not None) if isinstance(keep, dict) else keep) + 1
    every = keep["every"] if isinstance(keep, dict) else None
    if every and steps is not None:
        count += steps // every
    one = memory.on_disk(shape, load_of(values, shape, machine)) / GB
    found = {"a checkpoint": round(one, 1), "at the same time": count, "together": round(one * count, 1)}
    return found | ({"and one more every": every} if every and steps is None else {})


def peak_of(phases: Mapping[str, Mapping[str, float]]) -> float:
    """GB of the phase that needs most."""
    return max(sum(parts.values()) for parts in phases.values())


def over(values: Mapping[str, Any], shape: Shape, machine: Machine) -> float:
    """GB by which the phases exceed the room, and vLLM its share; summed, so that any remedy counts."""
    phases = phases_of(values, shape, machine)
    overrun = sum(max(0.0, sum(parts.values()) - machine.room_gb) for parts in phases.values())
    return overrun + _vllm_lacks(values, shape, machine)


def fits(recipe: Strict, shape: Shape, machine: Machine) -> bool:
    """Whether nothing exceeds its room."""
    return over(recipe.model_dump(mode="json"), shape, machine) == 0
