"""`--dry-run`: whether a recipe fits a machine, its memory, its time per step, and what to change.

Nothing is started, and no memory is allocated.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from vtune.errors import VtuneError
from vtune.models.families.shape import Shape
from vtune.models.policy import load_chat
from vtune.models.shape import find_shape, known_shapes, local_config
from vtune.models.source import resolved
from vtune.reward.preflight import ping_services
from vtune.reward.recipe import RewardRecipe
from vtune.runs.agent.judge import check_judge, check_summariser
from vtune.runs.agent.kinds import check_tensor_parallel
from vtune.runs.agent.tools import ToolsRecipe, check_asking, check_indexes, check_writers, sections_of
from vtune.runs.plan.asking import why_silent
from vtune.runs.plan.estimate import (
    draws,
    engine_of,
    fits,
    on_disk,
    on_host,
    peak_of,
    phases_of,
    sessions_of,
    sharing,
    sharing_rows,
    vllm_notes,
)
from vtune.runs.plan.machine import GB, Machine, Pictures, machine_of
from vtune.runs.plan.needs import runs_code
from vtune.runs.plan.remedies import advice
from vtune.runs.plan.seconds import step_of, untimed
from vtune.runs.train.loopback_services import JUDGE, SERVERS, loopback_urls
from vtune.runs.train.online_suites import (
    Loaded,
    check_suites,
    cost_of,
    idle_judge_of,
    load_suites,
    missing_data,
    values_of,
)
from vtune.runs.train.prompt_lengths import check_first_prompts
from vtune.runs.train.rl import check_chat, check_prompts, doubts, suites_of
from vtune.runs.train.rl_recipe import RLRecipe, check_sizes
from vtune.runs.train.sft import check_lengths, check_traces
from vtune.runs.train.sft_recipe import SFTRecipe
from vtune.sandbox.capacity import SESSION_BYTES
from vtune.schema.message import Picture
from vtune.schema.parquet import load_picture, read_samples, read_trajectories
from vtune.schema.pixels import size_of
from vtune.update.lora import check_alone, check_shape, check_targets
from vtune.update.sequence import check_sequence_parallel

LOOKED_AT = 64
"""Rows of each data file whose pictures are counted and measured."""


def plan_rl(
    recipe: RLRecipe,
    *,
    gpus: int | None,
    gpu_memory: float | None,
    shape: str | None,
    gpu: str | None = None,
    hosts: int | None = None,
) -> dict[str, Any]:
    """What `vtune rl --dry-run` reports: the sizes of the run, what is missing for it, and the estimate.

    A model folder, data file, index, reward service, judge, search service or summariser that is not
    available is listed under `missing`; one that is available but wrong is an error, as at the start of a
    run. Each service is sent one request.

    Args:
        recipe: The recipe to plan for.
        gpus: GPUs to plan for, over all machines; None: those of this machine.
        gpu_memory: GB of one GPU; None: that of a GPU of the given name, or of this machine.
        shape: Name of a known model, if the recipe's model does not identify one.
        gpu: Name of the GPU model; None: the one with this memory.
        hosts: Number of machines; None: the fewest possible.

    Raises:
        VtuneError: With the problems found.
    """
    recipe = recipe.model_copy(update={"model": resolved(recipe.model)})
    machine = machine_of(gpus, gpu_memory, gpu=gpu, hosts=hosts)
    check_sizes(recipe, machine.gpus)
    check_writers(recipe.tools, world=gpus or 1)
    facts = _inputs(recipe, lambda: check_prompts(recipe))
    if not facts["missing"]:
        check_first_prompts(recipe)
    machine = replace(machine, pictures=_pictures(recipe.data, _asked))
    facts["missing"] += _indexes(recipe.tools)
    facts["missing"] += _services(recipe.reward)
    facts["warnings"] = doubts(recipe)
    needs = _asks_judge(recipe, facts)
    facts["missing"] += _unusable(
        "judge", lambda: check_judge(recipe.reward, answers=needs[0], looks=needs[1])
    )
    servers = recipe.rollout.servers
    silent = zip(servers, why_silent(servers), strict=True)
    facts["missing"] += [f"rollout server {url}: {why}" for url, why in silent if why]
    facts["missing"] += _unusable("tools", lambda: check_asking(recipe.tools))
    facts["missing"] += _unusable("summariser", lambda: check_summariser(recipe.tools))
    trained = recipe.steps * recipe.prompts_per_step * recipe.group_size
    suites = suites_of(recipe)
    idle = () if any(needs) else ("",)
    facts["warnings"] += _elsewhere(recipe, suites, machine, idle=idle)
    facts = _with_evaluations(facts, recipe, suites, trained=trained, world=gpus or 1)
    return facts | {"plan": plan(recipe, machine, shape=shape, runs_code=runs_code(recipe))}


def _asks_judge(recipe: RLRecipe, facts: Mapping[str, Any]) -> tuple[int, int]:
    """How many answers and looks the run itself asks its judge about; without the data, 1 if it may ask."""
    reward = recipe.reward
    answers = reward.service is None or reward.counterfactual is not None
    looks = answers or recipe.rollout.feedback
    return facts.get("judged_answers_here", int(answers)), facts.get("judged_looks_here", int(looks))


def plan_sft(
    recipe: SFTRecipe,
    *,
    gpus: int | None,
    gpu_memory: float | None,
    shape: str | None,
    gpu: str | None = None,
    hosts: int | None = None,
) -> dict[str, Any]:
    """What `vtune sft --dry-run` reports; see `plan_rl`."""
    recipe = recipe.model_copy(update={"model": resolved(recipe.model)})
    facts = _inputs(recipe, lambda: check_traces(recipe))
    if not facts["missing"]:
        check_lengths(recipe)
    machine = machine_of(gpus, gpu_memory, gpu=gpu, hosts=hosts)
    machine = replace(machine, pictures=_pictures(recipe.data, _traced))
    suites = load_suites(recipe.eval, kind="transformers")
    facts["warnings"] = _elsewhere(recipe, suites, machine)
    facts = _with_evaluations(facts, recipe, suites, trained=None, world=gpus or 1)
    return facts | {"plan": plan(recipe, machine, shape=shape, steps=facts.get("steps"))}


def _inputs(recipe: RLRecipe | SFTRecipe, check: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the data say about the run, and what is missing."""
    missing = [f"data file {name}" for name in recipe.data if not Path(name).exists()]
    facts = {} if missing else check()
    # Nothing is downloaded for a plan.
    if Path(recipe.model).is_dir() or local_config(recipe.model):
        if isinstance(recipe, RLRecipe):
            check_chat(recipe)
        else:
            load_chat(recipe.model)
        check_targets(recipe.model, recipe.update)
        if _hands_adapters_alone(recipe):
            check_alone(recipe.model, recipe.update)
    else:
        missing.insert(0, f"model {recipe.model}")
    return facts | {"missing": missing}


