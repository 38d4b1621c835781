"""How a run's trajectories were generated: the model and settings needed to regenerate a turn."""

from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from vtune.config import find, load_recipe
from vtune.errors import RecipeError
from vtune.models.pictures import PixelBudget
from vtune.models.policy import Dtype
from vtune.rollout.openai import Served
from vtune.rollout.recipe import Rollout
from vtune.runs.agent.tools import ToolsRecipe
from vtune.runs.evaluate.questions import as_today
from vtune.runs.evaluate.suite import AGENTS, AgentRecipe
from vtune.sandbox.recipe import SandboxRecipe
from vtune.sections import Strict


class Drawn(Strict):
    """A run's settings for generation; its other sections may be out of date."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    images: PixelBudget
    rollout: Rollout
    sandbox: SandboxRecipe
    tools: ToolsRecipe | None = None
    dtype: Dtype
    threads: int = Field(gt=0)
    openai: Served = Served()
    call_images: Literal["shown", "black"] = "shown"

    @model_validator(mode="before")
    @classmethod
    def _of_any_run(cls, values: Any) -> Any:
        """The values of an evaluation unchanged; those of training keep weight settings under `update`."""
        if not isinstance(values, dict):
            return values
        values = as_today(values)
        update, rollout = values.get("update"), values.get("rollout")
        if isinstance(update, dict):
            values |= {key: update[key] for key in ("dtype", "threads") if key in update}
        if isinstance(rollout, dict):
            values |= {"rollout": {key: rollout[key] for key in Rollout.model_fields if key in rollout}}
        return values


def drawn_as(settings: str, agent: str | None) -> Drawn | AgentRecipe:
    """The settings to open a model with.

    Args:
        settings: The file with the run's settings.
        agent: Name or path of an agent, overriding what the run says.

    Raises:
        RecipeError: If neither is available, or the pictures of calls were not shown.
    """
    if agent is not None:
        found: Drawn | AgentRecipe = load_recipe(find(agent, AGENTS), AgentRecipe)
    elif Path(settings).is_file():
        found = load_recipe(Path(settings), Drawn)
    else:
        raise RecipeError(
            "it is not known how these trajectories were generated",
            where=settings,
            fix="name the agent that generated them with --agent, e.g. --agent codev",
        )
    if found.call_images != "shown":
        raise RecipeError(
            "the pictures of its calls were blackened already: there is nothing to exchange",
            where=settings,
            fix="use a run with call_images: shown",
        )
    return found
