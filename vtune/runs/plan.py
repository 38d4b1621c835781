"""`--dry-run`: whether a recipe fits a machine, where the memory goes, how long a step takes, what to change.

Memory is that of the largest micro-batch which the recipe's limits allow; tokens and seconds are those of
an assumed conversation, which the plan states. Nothing is started and nothing allocated.
"""

import io
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any, Literal, TypeVar

from PIL import Image
from pydantic import ValidationError

from vtune.config import Strict
from vtune.models.policy import load_chat
from vtune.models.shape import KNOWN, Shape, find_shape, local_file, shape_of
from vtune.reward.greeting import greet
from vtune.reward.recipe import RewardRecipe
from vtune.runs.rl import RLRecipe, check_prompts, check_sizes
from vtune.runs.sft import SFTRecipe, check_traces
from vtune.schema.message import Picture
from vtune.schema.parquet import load_picture, read_samples, read_trajectories
from vtune.update import memory, rates
from vtune.update.forward import CHUNK
from vtune.update.lora import check_targets
from vtune.update.rates import Device

R = TypeVar("R", bound=Strict)

GB = 1e9
LEAST_PIXELS = 500_000
LEAST_TOKENS = 2048
"""Where advice stops to make pictures smaller and conversations shorter. Ours."""
LOOKED_AT = 64
"""Rows of the data whose pictures are measured."""
MARGIN = 0.08
"""Of a GPU's memory: what the allocator loses between blocks. Ours."""
OUTSIDE_GB = {"gpu": 1.5, "cpu": 0.7}
"""Of one process beside its tensors: driver context, kernels, NCCL; on a CPU the Python packages. Ours."""
VLLM_BATCH = 8192
"""Tokens that vLLM reads at once by default (`max_num_batched_tokens`)."""
VLLM_GRAPHS_GB = 1.0
"""CUDA graphs and context of vLLM's engine. Ours."""
PICTURES_A_CALL = 5
"""That one tool call may return."""
TRACE_PICTURES = 6
"""In one trace, at most, where only `max_tokens` limits them. Ours."""

PROMPT_WORDS = 300
"""Assumed tokens of text in a prompt. Ours, as all that is assumed below."""
PICTURE_PIXELS = 1_000_000
"""Assumed pixels of a picture, where `images.max_pixels` allows them."""
TURN_WORDS = 200
"""Assumed tokens that the policy writes in a turn."""
TURNS = 2
"""Assumed turns: one look at a quarter of the picture, and the answer."""


def plan_rl(
    recipe: RLRecipe, *, gpus: int | None, gpu_memory: float | None, shape: str | None
) -> dict[str, Any]:
    """What `vtune rl --dry-run` tells: the sizes of the run, what is missing for it, and the estimate.

    A model folder, a data file or a reward service that is not there is listed under `missing`; what is
    there and wrong is an error, as at the start of a run.

    Args:
        recipe: What is to be run.
        gpus: To plan for; those of this machine if None.
        gpu_memory: GB of one of them; that of this machine if None.
        shape: Name of a known model, for a recipe whose model tells none.

    Raises:
        VtuneError: With the problems found.
    """
    machine = machine_of(gpus, gpu_memory)
    check_sizes(recipe, machine.gpus)
    facts = _inputs(recipe, lambda: check_prompts(recipe))
    pixels = None if facts["missing"] else _mean_pixels(recipe.data, _asked)
    facts["missing"] += _services(recipe.reward)
    return facts | {"plan": plan(recipe, machine, shape=shape, picture_pixels=pixels)}


def plan_sft(
    recipe: SFTRecipe, *, gpus: int | None, gpu_memory: float | None, shape: str | None
) -> dict[str, Any]:
    """What `vtune sft --dry-run` tells; see `plan_rl`."""
    facts = _inputs(recipe, lambda: check_traces(recipe))
    pixels = None if facts["missing"] else _mean_pixels(recipe.data, _traced)
    return facts | {"plan": plan(recipe, machine_of(gpus, gpu_memory), shape=shape, picture_pixels=pixels)}


