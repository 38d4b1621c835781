"""What `vtune rl` is asked to do, and all that can be known about it before it begins."""

from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from vtune.advantage.recipe import Advantage, Credit
from vtune.config import Strict, Uses
from vtune.errors import RecipeError, ServiceError
from vtune.models.pictures import PixelBudget
from vtune.models.policy import load_chat
from vtune.models.shape import find_shape
from vtune.report.progress import say
from vtune.reward.checking import check_evidence, check_keys, check_samples
from vtune.reward.preflight import ping_services
from vtune.reward.recipe import RewardRecipe
from vtune.rollout.recipe import TrainingRollout
from vtune.runs.agent.judge import check_judge, check_summariser
from vtune.runs.agent.kinds import check_devices, check_tensor_parallel, check_vllm
from vtune.runs.agent.sandbox import SandboxRecipe
from vtune.runs.agent.tools import ToolsRecipe, check_indexes, check_tools
from vtune.runs.data.validating import check_data
from vtune.runs.train.online_recipe import Loaded, OnlineEval, check_best, check_suites, load_suites
from vtune.schema.parquet import read_samples
from vtune.schema.store import sample_store
from vtune.update.lora import check_alone, check_targets
from vtune.update.losses import LOSSES
from vtune.update.losses.section import DEFAULT, LossSection
from vtune.update.recipe import Checkpoints, Update
from vtune.update.schedule import warm_up_problem
from vtune.update.sequence import check_sequence_parallel


class RLRecipe(Strict):
    """Everything that `vtune rl` needs; nothing is guessed."""

    uses: Uses = ()
    """Files with parts of the user's own."""
    model: str
    """Folder or hub name; with a KL, also the reference."""
    data: tuple[str, ...] = Field(min_length=1)
    """Parquet files of samples."""
    seed: int
    steps: int = Field(gt=0)
    prompts_per_step: int = Field(gt=0)
    """Over all processes."""
    group_size: int = Field(gt=1)
    """Rollouts of one prompt."""
    images: PixelBudget
    rollout: TrainingRollout
    sandbox: SandboxRecipe
    tools: ToolsRecipe | None = None
    """What samples may offer beside `python`; null: nothing."""
    reward: RewardRecipe
    advantage: Advantage
    credit: Credit | None = None
    """Null: every token has the advantage of its trajectory."""
    loss: LossSection
    updates_per_step: int = Field(gt=0)
    """Updates from one step's rollouts; 1 is strictly on-policy."""
    update: Update
    eval: OnlineEval | None = None
    """Null: the weights are not evaluated while they are trained."""
    checkpoints: Checkpoints
    trajectories_every: int = Field(gt=0)
    """Steps between those whose trajectories are kept, pictures included; the last step always is."""

    @model_validator(mode="after")
    def _the_best_is_found(self) -> Self:
        check_best(self.eval, self.checkpoints)
        return self


def check_rl(recipe: RLRecipe, *, world: int) -> dict[str, Any]:
    """Everything that can be known before weights are loaded, for a run of `world` processes.

    Raises:
        VtuneError: With the problems found: rows, ground truths, judges, sizes.
    """
    check_sizes(recipe, world)
    if recipe.rollout.engine == "vllm":
        check_vllm()
        check_devices(recipe.rollout.tensor_parallel)
    check_keys(recipe.reward)
    check_service(recipe.reward)
    for warning in doubts(recipe):
        say(f"warning: {warning}")
    load_chat(recipe.model)
    found = find_shape(recipe.model, None)
    check_tensor_parallel(recipe.rollout.tensor_parallel, found and found[0], kind=recipe.rollout.engine)
    check_sequence_parallel(recipe.update.sequence_parallel, world, found and found[0])
    check_targets(recipe.model, recipe.update)
    if recipe.rollout.adapters == "alone":
        check_alone(recipe.model, recipe.update)
    facts = check_prompts(recipe)
    check_judge(recipe.reward, answers=facts["judged_answers"], looks=facts["judged_looks"])
    check_summariser(recipe.tools)
    check_suites(suites_of(recipe))
    return facts


def suites_of(recipe: RLRecipe) -> list[Loaded]:
    """The suites that the run's engine evaluates its weights on; none without `eval`.

    Raises:
        RecipeError: If one cannot be read, or cannot be evaluated so.
    """
    return load_suites(
        recipe.eval,
        kind=recipe.rollout.engine,
        tensor_parallel=recipe.rollout.tensor_parallel,
        isolation=recipe.sandbox.isolation,
    )


def doubts(recipe: RLRecipe) -> list[str]:
    """What a recipe does and its author may not have meant; it can be run all the same.

    With one update of what the same weights have drawn, every ratio is 1, and losses that coincide there have
    the gradient of the default, whose recipes do not claim to differ.
    """
    found = []
    algorithm = recipe.loss.algorithm
    on_policy = recipe.updates_per_step == 1 and recipe.rollout.staleness == 0
    if on_policy and algorithm != DEFAULT and LOSSES[algorithm].coincides_on_policy:
        found.append(
            f"with one on-policy update per step, loss.algorithm {algorithm} has the gradient of {DEFAULT} "
            "with the same aggregation; to differ, set updates_per_step to 4 (GSPO §5.1) or "
            "rollout.staleness to 1"
        )
    return found


