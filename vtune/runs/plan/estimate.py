"""Memory by phase and part, and seconds of a step, of a recipe on a machine.

Memory is that of the largest micro-batch which the recipe's limits allow; tokens and seconds are those of
an assumed conversation, which the plan states.
"""

import os
from collections.abc import Mapping
from typing import Any

from vtune.config import Strict
from vtune.models.families.shape import Shape
from vtune.rollout.vllm_environment import BATCHED_TOKENS
from vtune.runs.plan.machine import GB, Machine
from vtune.update import memory, rates
from vtune.update.flops import Work, forward_flops, passes_of
from vtune.update.forward import CHUNK, GPU_CHUNK
from vtune.update.zero import BUCKET

VLLM_GRAPHS_GB = 1.0
"""CUDA graphs and context of vLLM's engine. Ours."""
ASLEEP = "vLLM's graphs"
"""What a vLLM keeps that sleeps."""
TRANSFER = 1 << 30
"""Bytes of the buffer in which weights travel to vLLM, unless a tensor is larger."""
PICTURES_A_CALL = 5
"""That one tool call may return."""
TRACE_PICTURES = 6
"""In one trace, at most, where only `max_tokens` limits them. Ours."""

PROMPT_WORDS = 300
"""Assumed tokens of text in a prompt. Ours, as all that is assumed below."""
PICTURE_PIXELS = 1_000_000
"""Assumed pixels of a picture, where `images.max_pixels` allows them."""
PROMPT_SHARE = 0.75
"""Assumed share of a conversation that its group has in common: its prompt with the picture."""
TURN_WORDS = 200
"""Assumed tokens that the policy writes in a turn."""
TURNS = 2
"""Assumed turns: one look at a quarter of the picture, and the answer."""


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
            # The next step is drawn meanwhile: vLLM does not sleep.
            phases = {phase: parts | drawing for phase, parts in phases.items()}
        elif engine_of(values) == "vllm" and machine.kind == "gpu":
            phases = {phase: parts | {ASLEEP: VLLM_GRAPHS_GB * GB} for phase, parts in phases.items()}
            phases["rollout"] = stays | drawing
            phases["hand-over"] = stays | _hand_over(values, shape, load)
    return {phase: {part: size / GB for part, size in parts.items()} for phase, parts in phases.items()}


def _hand_over(values: Mapping[str, Any], shape: Shape, load: memory.Load) -> dict[str, float]:
    """Bytes of weights on their way to the vLLM beside the trainer, which has woken but for its KV cache."""
    b = load.dtype_bytes
    largest = shape.vocab * shape.hidden * b
    gathered = BUCKET * b if load.zero_stage == 3 or load.lora_rank else 0
    awake = {"vLLM weights": vllm_needs(values, shape)["vLLM weights"], ASLEEP: VLLM_GRAPHS_GB * GB}
    if _adapters_alone(values):
        return awake
    return awake | {"weights on their way": float(max(TRANSFER, largest) + gathered)}