def _inputs(recipe: RLRecipe | SFTRecipe, check: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the data say about the run, and what is not there."""
    missing = [f"data file {name}" for name in recipe.data if not Path(name).is_file()]
    facts = {} if missing else check()
    # Nothing is fetched for a plan.
    if Path(recipe.model).is_dir() or local_file(recipe.model, "config.json"):
        load_chat(recipe.model)
        check_targets(recipe.model, recipe.update)
    else:
        missing.insert(0, f"model {recipe.model}")
    return facts | {"missing": missing}


def _services(reward: RewardRecipe) -> list[str]:
    """The reward services that cannot be used from here."""
    name = reward.service.token_env if reward.service is not None else None
    if name is not None and name not in os.environ:
        return [f"token of the reward service: no environment variable {name}"]
    return [f"reward service {line}" for line in greet(reward)]


def _mean_pixels(names: Sequence[str], pictures: Callable[[Path], Iterator[bytes]]) -> float | None:
    """Of the pictures in the first rows of the first file; None without pictures."""
    sizes = [Image.open(io.BytesIO(data)).size for data in pictures(Path(names[0]))]
    return sum(width * height for width, height in sizes) / len(sizes) if sizes else None


def _asked(path: Path) -> Iterator[bytes]:
    for sample in islice(read_samples(path), LOOKED_AT):
        yield from _loaded(sample.images, path)


def _traced(path: Path) -> Iterator[bytes]:
    for trace in islice(read_trajectories(path), LOOKED_AT):
        yield from _loaded(trace.images[:1], path)


def _loaded(pictures: Sequence[Picture], path: Path) -> Iterator[bytes]:
    yield from (load_picture(picture, path.parent) for picture in pictures)


@dataclass(frozen=True, slots=True)
class Machine:
    """What a plan is for."""

    gpus: int
    """Or processes, on a CPU."""
    memory_gb: float
    """Of one."""
    kind: Literal["gpu", "cpu"]
    device: Device
    said: str
    """Where this was found."""

    @property
    def room_gb(self) -> float:
        """What tensors may fill."""
        return self.memory_gb * (1 - MARGIN) - OUTSIDE_GB[self.kind]


def machine_of(gpus: int | None, memory_gb: float | None) -> Machine:
    """The machine that was asked for; what was not asked is that of this one."""
    names = _driver("name")
    count = gpus or max(1, len(names))
    if memory_gb is not None:
        device = rates.device_like(memory_gb)
        return Machine(count, memory_gb, "gpu", device, f"as asked; speeds of {device.name}")
    if names:
        here = float(_driver("memory.total")[0].split()[0]) * 2**20 / GB
        known = rates.device_named(names[0]) or rates.device_like(here)
        return Machine(count, here, "gpu", known, f"{names[0]}; speeds of {known.name}")
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GB
    cores = len(os.sched_getaffinity(0))
    return Machine(count, whole / count, "cpu", rates.CORE, f"this machine without a GPU, {cores} cores")


def _driver(field: str) -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return (
        [line.strip() for line in ended.stdout.splitlines() if line.strip()] if not ended.returncode else []
    )


def plan(
    recipe: R, machine: Machine, *, shape: str | None = None, picture_pixels: float | None = None
) -> dict[str, Any]:
    """Estimate a run of a recipe on a machine.

    Args:
        recipe: Of `vtune rl` or `vtune sft`.
        machine: What it is to run on.
        shape: Name of a known model whose shape to take, instead of that of the recipe's model.
        picture_pixels: Of a mean picture of the data; assumed if None.

    Returns:
        `fits` (None where the model's shape is not known), `machine`, `shape`, `memory_gb` (phase -> part ->
        GB on each GPU), `peak_gb` and `room_gb`, `host_gb`, `step` (tokens and seconds), `assumed`,
        `remedies` in the order in which to take them (each `set`, `why`, `peak_gb`, `host_gb`, `fits`, and
        `changes_learning`: whether the run learns something else by it), `otherwise`, and `notes`.
    """
    values = recipe.model_dump(mode="json")
    where: dict[str, Any] = {
        "gpus": machine.gpus,
        "memory_gb": round(machine.memory_gb, 1),
        "kind": machine.kind,
    }
    where["said"] = machine.said
    found = find_shape(values["model"], shape)
    if found is None:
        note = f"the shape of {values['model']!r} is not known; name one with --shape: {', '.join(KNOWN)}"
        return {"fits": None, "machine": where, "shape": None, "notes": [note]}
    size, said = found
    phases = phases_of(values, size, machine)
    peak = _peak(phases)
    result = {
        "fits": _fits(recipe, size, machine),
        "machine": where,
        "shape": f"{said}: {size.total / GB:.2f} B parameters",
        "memory_gb": {
            phase: {part: round(gb, 2) for part, gb in parts.items() if gb >= 0.005}
            for phase, parts in phases.items()
        },
        "peak_gb": round(peak, 1),
        "room_gb": round(machine.room_gb, 1),
        "host_gb": _on_host(values, size, machine),
        **step_of(values, size, machine, picture_pixels),
        "notes": _vllm_notes(values, size, machine, phases),
    }
    if not result["fits"]:
        result |= _advice(recipe, size, machine)
    return result


def phases_of(values: Mapping[str, Any], shape: Shape, machine: Machine) -> dict[str, dict[str, float]]:
    """GB on one GPU by phase and part."""
    load = load_of(values, shape, machine)
    stays = memory.resident(shape, load)
    phases = {
        "update": stays | memory.gradients(shape, load) | memory.backward(shape, load),
        "optimizer step": stays | memory.gradients(shape, load) | memory.stepping(shape, load),
    }
    if _rl(values):
        drawing = _rollout(values, shape, load, machine.memory_gb)
        phases["rollout"] = stays | drawing
        if values["rollout"].get("staleness"):
            # The next step is drawn meanwhile: vLLM does not sleep.
            phases = {phase: parts | drawing for phase, parts in phases.items()}
    return {phase: {part: size / GB for part, size in parts.items()} for phase, parts in phases.items()}


def load_of(values: Mapping[str, Any], shape: Shape, machine: Machine) -> memory.Load:
    """The largest micro-batch that the recipe allows, and how it is trained."""
    update = values["update"]
    longest = _longest(values)
    pictures = 1 + PICTURES_A_CALL * (values["rollout"]["max_turns"] - 1) if _rl(values) else TRACE_PICTURES
    visual = min(longest, pictures * values["images"]["max_pixels"] // shape.token_pixels)
    # A conversation longer than the budget of a micro-batch has one of its own.
    tokens = max(update["micro_tokens"], longest)
    lora = update["lora"] or {}
    return memory.Load(
        gpus=machine.gpus,
        dtype_bytes=_bytes(values),
        zero_stage=update["zero_stage"],
        tokens=tokens,
        patches=tokens * visual // longest * shape.merge**2,
        scored=max(1, CHUNK // shape.vocab),
        checkpointing=bool(update["activation_checkpointing"]),
        frozen=tuple(update["freeze"]),
        # With adapters the reference is the model without them.
        reference=_rl(values) and values["loss"]["kl_weight"] > 0 and not lora,
        lora_rank=lora.get("rank", 0),
        lora_targets=tuple(lora.get("targets") or ()),
        offload=frozenset(update["offload"] or ()),
    )


def _rl(values: Mapping[str, Any]) -> bool:
    return "rollout" in values


def _longest(values: Mapping[str, Any]) -> int:
    found: int = values["rollout"]["max_tokens"] if _rl(values) else values["max_tokens"]
    return found


def _bytes(values: Mapping[str, Any]) -> int:
    return 2 if values["update"]["dtype"] == "bfloat16" else 4


def _engine(values: Mapping[str, Any]) -> str:
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
    engine = _engine(values)
    if engine == "servers":
        return {}
    if engine == "vllm":
        needed = _vllm_needs(values, shape)
        spare = values["rollout"]["gpu_memory"] * memory_gb * GB - sum(needed.values())
        return needed | {"KV cache": needed["KV cache"] + max(0.0, spare)}
    b, longest = load.dtype_bytes, _longest(values)
    one = longest * memory.kv_token(shape, b)
    share = -(-values["prompts_per_step"] * values["group_size"] // load.gpus)
    rows = min(values["rollout"]["max_batch"], share)
    # The trained model draws: split weights are gathered for it, and adapters merged.
    whole = {"gathered weights": float(shape.total * b)} if load.zero_stage == 3 or load.lora_rank else {}
    return whole | {
        "KV cache": float(rows * one),
        # Later turns have nothing in common: all rows are read again, at once.
        "reading the turns": float(rows * longest * memory.prefill_token(shape, b)),
    }


def _vllm_needs(values: Mapping[str, Any], shape: Shape) -> dict[str, float]:
    """Bytes of a vLLM that can hold one conversation; with less it refuses to start."""
    b = _bytes(values)
    return {
        "vLLM weights": float(shape.total * b),
        "vLLM at work": VLLM_BATCH * memory.prefill_token(shape, b) + VLLM_GRAPHS_GB * GB,
        "KV cache": float(_longest(values) * memory.kv_token(shape, b)),
    }


def _vllm_lacks(values: Mapping[str, Any], shape: Shape, machine: Machine) -> float:
    """GB by which `rollout.gpu_memory` is less than a vLLM beside the trainer needs."""
    # On a CPU it limits nothing.
    if not _rl(values) or _engine(values) != "vllm" or machine.kind == "cpu":
        return 0.0
    share: float = values["rollout"]["gpu_memory"]
    return max(0.0, sum(_vllm_needs(values, shape).values()) / GB - share * machine.memory_gb)


def _vllm_notes(
    values: Mapping[str, Any], shape: Shape, machine: Machine, phases: Mapping[str, Mapping[str, float]]
) -> list[str]:
    """What a vLLM beside the trainer can hold, or lacks; nothing where there is none."""
    if not _rl(values) or _engine(values) != "vllm":
        return []
    if _vllm_lacks(values, shape, machine):
        share: float = values["rollout"]["gpu_memory"]
        needed = sum(_vllm_needs(values, shape).values()) / GB
        given = f"rollout.gpu_memory {share:g} gives vLLM {share * machine.memory_gb:.1f} GB"
        return [f"{given}, and it needs {needed:.1f} GB to start"]
    one = _longest(values) * memory.kv_token(shape, _bytes(values)) / GB
    fit = int(phases["rollout"]["KV cache"] / one)
    rows = _rows(values, machine)
    more = "" if fit >= rows else "; of shorter ones, more"
    return [f"KV cache: {fit} conversations of {_longest(values)} tokens, and {rows} are drawn at once{more}"]


def _on_host(values: Mapping[str, Any], shape: Shape, machine: Machine) -> float:
    """GB in the memory of the host, of all processes together."""
    return round(memory.on_host(shape, load_of(values, shape, machine)) / GB, 1)


def _peak(phases: Mapping[str, Mapping[str, float]]) -> float:
    return max(sum(parts.values()) for parts in phases.values())


def step_of(
    values: Mapping[str, Any], shape: Shape, machine: Machine, picture_pixels: float | None
) -> dict[str, Any]:
    """Tokens and seconds of a step, and what is assumed for them."""
    longest = _longest(values)
    pixels = min(picture_pixels or PICTURE_PIXELS, values["images"]["max_pixels"])
    picture = int(max(pixels, values["images"]["min_pixels"]) // shape.token_pixels)
    assumed: dict[str, Any] = {"picture tokens": picture, "from data": picture_pixels is not None}
    if _rl(values):
        limits = values["rollout"]
        turns = min(TURNS, limits["max_turns"])
        written = turns * min(TURN_WORDS, limits["max_new_tokens"])
        crop = picture // 4 * (turns - 1)
        text = min(PROMPT_WORDS, max(0, longest - picture - crop - written))
        conversations = values["prompts_per_step"] * values["group_size"]
        assumed |= {"turns": turns, "written tokens": written}
    else:
        turns, crop, conversations = 1, picture // 4, values["batch_size"]
        text = written = min(PROMPT_WORDS, max(1, longest - picture - crop) // 2)
    tokens = min(longest, text + picture + crop + written)
    assumed["tokens a conversation"] = tokens
    patches = (picture + crop) * shape.merge**2
    flops = _forward_flops(shape, tokens, patches, written)
    update = values["update"]
    passes = 4 if update["activation_checkpointing"] else 3
    if _rl(values) and values["loss"]["kl_weight"] > 0:
        passes += 1
    share = -(-conversations // machine.gpus)
    speed = _speed(values, machine)
    seconds = {"update": share * flops * passes / (speed * _share(machine, rates.TRAIN_SHARE))}
    if _rl(values):
        seconds["rollout"] = _drawing(values, shape, machine, tokens, patches, written, turns, share)
    total = sum(seconds.values())
    step = {
        "conversations": conversations,
        "tokens": conversations * tokens,
        "tokens, at most": conversations * longest,
        "written": conversations * written,
        **{f"seconds, {phase}": round(value, 1) for phase, value in seconds.items()},
        "seconds": round(total, 1),
        "tokens a second": round(conversations * tokens / total),
    }
    if "steps" in values:
        step["hours, all steps"] = round(total * values["steps"] / 3600, 1)
    assumed["speeds"] = f"{machine.device.name}: {machine.device.source}"
    assumed["left out"] = "tools, judges, waiting for the slowest conversation, shared prefixes in training"
    return {"step": step, "assumed": assumed}


def _forward_flops(shape: Shape, tokens: int, patches: int, scored: int) -> float:
    """Of one conversation without gradient."""
    body = shape.parameters["language"] - shape.head
    attention = 2 * shape.layers * shape.query * tokens  # causal: half of the square
    language = tokens * (2 * body + attention) + scored * 2 * shape.vocab * shape.hidden
    tower = shape.parameters["vision"] + shape.parameters["connector"] / shape.merge**2
    return language + patches * 2 * tower


def _speed(values: Mapping[str, Any], machine: Machine) -> float:
    """Operations a second of one process at the peak of its device."""
    return machine.device.flops * (_cores(values, machine) if machine.kind == "cpu" else 1)


def _cores(values: Mapping[str, Any], machine: Machine) -> float:
    threads: int = values["update"]["threads"]
    return min(threads, len(os.sched_getaffinity(0)) / machine.gpus)


def _share(machine: Machine, share: float) -> float:
    # What was measured on a core is no peak: nothing is taken off.
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
    engine = _engine(values)
    body = shape.parameters["language"] - (0 if shape.tied else shape.head // 2)
    traffic = body * b + rows * tokens * memory.kv_token(shape, b)
    one = traffic / (machine.device.bytes_per_second * _share(machine, rates.BANDWIDTH_SHARE))
    one = max(one, rows * 2 * body / _speed(values, machine))
    if engine == "transformers":
        one = max(one, shape.layers * rates.LAYER_SECONDS)
    # A server keeps what it has read; without one every turn reads its conversation again, and a
    # group's prompt is read once by both.
    again = 1 if engine != "transformers" else turns
    reading = _forward_flops(shape, tokens - written, patches, 0)
    read = share * reading * again / values["group_size"] if turns == 1 else share * reading * again / 2
    prefill = read / (_speed(values, machine) * _share(machine, rates.PREFILL_SHARE))
    return prefill + share / rows * written * one


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change of a recipe."""

    sets: Mapping[str, Any]
    """Dotted key -> value; all of them at once."""
    why: str
    changes_learning: bool = False


def remedies(values: Mapping[str, Any], shape: Shape, machine: Machine) -> Iterator[Remedy]:
    """What may be changed, in the order in which it costs least."""
    update, longest = values["update"], _longest(values)
    yield Remedy({"update.activation_checkpointing": True}, "layers run again instead of being kept")
    if update["micro_tokens"] > longest:
        yield Remedy({"update.micro_tokens": longest}, "one conversation of full length at a time")
    if machine.gpus > 1:
        for stage in range(update["zero_stage"] + 1, 4):
            what = {1: "optimizer", 2: "gradients", 3: "weights"}[stage]
            yield Remedy({"update.zero_stage": stage}, f"the {what} are split among the GPUs")
    if _rl(values):
        yield from _drawing_remedies(values, shape, machine)
    yield Remedy({"update.offload": ["optimizer"]}, "the optimizer lies in the host's memory, and is slower")
    lora = {"rank": 32, "alpha": 64.0, "targets": ["q_proj", "k_proj", "v_proj", "o_proj"]}
    yield Remedy({"update.lora": lora}, "small adapters are trained instead of the weights", True)
    yield Remedy({"update.freeze": ["vision"]}, "the vision tower is not trained", True)
    least = max(values["images"]["min_pixels"], LEAST_PIXELS)
    for pixels in _halves(values["images"]["max_pixels"], least):
        yield Remedy({"images.max_pixels": pixels}, "smaller pictures", True)
    key = "rollout.max_tokens" if _rl(values) else "max_tokens"
    for tokens in _halves(longest, LEAST_TOKENS):
        sets = {key: tokens, "update.micro_tokens": tokens}
        yield Remedy(sets, "shorter conversations", True)


def _drawing_remedies(values: Mapping[str, Any], shape: Shape, machine: Machine) -> Iterator[Remedy]:
    rollout = values["rollout"]
    share = rollout["gpu_memory"]
    least = ceil(100 * sum(_vllm_needs(values, shape).values()) / (machine.memory_gb * GB)) / 100
    if _engine(values) == "vllm":
        if share < least < 1:
            yield Remedy({"rollout.gpu_memory": least}, "vLLM gets what it needs to start")
        while share > least:
            share = max(least, round(share - 0.1, 2))
            yield Remedy({"rollout.gpu_memory": share}, "vLLM takes less")
        # The trained model draws by itself: no second copy of the weights.
        for rows in (8, 1):
            sets = {"rollout.engine": "transformers", "rollout.staleness": 0, "rollout.max_batch": rows}
            yield Remedy(sets, "the trained weights draw themselves, slowly")
    elif _engine(values) == "transformers":
        if machine.kind == "gpu":
            sets = {"rollout.engine": "vllm", "rollout.gpu_memory": max(share, least)}
            yield Remedy(sets, "its cache takes what is free, not what could be needed")
        for size in _halves(rollout["max_batch"], 1):
            yield Remedy({"rollout.max_batch": size}, "fewer conversations are drawn at a time")


def _halves(value: int, least: int) -> list[int]:
    found = []
    while value // 2 >= least:
        value //= 2
        found.append(value)
    return found


def changed(recipe: R, remedy: Remedy) -> R | None:
    """The recipe with a remedy; None where recipes have no such key, or not that value."""
    values = recipe.model_dump(mode="json")
    for path, value in remedy.sets.items():
        *parents, last = path.split(".")
        node = values
        for parent in parents:
            node = node[parent]
        node[last] = value
    try:
        return type(recipe).model_validate(values)
    except ValidationError:
        return None


def _advice(recipe: R, shape: Shape, machine: Machine) -> dict[str, Any]:
    """What makes it fit: changes of the recipe, and otherwise more GPUs or a smaller model."""
    taken = _needed(recipe, _taken(recipe, shape, machine), shape, machine)
    told, now = [], recipe
    for remedy in taken:
        after = changed(now, remedy)
        assert after is not None
        now = after
        values = now.model_dump(mode="json")
        told.append(
            {
                "set": _words(remedy),
                "why": remedy.why,
                "peak_gb": round(_peak(phases_of(values, shape, machine)), 1),
                "host_gb": _on_host(values, shape, machine),
                "fits": _fits(now, shape, machine),
                "changes_learning": remedy.changes_learning,
            }
        )
    return {"remedies": told, "otherwise": _otherwise(recipe, shape, machine)}


def _words(remedy: Remedy) -> list[str]:
    """What follows `--set` on the command line."""
    return [f"{key}={_yaml(value)}" for key, value in remedy.sets.items()]


def _yaml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _over(values: Mapping[str, Any], shape: Shape, machine: Machine) -> float:
    """GB by which the phases overrun the room, and vLLM its share, added up: a remedy for any counts."""
    phases = phases_of(values, shape, machine)
    overrun = sum(max(0.0, sum(parts.values()) - machine.room_gb) for parts in phases.values())
    return overrun + _vllm_lacks(values, shape, machine)


def _taken(recipe: R, shape: Shape, machine: Machine, *, harmless: bool = False) -> list[Remedy]:
    """Remedies in order, each taken if it helps, until the recipe fits.

    Args:
        recipe: What does not fit.
        shape: The model's.
        machine: What it is to fit.
        harmless: Only those that leave what is learnt as it is.
    """
    taken: list[Remedy] = []
    for remedy in remedies(recipe.model_dump(mode="json"), shape, machine):
        before = _over(recipe.model_dump(mode="json"), shape, machine)
        if before == 0:
            break
        if harmless and remedy.changes_learning:
            continue
        after = changed(recipe, remedy)
        left = before if after is None else _over(after.model_dump(mode="json"), shape, machine)
        if after is not None and (left == 0 or left < before - 0.01 * machine.room_gb):
            recipe = after
            # A smaller size of the same key replaces the one before.
            taken = [old for old in taken if not set(old.sets) <= set(remedy.sets)] + [remedy]
    return taken


def _needed(recipe: R, taken: Sequence[Remedy], shape: Shape, machine: Machine) -> list[Remedy]:
    """The remedies without those that others have made superfluous."""

    def over(some: Sequence[Remedy]) -> float:
        return _over(_all(recipe, some).model_dump(mode="json"), shape, machine)

    kept = list(taken)
    for remedy in sorted(taken, key=lambda one: not one.changes_learning):
        fewer = [one for one in kept if one is not remedy]
        if over(fewer) <= over(kept):
            kept = fewer
    return kept


def _fits(recipe: Strict, shape: Shape, machine: Machine) -> bool:
    return _over(recipe.model_dump(mode="json"), shape, machine) == 0


def _all(recipe: R, taken: Sequence[Remedy]) -> R:
    for remedy in taken:
        recipe = changed(recipe, remedy) or recipe
    return recipe


def _otherwise(recipe: R, shape: Shape, machine: Machine) -> list[str]:
    """The fewest GPUs, and the largest smaller model, with which it fits after changes of the recipe."""
    told = []
    counts = [] if machine.kind == "cpu" else [2**power for power in range(7) if 2**power > machine.gpus]
    more = [replace(machine, gpus=count) for count in counts]
    names = sorted(KNOWN, key=lambda name: -shape_of(KNOWN[name]).total)
    smaller = [name for name in names if shape_of(KNOWN[name]).total < 0.9 * shape.total]
    # What leaves the learning as it is comes first, also where it takes more.
    for harmless in (True, False):
        for option in more:
            settings = _enough(recipe, shape, option, harmless=harmless)
            if settings is not None:
                told.append(f"{option.gpus} GPUs of {machine.memory_gb:g} GB{settings}")
                more = []
                break
        for name in smaller:
            settings = _enough(recipe, shape_of(KNOWN[name]), machine, harmless=harmless)
            if settings is not None:
                told.append(f"the smaller {name}{settings}")
                smaller = []
                break
    return told


def _enough(recipe: R, shape: Shape, machine: Machine, *, harmless: bool) -> str | None:
    """The settings with which it fits, as words; None if they are not enough."""
    taken = _taken(recipe, shape, machine, harmless=harmless)
    if not _fits(_all(recipe, taken), shape, machine):
        return None
    kept = _needed(recipe, taken, shape, machine)
    host = _on_host(_all(recipe, kept).model_dump(mode="json"), shape, machine)
    cost = f" ({host:g} GB of the host's memory)" if host else ""
    return f", with {', '.join(word for one in kept for word in _words(one))}{cost}" if kept else cost
