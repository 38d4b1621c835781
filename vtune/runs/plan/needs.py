"""What a recipe needs besides GPUs, according to its data and its evaluations."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from vtune.config import find, load_recipe, override
from vtune.errors import DataError
from vtune.runs.agent.sandbox import may_run_code, needs_sandbox
from vtune.runs.evaluate.questions import read_records
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.runs.train.sft_recipe import SFTRecipe


def runs_code(recipe: RLRecipe | SFTRecipe) -> bool:
    """Whether training, or an evaluation in it, needs a sandbox; assumes so if the data are not here.

    Raises:
        RecipeError: If one of its evaluation suites cannot be read.
    """
    if isinstance(recipe, SFTRecipe):
        return False
    suites = list(evaluated(recipe.model_dump(mode="json")))
    try:
        return may_run_code(recipe.data) or any(
            needs_sandbox(sample)
            for _, suite, limit in suites
            for sample in islice(read_records(suite), limit)
        )
    except DataError:
        return True


def evaluated(values: Mapping[str, Any]) -> Iterator[tuple[str, EvalSuite, int | None]]:
    """(name, suite, limit) of each evaluation during training."""
    for one in (values.get("eval") or {}).get("suites", ()):
        settings = [override(key, value) for key, value in one["settings"].items()]
        yield one["suite"], load_recipe(find(one["suite"], "eval_suites"), EvalSuite, settings), one["limit"]