def _hands_adapters_alone(recipe: RLRecipe | SFTRecipe) -> bool:
    return isinstance(recipe, RLRecipe) and recipe.rollout.adapters == "alone"


def _with_evaluations(
    facts: dict[str, Any],
    recipe: RLRecipe | SFTRecipe,
    suites: Sequence[Loaded],
    *,
    trained: int | None,
    world: int,
) -> dict[str, Any]:
    """The facts, with the rollouts of the run's evaluations, or what is missing for them."""
    steps = facts.get("steps", recipe.steps)
    absent = missing_data(suites)
    if recipe.eval is None or absent or steps is None:
        return facts | {"missing": facts["missing"] + absent}
    tools = recipe.tools if isinstance(recipe, RLRecipe) else None
    model = recipe.model if local_config(recipe.model) else None
    rollouts = check_suites(suites, tools, model=model, world=world, ask=False)
    for one in suites:
        asks = partial(check_asking, one.suite.tools)
        facts["missing"] += _unusable(f"tools of eval suite {one.name}", asks)
    return facts | cost_of(recipe.eval, rollouts, steps=steps, trained=trained)


def _elsewhere(
    recipe: RLRecipe | SFTRecipe, suites: Sequence[Loaded], machine: Machine, *, idle: Collection[str] = ()
) -> list[str]:
    """Services that must run on each of several machines, since their addresses mean the machine itself.

    Args:
        recipe: The run's recipe.
        suites: Its evaluation suites.
        machine: The hardware that is planned for.
        idle: `""` if nothing uses the judge of the recipe's own reward.
    """
    if machine.hosts == 1:
        return []
    here = [one for one in suites if not missing_data([one])]
    silent = {*idle, *(one.name for one in here if idle_judge_of([one], one.name))}
    keys: dict[str, str] = {}
    for name, values in {"": recipe.model_dump(mode="json"), **values_of(suites)}.items():
        for key, url in loopback_urls(values):
            if key != JUDGE or name not in silent:
                keys.setdefault(url, f"{key} of eval suite {name}" if name else key)
    found = []
    for url, key in keys.items():
        each = f"{key} is {url}, which each of the {machine.hosts} machines looks for on itself:"
        if key == SERVERS:
            found.append(
                f"{each} name a host that all of them reach, since servers get weights from one process"
            )
        else:
            found.append(f"{each} start the service on all of them, or name a host that they reach")
    return found


