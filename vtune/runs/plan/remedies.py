"""What to change in a recipe that does not fit, and which machine or model it would fit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, TypeVar

from pydantic import ValidationError

from vtune.errors import RecipeError
from vtune.models.families import FAMILIES
from vtune.models.families.shape import Shape
from vtune.models.shape import known_shapes, shape_of
from vtune.runs.agent.kinds import check_tensor_parallel
from vtune.runs.plan.estimate import (
    draws,
    engine_of,
    fits,
    longest_of,
    on_host,
    over,
    peak_of,
    phases_of,
    sharing,
    sharing_rows,
    vllm_needs,
    vllm_notes,
)
from vtune.runs.plan.machine import GB, GPUS_PER_HOST, Machine, hosts_of
from vtune.runs.plan.seconds import step_of
from vtune.sections import Strict
from vtune.update.sequence import possible_sizes

R = TypeVar("R", bound=Strict)

OF_A_MACHINE = (2, 4, GPUS_PER_HOST)
"""Numbers of GPUs in one machine that advice lets share a vLLM, or a row. Ours."""
MOST_SHARES = tuple(round(0.9 - 0.05 * step, 2) for step in range(18))
"""Shares of a GPU's memory that advice may give a vLLM, largest first. Ours; vLLM's own default is 0.9."""
SHARE, TOGETHER = "rollout.gpu_memory", "rollout.tensor_parallel"
WORTH = 0.9
"""More GPUs per vLLM must cut a step's seconds to less than this share: the estimate ignores their
communication. Ours."""
LEAST_PIXELS = 500_000
LEAST_TOKENS = 2048
"""Limits below which advice does not reduce pictures and conversations. Ours."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change of a recipe."""

    sets: Mapping[str, Any]
    """Dotted key -> value; all are set together."""
    why: str
    changes_learning: bool = False