def check_service(reward: RewardRecipe) -> None:
    """Check that a reward service answers; where another can stand in for one that does not, say so.

    Raises:
        ServiceError: If none answers.
        RecipeError: If one refuses.
    """
    silent = ping_services(reward)
    if reward.service is not None and len(silent) == len(reward.service.urls):
        raise ServiceError(
            "no reward service answers",
            where="; ".join(silent),
            fix="start one (`vtune serve rewards`), or fix reward.service",
        )
    for line in silent:
        say(f"a reward service does not answer, the others stand in for it: {line}")


def check_sizes(recipe: RLRecipe, world: int) -> None:
    """Check that a step splits over `world` processes and its updates.

    Raises:
        RecipeError: If it does not, or the policy is to be drawn from at another temperature than 1, or in a
            way that its engine cannot.
    """
    _check_engine(recipe.rollout)
    gpus = recipe.rollout.tensor_parallel
    if world % gpus:
        raise RecipeError(
            f"{world} processes do not split into groups of rollout.tensor_parallel {gpus}",
            fix="let it divide the processes of each machine (--gpus)",
        )
    if recipe.prompts_per_step % world:
        raise RecipeError(
            f"prompts_per_step {recipe.prompts_per_step} does not split over {world} processes",
            fix="make it a multiple of the processes",
        )
    iou = recipe.reward.iou
    if recipe.rollout.interrupt and iou is not None and iou.schedule == "adaptive":
        raise RecipeError(
            "rollout.interrupt is true, and reward.iou is adaptive: the threshold of a step comes of the one "
            "before it, which is drawn at the same time",
            fix="set reward.iou.schedule to staged, or interrupt to false and staleness to 1 at most",
        )
    rollouts = recipe.prompts_per_step * recipe.group_size
    if rollouts // world % recipe.updates_per_step:
        raise RecipeError(
            f"{rollouts // world} rollouts per process do not split into {recipe.updates_per_step} updates",
            fix="let it divide prompts_per_step x group_size / processes",
        )
    if recipe.rollout.temperature != 1.0:
        raise RecipeError(
            f"rollout.temperature is {recipe.rollout.temperature}",
            fix="train at 1.0: log-probabilities are those of the policy itself, not of a tempered one",
        )


def check_prompts(recipe: RLRecipe) -> dict[str, Any]:
    """Check that every row of the data can be asked and judged; returns the sizes of the run.

    Raises:
        VtuneError: With the problems found.
    """
    paths = [Path(name) for name in recipe.data]
    check_data(paths)
    check_indexes(recipe.tools)
    offered = (sample for path in paths for sample in read_samples(path))
    check_tools(offered, recipe.tools, recipe.rollout.prompt)
    found = check_samples((sample for path in paths for sample in read_samples(path)), recipe.reward)
    check_evidence(found)
    samples = len(sample_store(paths))
    problem = warm_up_problem(recipe.update, updates=recipe.steps * recipe.updates_per_step)
    if problem:
        say(f"warning: {problem}")
    if samples < recipe.prompts_per_step:
        say(
            f"warning: prompts_per_step is {recipe.prompts_per_step}, and the data have {samples} samples: "
            "a step asks some of them several times"
        )
    return {
        "samples": samples,
        "steps": recipe.steps,
        "rollouts_per_step": recipe.prompts_per_step * recipe.group_size,
        "judged_looks": found.judged_looks,
        "judged_answers": found.judged_answers,
    }


def _check_engine(rollout: TrainingRollout) -> None:
    if rollout.servers and rollout.tensor_parallel > 1:
        raise RecipeError(
            f"rollout.tensor_parallel is {rollout.tensor_parallel}, and rollout.servers are shared among GPUs"
            " as they were started",
            fix="set rollout.servers to [], or tensor_parallel to 1",
        )
    check_tensor_parallel(rollout.tensor_parallel, None, kind=rollout.engine)
    if rollout.adapters == "alone" and (rollout.engine != "vllm" or rollout.tensor_parallel > 1):
        why = "this one is shared among GPUs" if rollout.engine == "vllm" else "there is none"
        raise RecipeError(
            f"rollout.adapters is alone: they go to a vLLM of one GPU, and {why}",
            fix="set rollout.adapters to merged, or rollout.engine to vllm and tensor_parallel to 1",
        )
    if rollout.engine == "vllm":
        return
    if rollout.servers:
        raise RecipeError("rollout.servers are vLLM's", fix="set rollout.engine to vllm, or servers to []")
    if rollout.staleness:
        raise RecipeError(
            f"rollout.staleness is {rollout.staleness}, and the transformers engine draws with the weights "
            "that are trained",
            fix="set rollout.engine to vllm, or staleness to 0",
        )
