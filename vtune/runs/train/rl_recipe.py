"""The recipe of `vtune rl`, and whether a step of it can be split over processes."""

from typing import Self

from pydantic import Field, model_validator

from vtune.advantage.recipe import Advantage, Credit
from vtune.config import Uses
from vtune.errors import RecipeError
from vtune.models.pictures import PixelBudget
from vtune.reward.recipe import RewardRecipe
from vtune.rollout.recipe import TrainingRollout
from vtune.runs.agent.kinds import check_tensor_parallel
from vtune.runs.agent.tools import ToolsRecipe
from vtune.runs.train.online_recipe import OnlineEval, check_best
from vtune.sandbox.recipe import SandboxRecipe
from vtune.sections import Strict
from vtune.update.losses.section import LossSection
from vtune.update.recipe import Checkpoints, Update


class RLRecipe(Strict):
    """Everything that `vtune rl` needs; nothing is guessed."""

    uses: Uses = ()
    """Files with the user's own parts."""
    model: str
    """Folder or hub name; also the reference if there is a KL term."""
    data: tuple[str, ...] = Field(min_length=1)
    """Parquet files of samples."""
    seed: int
    steps: int = Field(gt=0)
    prompts_per_step: int = Field(gt=0)
    """Over all processes."""
    group_size: int = Field(gt=1)
    """Rollouts per prompt."""
    images: PixelBudget
    rollout: TrainingRollout
    sandbox: SandboxRecipe
    tools: ToolsRecipe | None = None
    """What samples may offer besides `python`; null: nothing."""
    reward: RewardRecipe
    advantage: Advantage
    credit: Credit | None = None
    """Null: every token gets the advantage of its trajectory."""
    loss: LossSection
    updates_per_step: int = Field(gt=0)
    """Updates from one step's rollouts; 1 is strictly on-policy."""
    update: Update
    eval: OnlineEval | None = None
    """Null: the weights are not evaluated during training."""
    checkpoints: Checkpoints
    trajectories_every: int = Field(gt=0)
    """Trajectories, with their pictures, are kept every this many steps, and always for the last step."""

    @model_validator(mode="after")
    def _judged_at_once(self) -> Self:
        if self.reward.asks_in_batches:
            raise ValueError(
                "`reward.judge.batch`: a batch may take a day, and every step waits for its rewards; batches "
                "are for `vtune eval`"
            )
        return self

    @model_validator(mode="after")
    def _the_best_is_found(self) -> Self:
        check_best(self.eval, self.checkpoints)
        return self


def check_sizes(recipe: RLRecipe, world: int) -> None:
    """Check that a step splits over `world` processes and its updates.

    Raises:
        RecipeError: If it does not, if tokens would be sampled at a temperature other than 1, or if the
            engine does not support the settings.
    """
    _check_engine(recipe.rollout)
    gpus = recipe.rollout.tensor_parallel
    if world % gpus:
        raise RecipeError(
            f"{world} processes do not split into groups of rollout.tensor_parallel {gpus}",
            fix="choose a tensor_parallel that divides the processes per machine (--gpus)",
        )
    if recipe.prompts_per_step % world:
        raise RecipeError(
            f"prompts_per_step {recipe.prompts_per_step} does not split over {world} processes",
            fix="make it a multiple of the processes",
        )
    iou = recipe.reward.iou
    if recipe.rollout.interrupt and iou is not None and iou.schedule == "adaptive":
        raise RecipeError(
            "rollout.interrupt is true, and reward.iou is adaptive: the threshold of a step depends "
            "on the step before it, which is generated at the same time",
            fix="set reward.iou.schedule to staged, or interrupt to false and staleness to 1 at most",
        )
    rollouts = recipe.prompts_per_step * recipe.group_size
    if rollouts // world % recipe.updates_per_step:
        raise RecipeError(
            f"{rollouts // world} rollouts per process do not split into {recipe.updates_per_step} updates",
            fix="choose an updates_per_step that divides prompts_per_step x group_size / processes",
        )
    if recipe.rollout.temperature != 1.0:
        raise RecipeError(
            f"rollout.temperature is {recipe.rollout.temperature}",
            fix="train at 1.0: log-probabilities are those of the policy itself, not of a tempered one",
        )


def check_machine(recipe: RLRecipe, processes: int) -> None:
    """Check that the processes that share a vLLM are on one machine, if each machine has this many processes.

    Raises:
        RecipeError: If they are not.
    """
    size = recipe.rollout.tensor_parallel
    if processes % size:
        raise RecipeError(
            f"rollout.tensor_parallel {size} would spread one vLLM over several machines, which have "
            f"{processes} processes each",
            fix="choose a tensor_parallel that divides the processes per machine (--gpus)",
        )


def _check_engine(rollout: TrainingRollout) -> None:
    if rollout.servers and rollout.tensor_parallel > 1:
        raise RecipeError(
            f"rollout.tensor_parallel is {rollout.tensor_parallel}, but vLLM servers "
            "(rollout.servers) are split over GPUs when they are started",
            fix="set rollout.servers to [], or tensor_parallel to 1",
        )
    check_tensor_parallel(rollout.tensor_parallel, None, kind=rollout.engine)
    if rollout.adapters == "alone" and (rollout.engine != "vllm" or rollout.tensor_parallel > 1):
        why = "this one is shared among GPUs" if rollout.engine == "vllm" else "there is none"
        raise RecipeError(
            f"rollout.adapters is alone, which needs a vLLM on one GPU; {why}",
            fix="set rollout.adapters to merged, or rollout.engine to vllm and tensor_parallel to 1",
        )
    if rollout.engine == "vllm":
        return
    if rollout.servers:
        raise RecipeError(
            "rollout.servers works only with rollout.engine vllm",
            fix="set rollout.engine to vllm, or servers to []",
        )
    if rollout.staleness:
        raise RecipeError(
            f"rollout.staleness is {rollout.staleness}, but the transformers engine generates with "
            "the very weights that are being trained",
            fix="set rollout.engine to vllm, or staleness to 0",
        )
