"""The learning rate at each update."""

import math

from vtune.update.recipe import Update

FLOOR = 0.1
"""Where the cosine ends, as a share of the full learning rate."""


def warm_up_problem(recipe: Update, *, updates: int) -> str | None:
    """A warning about a warm-up longer than the run; None if it is not.

    Args:
        recipe: Holds learning rate and warm-up.
        updates: Number of updates in the whole run.
    """
    if recipe.warmup_steps <= updates:
        return None
    reached = learning_rate_at(updates - 1, recipe, steps=updates)
    return (
        f"update.warmup_steps is {recipe.warmup_steps}, and the run has {updates} updates: the learning rate "
        f"ends at {reached:.3g} and never reaches {recipe.learning_rate:.3g}"
    )


def learning_rate_at(step: int, recipe: Update, *, steps: int) -> float:
    """Linear warm-up, then constant or a cosine down to a tenth.

    Args:
        step: Updates done so far.
        recipe: Holds learning rate, warm-up and schedule.
        steps: Number of updates in the whole run.
    """
    if step < recipe.warmup_steps:
        return recipe.learning_rate * (step + 1) / recipe.warmup_steps
    if recipe.schedule == "constant":
        return recipe.learning_rate
    progress = (step - recipe.warmup_steps) / max(steps - recipe.warmup_steps, 1)
    return recipe.learning_rate * (FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))))