def _indexes(tools: ToolsRecipe | None) -> list[str]:
    """The indexes of tools that are not on this machine.

    Raises:
        VtuneError: If all are present, and one is not what its tool needs.
    """
    named = {
        tool.section or name: getattr(section, "index", None) for name, tool, section in sections_of(tools)
    }
    absent = [
        f"index {index} (tools.{key})"
        for key, index in named.items()
        if isinstance(index, str) and not Path(index).exists()
    ]
    if not absent:
        check_indexes(tools)
    return absent


def _services(reward: RewardRecipe) -> list[str]:
    """The reward services that cannot be used from this machine."""
    name = reward.service.token_env if reward.service is not None else None
    if name is not None and name not in os.environ:
        return [f"token of the reward service: no environment variable {name}"]
    if name is not None and not os.environ[name]:
        return [f"token of the reward service: {name} is empty"]
    return [f"reward service {line}" for line in ping_services(reward)]


def _unusable(what: str, check: Callable[[], None]) -> list[str]:
    """Why a model that the recipe uses cannot be reached from here; [] if it can."""
    try:
        check()
    except VtuneError as error:
        return [f"{what} ({error.where}): {error.what}" if error.where else f"{what}: {error.what}"]
    return []


def _pictures(names: Sequence[str], pictures: Callable[[Path], Iterator[Sequence[Picture]]]) -> Pictures:
    """The pictures in the first rows of each available file; unmeasured if there are no files or pictures."""
    sizes: list[tuple[int, int]] = []
    counts: list[int] = []
    for path in (Path(name) for name in names if Path(name).exists()):
        for row in islice(pictures(path), LOOKED_AT):
            counts.append(len(row))
            sizes += [size_of(load_picture(picture, path.parent)) for picture in row]
    if not sizes:
        return Pictures()
    pixels = sum(width * height for width, height in sizes) / len(sizes)
    return Pictures(pixels=pixels, each=len(sizes) / len(counts), most=max(counts))


def _count(parameters: float) -> str:
    return f"{parameters / GB:.2f} B" if parameters >= 0.1 * GB else f"{parameters / 1e6:.2f} M"


def _asked(path: Path) -> Iterator[Sequence[Picture]]:
    return (sample.images for sample in read_samples(path))


def _traced(path: Path) -> Iterator[Sequence[Picture]]:
    return (trace.images for trace in read_trajectories(path))


