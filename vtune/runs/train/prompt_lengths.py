"""Whether the prompts of the first step leave room for a reply."""

from pathlib import Path

from vtune.runs.agent.prompt_lengths import check_prompt_lengths
from vtune.runs.train.draw import prompts_of
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.schema.store import sample_store
from vtune.update.ranks import Ranks

ALONE = Ranks(rank=0, world=1, local=0)
"""Ranks of a single process, whose prompts are those of all ranks, in order."""


def check_first_prompts(recipe: RLRecipe) -> None:
    """Check the prompts of the first step: see `check_prompt_lengths`.

    Raises:
        DataError: As it does.
    """
    store = sample_store([Path(name) for name in recipe.data])
    step = recipe.prompts_per_step
    prompts = (prompts_of(store, recipe, range(n, n + 1), ALONE)[0] for n in range(step))
    further = "drop them; or leave them unscored, with a higher reward.max_unscored"
    check_prompt_lengths(recipe, recipe.model, prompts, total=step, further=further)
