"""Before a run: whether the judge of its recipe answers, where its data need one."""

from vtune.report.progress import say
from vtune.reward.greeting import meet
from vtune.reward.recipe import RewardRecipe


def check_judge(reward: RewardRecipe, *, answers: int, looks: int) -> None:
    """See that the judge answers, where this process will ask it; say what it refuses.

    Args:
        reward: Of the recipe; a reward service has a judge of its own.
        answers: Samples whose answers it will compare.
        looks: Samples whose calls it will judge.

    Raises:
        ServiceError: If it does not answer.
        RecipeError: If its key is not set.
    """
    if reward.judge is None or reward.service is not None or not answers + looks:
        return
    if "temperature" in meet(reward.judge, pictures=looks > 0):
        say(f"the judge {reward.judge.model} takes no temperature: it is asked without, and may vary")