def plan(
    recipe: RLRecipe | SFTRecipe,
    machine: Machine,
    *,
    shape: str | None = None,
    steps: int | None = None,
    runs_code: bool = True,
) -> dict[str, Any]:
    """Estimate a run of a recipe on a machine.

    Args:
        recipe: A recipe of `vtune rl` or `vtune sft`.
        machine: The hardware that it is to run on, and the pictures of its data.
        shape: Name of a known model whose shape to use instead of that of the recipe's model.
        steps: Number of steps, if the recipe derives it from the size of its data.
        runs_code: Whether rows of its data may run code.

    Returns:
        `fits` (None if the model's shape is not known), `machine`, `servers` (how many generate elsewhere, on
        other GPUs), `shape`, `memory_gb` (phase -> part -> GB on each GPU), `peak_gb` and `room_gb`,
        `host_gb` (of each host), `sandbox` (most `sessions` on each host, and about how many `gb` they take;
        None if no code runs), `disk_gb` (of checkpoints), `step` (tokens, and seconds if it fits), `assumed`
        and `notes`; if it does not fit, also `remedies` in the order in which to apply them (each `set`,
        `why`, `peak_gb`, `host_gb`, `fits`, and `changes_learning`: whether it changes what the run learns),
        `then` (notes on the recipe with all of them) and `otherwise`.

    Raises:
        RecipeError: If the model does not support what the recipe asks for: sharing by this many GPUs, or
            adapters on layers that it does not have.
    """
    values = recipe.model_dump(mode="json")
    steps = values["steps"] or steps
    found = find_shape(values["model"], shape)
    if found is None:
        names = ", ".join(known_shapes())
        note = f"the shape of {values['model']!r} is not known; name one with --shape: {names}"
        return {"fits": None, "machine": _machine(machine), "shape": None, "notes": [note]}
    size, said = found
    _check_shape(recipe, values, size, machine)
    phases = phases_of(values, size, machine)
    result = {
        "fits": fits(recipe, size, machine),
        "machine": _machine(machine),
        "servers": len(values["rollout"]["servers"]) if draws(values) else 0,
        "shape": f"{said}: {_count(size.total)} parameters",
        "memory_gb": {
            phase: {part: round(gb, 2) for part, gb in parts.items() if gb >= 0.005}
            for phase, parts in phases.items()
        },
        "peak_gb": round(peak_of(phases), 1),
        "room_gb": round(machine.room_gb, 1),
        "host_gb": on_host(values, size, machine),
        "sandbox": _sandbox(values, machine) if runs_code and draws(values) else None,
        "disk_gb": on_disk(values, size, machine, steps=steps),
        **step_of(values, size, machine, steps=steps),
        "notes": vllm_notes(values, size, machine, phases),
    }
    if not result["fits"]:
        result |= {"step": untimed(result["step"])} | advice(recipe, size, machine)
    return result


def _check_shape(
    recipe: RLRecipe | SFTRecipe, values: Mapping[str, Any], shape: Shape, machine: Machine
) -> None:
    """Check that a model of this shape can be trained, and can generate, as the recipe says."""
    check_shape(shape, recipe.update, alone=_hands_adapters_alone(recipe))
    if draws(values):
        check_tensor_parallel(sharing(values), shape, kind=engine_of(values))
    check_sequence_parallel(sharing_rows(values), machine.gpus, shape)


def _machine(machine: Machine) -> dict[str, Any]:
    return {
        "gpus": machine.gpus,
        "memory_gb": round(machine.memory_gb, 1),
        "kind": machine.kind,
        "hosts": machine.hosts,
        "said": machine.said,
    }


def _sandbox(values: Mapping[str, Any], machine: Machine) -> dict[str, float]:
    sessions = sessions_of(values, machine)
    return {"sessions": sessions, "gb": round(sessions * SESSION_BYTES / GB, 1)}
