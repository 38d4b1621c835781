"""Tokens and seconds per step of a recipe on a machine, for an assumed conversation that the plan states."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vtune.models.families.shape import Shape
from vtune.runs.plan.estimate import (
    PROMPT_SHARE,
    bytes_of,
    cache_of,
    draws,
    engine_of,
    kv_token,
    load_of,
    longest_of,
    rows_of,
    sharing,
)
from vtune.runs.plan.machine import Machine
from vtune.update import memory, rates
from vtune.update.flops import Work, forward_flops, passes_of

PROMPT_WORDS = 300
"""Assumed tokens of text in a prompt. Ours, like all assumptions below."""
PICTURE_PIXELS = 1_000_000
"""Assumed pixels per picture, if `images.max_pixels` allows them."""
TURN_WORDS = 200
"""Assumed tokens that the policy writes per turn."""
TURNS = 2
"""Assumed turns: one look at a quarter of the picture, and the answer."""
LEFT_OUT = "checkpoints, evaluations, traffic between GPUs and machines, the optimizer in the host's memory"
"""What makes a step slower but is not included in its seconds."""
TIMES = ("seconds", "tokens per second", "hours")
"""Prefixes of a step's keys that say how long it takes."""
DRAWING_LEFT_OUT = "tools, judges, waiting for the slowest conversation, weight transfer to vLLM"
"""The same for rollouts."""


def step_of(
    values: Mapping[str, Any], shape: Shape, machine: Machine, *, steps: int | None = None
) -> dict[str, Any]:
    """Tokens and seconds of a step, and of all `steps` if their number is known, and the assumptions."""
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
        # Pictures returned by calls are among the measured pictures of a trace.
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
        before = max(0, tokens - written - crop)
        row = _Conversation(tokens, before, patches, picture * shape.merge**2, written, turns)
        seconds["rollout"] = _drawing(values, shape, machine, share, row)
    elsewhere = draws(values) and engine_of(values) == "servers"
    # If generated ahead on other GPUs, a step is ready when the previous one has been trained.
    total = (max if elsewhere and values["rollout"].get("staleness") else sum)(seconds.values())
    if elsewhere:
        assumed["servers"] = f"as fast as {machine.gpus} such GPUs, each with its own vLLM"
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
    slower = f"{DRAWING_LEFT_OUT}, {LEFT_OUT}" if draws(values) else LEFT_OUT
    assumed |= {"left out, and slower": slower, "left out, and faster": "shared prefixes in training"}
    return {"step": step, "assumed": assumed}


def untimed(step: Mapping[str, Any]) -> dict[str, Any]:
    """A step without its times: one that cannot start takes no time."""
    return {key: value for key, value in step.items() if not key.startswith(TIMES)}


def _forward_flops(shape: Shape, tokens: int, patches: int, scored: int) -> dict[str, float]:
    """Operations for one conversation without gradient, by part."""
    pairs = tokens**2 / 2  # causal: half of the square
    return forward_flops(shape, Work(tokens, pairs, patches, scored))


def _update_flops(
    values: Mapping[str, Any], shape: Shape, machine: Machine, forward: Mapping[str, float]
) -> float:
    """Operations for a conversation in training: frozen parts have no backward pass or recomputation."""
    load = load_of(values, shape, machine)
    passes = passes_of(memory.learning(shape, load), adapters=load.lora_rank > 0)
    reference = draws(values) and values["loss"]["kl_weight"] > 0
    return sum(
        flops * (passes[part] + (load.checkpointing and passes[part] > 1) + reference)
        for part, flops in forward.items()
    )


def _speed(values: Mapping[str, Any], machine: Machine) -> float:
    """Peak operations per second of one process."""
    return machine.device.flops * (_cores(values, machine) if machine.kind == "cpu" else 1)


def _cores(values: Mapping[str, Any], machine: Machine) -> float:
    threads: int = values["update"]["threads"]
    return min(threads, len(os.sched_getaffinity(0)) * machine.hosts / machine.gpus)


def _share(machine: Machine, share: float) -> float:
    # A measured rate of a core is not a peak, so nothing is deducted.
    return share if machine.kind == "gpu" else 1.0


def _at_once(values: Mapping[str, Any], shape: Shape, machine: Machine, tokens: int) -> float:
    """Conversations that one process generates at the same time: as many as its KV cache has room for."""
    rows = rows_of(values, machine)
    if engine_of(values) != "vllm" or machine.kind == "cpu":
        return rows
    # A group's common prefix is stored once; a vLLM generates for all processes that share it.
    own = tokens * (1 - PROMPT_SHARE + PROMPT_SHARE / values["group_size"])
    room = cache_of(values, shape, machine) / (own * kv_token(values, shape))
    return float(min(rows, max(room, 1) / sharing(values)))


@dataclass(frozen=True, slots=True)
class _Conversation:
    """The assumed conversation, in tokens and in patches of pictures."""

    tokens: int
    prompt: int
    """Tokens with which all conversations of a group begin."""
    patches: int
    shared_patches: int
    """Patches of the prompt's pictures."""
    written: int
    turns: int


def _drawing(
    values: Mapping[str, Any], shape: Shape, machine: Machine, share: int, one: _Conversation
) -> float:
    """Seconds in which one process generates its share of the conversations."""
    b, rows = bytes_of(values), _at_once(values, shape, machine, one.tokens)
    engine = engine_of(values)
    body = shape.parameters["language"] - (0 if shape.tied else shape.head // 2)
    split = sharing(values) if engine == "vllm" else 1
    each = kv_token(values, shape) if engine == "vllm" else memory.kv_token(shape, b)
    traffic = body * b / split + rows * split * one.tokens * each
    token = traffic / (machine.device.bytes_per_second * _share(machine, rates.BANDWIDTH_SHARE))
    token = max(token, rows * 2 * body / _speed(values, machine))
    if engine == "transformers":
        token = max(token, shape.layers * rates.LAYER_SECONDS)
    read = share * _prefill_flops(shape, one, values["group_size"], again=engine == "transformers")
    prefill = read / (_speed(values, machine) * _share(machine, rates.PREFILL_SHARE))
    return prefill + share / rows * one.written * token


def _prefill_flops(shape: Shape, one: _Conversation, group_size: int, *, again: bool) -> float:
    """Operations per conversation to prefill all of its turns.

    A group's prompt is prefilled once, as a common prefix of what is generated together: by transformers for
    each turn anew (`again`), together with what the conversation itself has come to; by a server only once,
    because it keeps what it has prefilled or generated.

    Args:
        shape: The model.
        one: The conversation; with two turns, what is not of the prompt is read before the last.
        group_size: Conversations per prompt.
        again: Whether each turn prefills its whole conversation.
    """
    prompt = sum(_forward_flops(shape, one.prompt, one.shared_patches, 0).values())
    crop = one.tokens - one.prompt - one.written
    own = crop + (one.written * (one.turns - 1) // one.turns if again else 0)
    whole = sum(_forward_flops(shape, one.prompt + own, one.patches, 0).values())
    return prompt * (one.turns if again else 1) / group_size + whole - prompt