def remedies(values: Mapping[str, Any], shape: Shape, machine: Machine) -> Iterator[Remedy]:
    """Possible changes, the cheapest first."""
    update, longest = values["update"], longest_of(values)
    yield Remedy({"update.activation_checkpointing": True}, "activations are recomputed instead of kept")
    if update["micro_tokens"] > longest:
        yield Remedy({"update.micro_tokens": longest}, "one conversation of full length at a time")
    if machine.gpus > 1:
        for stage in range(update["zero_stage"] + 1, 4):
            what = {1: "optimizer", 2: "gradients", 3: "weights"}[stage]
            yield Remedy({"update.zero_stage": stage}, f"the {what} are split among the GPUs")
    shared: list[Remedy] = []
    if draws(values) and engine_of(values) == "vllm":
        yield from _vllm_shares(values, shape, machine)
        shared = list(_shared_vllms(values, shape, machine))
        yield from shared
    for size in OF_A_MACHINE:
        if size in possible_sizes(shape) and size > sharing_rows(values) and machine.of_a_host % size == 0:
            sets = {"update.sequence_parallel": size, "update.micro_tokens": -(-longest // size)}
            yield Remedy(sets, f"{size} GPUs share each row")
    drawing = list(_drawing_remedies(values, shape, machine)) if draws(values) else []
    # Where GPUs can share a vLLM, this is slower than everything before it.
    yield from [] if shared else drawing
    offloaded = _with(update["offload"], "optimizer")
    yield Remedy({"update.offload": offloaded}, "the optimizer is in host memory, and slower")
    yield from drawing if shared else []
    if update["lora"] is None:
        lora = {"rank": 32, "alpha": 64.0, "targets": [*FAMILIES[shape.family].lora_targets]}
        yield Remedy({"update.lora": lora}, "small adapters are trained instead of the weights", True)
    yield Remedy(
        {"update.freeze": _with(update["freeze"], "vision")}, "the vision tower is not trained", True
    )
    least = max(values["images"]["min_pixels"], LEAST_PIXELS)
    for pixels in _halves(values["images"]["max_pixels"], least):
        yield Remedy({"images.max_pixels": pixels}, "smaller pictures", True)
    key = "rollout.max_tokens" if draws(values) else "max_tokens"
    for tokens in _halves(longest, LEAST_TOKENS):
        sets = {key: tokens, "update.micro_tokens": tokens}
        yield Remedy(sets, "shorter conversations", True)


def _with(listed: Sequence[str], name: str) -> list[str]:
    """A recipe's list with one more name: `--set` replaces the whole list, so existing names are repeated."""
    return list(dict.fromkeys([*listed, name]))


def _vllm_shares(values: Mapping[str, Any], shape: Shape, machine: Machine) -> Iterator[Remedy]:
    share, least = values["rollout"]["gpu_memory"], _least_share(values, shape, machine)
    if share < least < 1:
        yield Remedy({SHARE: least}, "vLLM gets what it needs to start")
    while share > least:
        share = max(least, round(share - 0.1, 2))
        yield Remedy({SHARE: share}, "vLLM takes less")


def _shared_vllms(values: Mapping[str, Any], shape: Shape, machine: Machine) -> Iterator[Remedy]:
    rollout = values["rollout"]
    if machine.kind == "cpu" or rollout.get("adapters", "merged") == "alone":
        return
    for size in OF_A_MACHINE:
        if size <= sharing(values) or machine.of_a_host % size or not _splits(shape, size):
            continue
        shared = {**values, "rollout": {**rollout, "tensor_parallel": size}}
        share = max(rollout["gpu_memory"], _least_share(shared, shape, machine))
        sets = {TOGETHER: size, SHARE: share}
        yield Remedy(sets, f"{size} GPUs share a vLLM")


def _splits(shape: Shape, gpus: int) -> bool:
    try:
        check_tensor_parallel(gpus, shape, kind="vllm")
    except RecipeError:
        return False
    return True


def _least_share(values: Mapping[str, Any], shape: Shape, machine: Machine) -> float:
    """The share of a GPU's memory that a vLLM needs to start."""
    return ceil(100 * sum(vllm_needs(values, shape).values()) / (machine.memory_gb * GB)) / 100


def _drawing_remedies(values: Mapping[str, Any], shape: Shape, machine: Machine) -> Iterator[Remedy]:
    rollout = values["rollout"]
    if engine_of(values) == "vllm":
        # The trained model generates by itself, without a second copy of the weights.
        slowly: dict[str, Any] = {"rollout.engine": "transformers", "rollout.staleness": 0}
        if sharing(values) > 1:
            slowly[TOGETHER] = 1
        for rows in (8, 1):
            sets = {**slowly, "rollout.max_batch": rows}
            yield Remedy(sets, "the training process generates by itself, slowly")
    elif engine_of(values) == "transformers":
        if machine.kind == "gpu":
            share = max(rollout["gpu_memory"], _least_share(values, shape, machine))
            sets = {"rollout.engine": "vllm", SHARE: share}
            yield Remedy(sets, "its KV cache takes the room available, not what every conversation may need")
        for size in _halves(rollout["max_batch"], 1):
            yield Remedy({"rollout.max_batch": size}, "fewer conversations are generated at a time")


def _halves(value: int, least: int) -> list[int]:
    found = []
    while value // 2 >= least:
        value //= 2
        found.append(value)
    return found


def changed(recipe: R, remedy: Remedy) -> R | None:
    """The recipe with a remedy; None if the recipe has no such key, or does not allow the value."""
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


def advice(recipe: Strict, shape: Shape, machine: Machine) -> dict[str, Any]:
    """What makes it fit: changes of the recipe, or else more GPUs or a smaller model."""
    taken = needed(recipe, _taken(recipe, shape, machine), shape, machine)
    taken = _roomy(recipe, taken, shape, machine)
    steps, now = [], recipe
    for remedy in taken:
        after = changed(now, remedy)
        assert after is not None
        now = after
        values = now.model_dump(mode="json")
        steps.append(
            {
                "set": _words(remedy),
                "why": remedy.why,
                "peak_gb": round(peak_of(phases_of(values, shape, machine)), 1),
                "host_gb": on_host(values, shape, machine),
                "fits": fits(now, shape, machine),
                "changes_learning": remedy.changes_learning,
            }
        )
    then = _then(now.model_dump(mode="json"), shape, machine) if steps and steps[-1]["fits"] else []
    return {"remedies": steps, "then": then, "otherwise": _otherwise(recipe, shape, machine)}


def _then(values: Mapping[str, Any], shape: Shape, machine: Machine) -> list[str]:
    """Notes on the recipe with all remedies applied."""
    step = step_of(values, shape, machine)["step"]
    drawing = f", {step['seconds, rollout']:.0f} of them to generate" if draws(values) else ""
    notes = vllm_notes(values, shape, machine, phases_of(values, shape, machine))
    return [*notes, f"a step takes about {step['seconds']:.0f} s{drawing}"]


def _roomy(recipe: R, taken: list[Remedy], shape: Shape, machine: Machine) -> list[Remedy]:
    """The remedies, adjusted to leave room for the keys and values of many conversations, if possible.

    Which remedies are taken is decided with the smallest share with which a vLLM starts. Any memory left is
    given to its cache; and if GPUs share a vLLM, with more of them each has more left.
    """
    found = _with_share(recipe, taken, shape, machine)
    if over(_all(recipe, found).model_dump(mode="json"), shape, machine):
        return taken
    for more in _wider(recipe, taken, shape, machine):
        wider = _with_share(recipe, more, shape, machine)
        fits_too = not over(_all(recipe, wider).model_dump(mode="json"), shape, machine)
        if fits_too and _seconds(recipe, wider, shape, machine) < WORTH * _seconds(
            recipe, found, shape, machine
        ):
            found = wider
    return found


def _with_share(recipe: R, taken: list[Remedy], shape: Shape, machine: Machine) -> list[Remedy]:
    """The remedies with the largest share of each GPU for vLLM that still fits, if one of them sets it."""
    for share in MOST_SHARES:
        more = [_raised(one, share) if one.sets.get(SHARE, share) < share else one for one in taken]
        if not over(_all(recipe, more).model_dump(mode="json"), shape, machine):
            return more
    return taken


def _raised(remedy: Remedy, share: float) -> Remedy:
    why = "vLLM gets what is free, for its KV cache" if len(remedy.sets) == 1 else remedy.why
    return replace(remedy, sets={**remedy.sets, SHARE: share}, why=why)


def _wider(recipe: R, taken: list[Remedy], shape: Shape, machine: Machine) -> Iterator[list[Remedy]]:
    """The remedies with more GPUs per vLLM, if one of them lets GPUs share one."""
    size = max((one.sets.get(TOGETHER, 0) for one in taken), default=0)
    values = _all(recipe, [one for one in taken if TOGETHER not in one.sets]).model_dump(mode="json")
    for other in _shared_vllms(values, shape, machine) if size else ():
        if other.sets[TOGETHER] > size:
            yield [other if TOGETHER in one.sets else one for one in taken]


def _seconds(recipe: R, taken: list[Remedy], shape: Shape, machine: Machine) -> float:
    found: float = step_of(_all(recipe, taken).model_dump(mode="json"), shape, machine)["step"]["seconds"]
    return found


def _words(remedy: Remedy) -> list[str]:
    """The arguments of `--set` on the command line."""
    return [f"{key}={_yaml(value)}" for key, value in remedy.sets.items()]


def _yaml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _taken(recipe: R, shape: Shape, machine: Machine, *, harmless: bool = False) -> list[Remedy]:
    """Remedies in order, each taken if it helps, until the recipe fits.

    Args:
        recipe: The recipe that does not fit.
        shape: The model's shape.
        machine: The hardware that it should fit.
        harmless: Take only remedies that do not change what is learnt.
    """
    taken: list[Remedy] = []
    for remedy in remedies(recipe.model_dump(mode="json"), shape, machine):
        before = over(recipe.model_dump(mode="json"), shape, machine)
        if before == 0:
            break
        if harmless and remedy.changes_learning:
            continue
        after = changed(recipe, remedy)
        left = before if after is None else over(after.model_dump(mode="json"), shape, machine)
        if after is not None and (left == 0 or left < before - 0.01 * machine.room_gb):
            recipe = after
            # A smaller value of the same key replaces the earlier one.
            taken = [old for old in taken if not set(old.sets) <= set(remedy.sets)] + [remedy]
    return taken


def needed(recipe: R, taken: Sequence[Remedy], shape: Shape, machine: Machine) -> list[Remedy]:
    """The remedies without those that others have made superfluous."""

    def left(some: Sequence[Remedy]) -> float:
        return over(_all(recipe, some).model_dump(mode="json"), shape, machine)

    kept = list(taken)
    while True:
        fewer = [
            [one for one in kept if one is not remedy]
            for remedy in sorted(kept, key=lambda one: not one.changes_learning)
        ]
        spared = next((some for some in fewer if left(some) <= left(kept)), None)
        if spared is None:
            return kept
        # Without this remedy, others may have become superfluous too.
        kept = spared


def _all(recipe: R, taken: Sequence[Remedy]) -> R:
    for remedy in taken:
        recipe = changed(recipe, remedy) or recipe
    return recipe


def _otherwise(recipe: R, shape: Shape, machine: Machine) -> list[str]:
    """The fewest GPUs, and the largest smaller model, with which it fits after changing the recipe."""
    found = []
    counts = [] if machine.kind == "cpu" else [2**power for power in range(7) if 2**power > machine.gpus]
    more = [_grown(machine, count) for count in counts]
    known = {name: shape_of(config) for name, config in known_shapes().items()}
    names = sorted(known, key=lambda name: -known[name].total)
    smaller = [name for name in names if known[name].total < 0.9 * shape.total]
    # Options that leave the learning unchanged come first, even if they need more.
    for harmless in (True, False):
        for option in more:
            settings = _enough(recipe, shape, option, harmless=harmless)
            if settings is not None:
                found.append(f"{option.gpus} GPUs of {machine.memory_gb:g} GB{settings}")
                more = []
                break
        for name in smaller:
            settings = _enough(recipe, known[name], machine, harmless=harmless)
            if settings is not None:
                found.append(f"the smaller {name}{settings}")
                smaller = []
                break
    return found


def _grown(machine: Machine, gpus: int) -> Machine:
    """The hardware with more GPUs: on more machines like the existing ones, if there are several."""
    each = machine.of_a_host
    alike = machine.hosts > 1 and gpus % each == 0
    return replace(machine, gpus=gpus, hosts=gpus // each if alike else hosts_of(gpus))


def _enough(recipe: R, shape: Shape, machine: Machine, *, harmless: bool) -> str | None:
    """The settings with which it fits, as text; None if no settings are enough."""
    taken = _taken(recipe, shape, machine, harmless=harmless)
    if not fits(_all(recipe, taken), shape, machine):
        return None
    kept = _roomy(recipe, needed(recipe, taken, shape, machine), shape, machine)
    host = on_host(_all(recipe, kept).model_dump(mode="json"), shape, machine)
    whose = "the host's" if machine.hosts == 1 else "each host's"
    cost = f" ({host:g} GB of {whose} memory)" if host else ""
    return f", with {', '.join(word for one in kept for word in _words(one))}{cost}" if kept else cost