def _adapters_alone(values: Mapping[str, Any]) -> bool:
    """Whether vLLM keeps its weights, and gets adapters for them."""
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
    # A conversation longer than the budget of a micro-batch has one of its own.
    shared = sharing_rows(values)
    row = max(update["micro_tokens"] * shared, longest)
    patches = row * visual // longest * shape.merge**2
    tokens = -(-row // shared)
    lora = update["lora"] or {}
    return memory.Load(
        gpus=machine.gpus,
        dtype_bytes=_bytes(values),
        zero_stage=update["zero_stage"],
        tokens=tokens,
        # A picture is encoded by one process.
        patches=min(patches, max(-(-patches // shared), values["images"]["max_pixels"] // shape.patch**2)),
        shown=patches,
        scored=max(1, (GPU_CHUNK if machine.kind == "gpu" else CHUNK) // shape.vocab),
        copied=_copied(values["group_size"]) if draws(values) else 0.0,
        checkpointing=bool(update["activation_checkpointing"]),
        frozen=tuple(update["freeze"]),
        # With adapters the reference is the model without them.
        reference=draws(values) and values["loss"]["kl_weight"] > 0 and not lora,
        lora_rank=lora.get("rank", 0),
        lora_targets=tuple(lora.get("targets") or ()),
        overlap_comm=bool(update.get("overlap_comm")),
        offload=frozenset(update["offload"] or ()),
    )


def _copied(group_size: int) -> float:
    """Tokens whose keys and values the conversations of a group see, by those of the group's row."""
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


def _bytes(values: Mapping[str, Any]) -> int:
    return 2 if values["update"]["dtype"] == "bfloat16" else 4


def engine_of(values: Mapping[str, Any]) -> str:
    """`transformers`, `vllm` beside the trainer, or `servers` elsewhere."""
    rollout = values["rollout"]
    return "servers" if rollout["servers"] else str(rollout.get("engine", "transformers"))


def _rows(values: Mapping[str, Any], machine: Machine) -> int:
    """Conversations of one process at the same time."""
    share = -(-values["prompts_per_step"] * values["group_size"] // machine.gpus)
    return int(min(values["rollout"]["max_batch"], share))


def _rollout(
    values: Mapping[str, Any], shape: Shape, load: memory.Load, memory_gb: float
) -> dict[str, float]:
    """Bytes that rolling out needs beside what stays."""
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
    # The trained model draws: split weights are gathered for it, and adapters merged.
    gathered = {"gathered weights": float(shape.total * b)} if load.zero_stage == 3 or load.lora_rank else {}
    return gathered | {
        "KV cache": float(rows * one),
        # Later turns have nothing in common: all rows are read again, at once.
        "reading the turns": float(rows * longest * memory.prefill_token(shape, b)),
    }


def vllm_needs(values: Mapping[str, Any], shape: Shape) -> dict[str, float]:
    """Bytes on a GPU of a vLLM that can hold one conversation; with less it refuses to start."""
    b, gpus = _bytes(values), sharing(values)
    # Each GPU has the whole vision tower.
    weights = shape.total - shape.parameters["language"] * (1 - 1 / gpus)
    return {
        "vLLM weights": float(weights * b),
        "vLLM at work": BATCHED_TOKENS * memory.prefill_token(shape, b) + VLLM_GRAPHS_GB * GB,
        "KV cache": _cached(values, shape),
    }


def sharing(values: Mapping[str, Any]) -> int:
    """GPUs that share a vLLM."""
    found: int = values["rollout"].get("tensor_parallel", 1)
    return found


def sharing_rows(values: Mapping[str, Any]) -> int:
    """Processes that share a row in training."""
    found: int = values["update"].get("sequence_parallel", 1)
    return found


def _cached(values: Mapping[str, Any], shape: Shape) -> float:
    """Bytes on a GPU of one conversation's keys and values; a head is on at least one GPU."""
    split = min(sharing(values), shape.kv_heads)
    return longest_of(values) * memory.kv_token(shape, _bytes(values)) / split


def _vllm_lacks(values: Mapping[str, Any], shape: Shape, machine: Machine) -> float:
    """GB by which `rollout.gpu_memory` is less than a vLLM beside the trainer needs."""
    # On a CPU it limits nothing.
    if not draws(values) or engine_of(values) != "vllm" or machine.kind == "cpu":
        return 0.0
    share: float = values["rollout"]["gpu_memory"]
    return max(0.0, sum(vllm_needs(values, shape).values()) / GB - share * machine.memory_gb)


def vllm_notes(
    values: Mapping[str, Any], shape: Shape, machine: Machine, phases: Mapping[str, Mapping[str, float]]
) -> list[str]:
    """What a vLLM beside the trainer can hold, or lacks; nothing where there is none."""
    if not draws(values) or engine_of(values) != "vllm":
        return []
    if _vllm_lacks(values, shape, machine):
        share: float = values["rollout"]["gpu_memory"]
        needed = sum(vllm_needs(values, shape).values()) / GB
        given = f"rollout.gpu_memory {share:g} gives vLLM {share * machine.memory_gb:.1f} GB"
        return [f"{given}, and it needs {needed:.1f} GB to start"]
    fit = int(phases["rollout"]["KV cache"] * GB / _cached(values, shape))
    rows = _rows(values, machine) * sharing(values)
    more = "" if fit >= rows else " (more if they are shorter)"
    longest = longest_of(values)
    return [f"KV cache: room for {fit} conversations of {longest} tokens{more}; {rows} are drawn at once"]


def on_host(values: Mapping[str, Any], shape: Shape, machine: Machine) -> float:
    """GB in the memory of the host, of all processes together."""
    load = load_of(values, shape, machine)
    held = memory.on_host(shape, load)
    if values["checkpoints"].get("background"):
        # Until it is written; pessimistic where a run has several machines, which share it.
        held += memory.state(shape, load)
    if draws(values) and engine_of(values) == "vllm" and machine.kind == "gpu":
        # Where they are not sent again, they are there while the weights are trained.
        sleeps = _adapters_alone(values) and not values["rollout"].get("staleness")
        held += vllm_needs(values, shape)["vLLM weights"] * machine.gpus * sleeps
    return round(held / GB, 1)


def on_disk(
    values: Mapping[str, Any], shape: Shape, machine: Machine, *, steps: int | None
) -> dict[str, float]:
    """GB of a checkpoint, and of all that are there at the same time while the next one is written.

    Where nobody knows how many steps there will be, `and one more every` says after how many another stays.
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


def step_of(
    values: Mapping[str, Any], shape: Shape, machine: Machine, *, steps: int | None = None
) -> dict[str, Any]:
    """Tokens and seconds of a step, and of all `steps` where they are known, and what is assumed for them."""
    longest = longest_of(values)
    found = machine.pictures
    pixels = min(found.pixels or PICTURE_PIXELS, values["images"]["max_pixels"])
    one = int(max(pixels, values["images"]["min_pixels"]) // shape.token_pixels)
    picture = round(one * found.each)
    assumed: dict[str, Any] = {
        "tokens of a picture": one,
        "pictures of a row": round(found.each, 2),
        "from data": found.pixels is not None,
    }
    if draws(values):
        limits = values["rollout"]
        turns = min(TURNS, limits["max_turns"])
        written = turns * min(TURN_WORDS, limits["max_new_tokens"])
        crop = one // 4 * (turns - 1)
        text = min(PROMPT_WORDS, max(0, longest - picture - crop - written))
        conversations = values["prompts_per_step"] * values["group_size"]
        assumed |= {"turns": turns, "written tokens": written}
    else:
        # What calls returned is among the pictures of a trace that was measured.
        crop = 0 if assumed["from data"] else one // 4
        turns, conversations = 1, values["batch_size"]
        text = written = min(PROMPT_WORDS, max(1, longest - picture - crop) // 2)
    tokens = min(longest, text + picture + crop + written)
    assumed["tokens per conversation"] = tokens
    patches = (picture + crop) * shape.merge**2
    flops = _update_flops(values, shape, machine, _forward_flops(shape, tokens, patches, written))
    share = -(-conversations // machine.gpus)
    speed = _speed(values, machine)
    seconds = {"update": share * flops / (speed * _share(machine, rates.TRAIN_SHARE))}
    if draws(values):
        seconds["rollout"] = _drawing(values, shape, machine, tokens, patches, written, turns, share)
    elsewhere = draws(values) and engine_of(values) == "servers"
    # Drawn ahead on other GPUs, a step is there when the one before has been trained.
    total = (max if elsewhere and values["rollout"].get("staleness") else sum)(seconds.values())
    if elsewhere:
        assumed["servers"] = f"as fast as {machine.gpus} such GPUs, each with a vLLM of its own"
    step = {
        "conversations": conversations,
        "tokens": conversations * tokens,
        "tokens, at most": conversations * longest,
        "written": conversations * written,
        **{f"seconds, {phase}": round(value, 1) for phase, value in seconds.items()},
        "seconds": round(total, 1),
        "tokens per second": round(conversations * tokens / total),
    }
    if steps is not None:
        step["hours, all steps"] = round(total * steps / 3600, 1)
    assumed["speeds"] = f"{machine.device.name}: {machine.device.source}"
    assumed["left out"] = "tools, judges, waiting for the slowest conversation, shared prefixes in training"
    return {"step": step, "assumed": assumed}


def _forward_flops(shape: Shape, tokens: int, patches: int, scored: int) -> dict[str, float]:
    """Of one conversation without gradient, by part."""
    pairs = tokens**2 / 2  # causal: half of the square
    return forward_flops(shape, Work(tokens, pairs, patches, scored))


def _update_flops(
    values: Mapping[str, Any], shape: Shape, machine: Machine, forward: Mapping[str, float]
) -> float:
    """Of one conversation in training: what is frozen has no backward pass, and is not computed again."""
    load = load_of(values, shape, machine)
    passes = passes_of(memory.learning(shape, load), adapters=load.lora_rank > 0)
    reference = draws(values) and values["loss"]["kl_weight"] > 0
    return sum(
        flops * (passes[part] + (load.checkpointing and passes[part] > 1) + reference)
        for part, flops in forward.items()
    )


def _speed(values: Mapping[str, Any], machine: Machine) -> float:
    """Operations a second of one process at the peak of its device."""
    return machine.device.flops * (_cores(values, machine) if machine.kind == "cpu" else 1)


def _cores(values: Mapping[str, Any], machine: Machine) -> float:
    threads: int = values["update"]["threads"]
    return min(threads, len(os.sched_getaffinity(0)) / machine.gpus)


def _share(machine: Machine, share: float) -> float:
    # What was measured on a core is not a peak: nothing is taken off.
    return share if machine.kind == "gpu" else 1.0


def _drawing(
    values: Mapping[str, Any],
    shape: Shape,
    machine: Machine,
    tokens: int,
    patches: int,
    written: int,
    turns: int,
    share: int,
) -> float:
    """Seconds in which one process draws its share of the conversations."""
    b, rows = _bytes(values), _rows(values, machine)
    engine = engine_of(values)
    body = shape.parameters["language"] - (0 if shape.tied else shape.head // 2)
    split = sharing(values) if engine == "vllm" else 1
    traffic = body * b / split + rows * tokens * memory.kv_token(shape, b)
    one = traffic / (machine.device.bytes_per_second * _share(machine, rates.BANDWIDTH_SHARE))
    one = max(one, rows * 2 * body / _speed(values, machine))
    if engine == "transformers":
        one = max(one, shape.layers * rates.LAYER_SECONDS)
    # A server keeps what it has read; without one every turn reads its conversation again, and a
    # group's prompt is read once by both.
    again = 1 if engine != "transformers" else turns
    reading = sum(_forward_flops(shape, tokens - written, patches, 0).values())
    read = share * reading * again / values["group_size"] if turns == 1 else share * reading * again / 2
    prefill = read / (_speed(values, machine) * _share(machine, rates.PREFILL_SHARE))
    return prefill + share / rows * written * one


def over(values: Mapping[str, Any], shape: Shape, machine: Machine) -> float:
    """GB by which the phases overrun the room, and vLLM its share, added up: a remedy for any counts."""
    phases = phases_of(values, shape, machine)
    overrun = sum(max(0.0, sum(parts.values()) - machine.room_gb) for parts in phases.values())
    return overrun + _vllm_lacks(values, shape, machine)


def fits(recipe: Strict, shape: Shape, machine: Machine) -> bool:
    """Whether nothing overruns."""
    return over(recipe.model_dump(mode="json"), shape, machine) == 0
