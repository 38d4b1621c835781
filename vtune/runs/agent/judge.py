"""Checks before a run that its models respond: the judge, and the one that summarises searches."""

from vtune.errors import ServiceError
from vtune.judge.endpoint import JudgeEndpoint
from vtune.report.progress import say
from vtune.reward.preflight import ping_judge
from vtune.reward.recipe import RewardRecipe
from vtune.runs.agent.tools import ToolsRecipe


def check_judge(reward: RewardRecipe, *, answers: int, looks: int) -> None:
    """Check that the judge responds, if this process will ask it; report what it refuses.

    Args:
        reward: The recipe's section.
        answers: Number of samples whose answers it will compare here, not in a reward service.
        looks: Number of samples whose calls it will judge here.

    Raises:
        ServiceError: If it does not answer.
        RecipeError: If its key is not set.
    """
    if reward.judge is None or not answers + looks:
        return
    _tell_refused(f"the judge {reward.judge.model}", ping_judge(reward.judge, pictures=looks > 0))


def check_answers(endpoint: JudgeEndpoint, section: str) -> None:
    """Check that a model which a section of a recipe names responds; report what it refuses.

    Args:
        endpoint: Its endpoint.
        section: Name of the section, e.g. `grader`.

    Raises:
        ServiceError: If it does not answer.
        RecipeError: If its key is not set.
    """
    try:
        refused = ping_judge(endpoint, pictures=False, section=section)
    except ServiceError as error:
        raise ServiceError(
            error.what, where=error.where, fix=f"check the model that `{section}` names, then start again"
        ) from None
    _tell_refused(f"{endpoint.model} of `{section}`", refused)


def check_summariser(tools: ToolsRecipe | None) -> None:
    """Check that the model that summarises text searches responds, if a recipe names one.

    Raises:
        ServiceError: If it does not answer.
        RecipeError: If its key is not set.
    """
    if tools is None or tools.text_search is None or tools.text_search.summariser is None:
        return
    if tools.web.replay:  # its summaries are on record
        return
    try:
        ping_judge(tools.text_search.summariser, pictures=False, section="summariser")
    except ServiceError as error:
        raise ServiceError(
            f"text searches would have no summary: {error.what}",
            where=error.where,
            fix="start the model that tools.text_search.summariser names, or set it to null",
        ) from None


def _tell_refused(model: str, refused: frozenset[str]) -> None:
    if "temperature" in refused:
        say(f"{model} accepts no temperature: it is asked without one, and its replies may vary")
