"""The `eval` section of a training recipe: the suites on which the weights are evaluated during training."""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from vtune.sections import Strict
from vtune.update.recipe import Checkpoints


class OnlineSuite(Strict):
    """One suite of an evaluation during training; its bare name means the whole suite, as it ships."""

    suite: str
    """Name of a shipped suite, or a path."""
    limit: int | None = Field(default=None, gt=0)
    """Only this many questions, from the start of the suite; null: all."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """`key.path` -> value, overriding the suite."""

    @property
    def name(self) -> str:
        """Its name in metrics: that of its file."""
        return Path(self.suite).stem


def _from_name(value: Any) -> Any:
    return {"suite": value} if isinstance(value, str) else value


class OnlineEval(Strict):
    """When weights are evaluated during training: before the first step, periodically, and after the last."""

    every: int = Field(gt=0)
    """Interval in steps."""
    suites: tuple[Annotated[OnlineSuite, BeforeValidator(_from_name)], ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        names = [suite.name for suite in self.suites]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two suites are called `{twice[0]}`: metrics know them by their files' names")
        return self


def check_best(recipe: OnlineEval | None, checkpoints: Checkpoints) -> None:
    """Check that a checkpoint can be chosen as the best.

    Raises:
        ValueError: If it is never evaluated, or an evaluation has no checkpoint.
    """
    best = checkpoints.keep.best
    if best is None:
        return
    names = [suite.name for suite in recipe.suites] if recipe is not None else []
    if recipe is None or best.suite not in names:
        raise ValueError(
            f"checkpoints.keep.best names the suite `{best.suite}`, which `eval` does not evaluate "
            f"({', '.join(names) or 'it is null'})"
        )
    if recipe.every % checkpoints.every:
        raise ValueError(
            "checkpoints.keep.best needs a checkpoint of all weights that are evaluated: eval.every "
            f"{recipe.every} is not a multiple of checkpoints.every {checkpoints.every}"
        )


def evaluations_of(recipe: OnlineEval, steps: int) -> int:
    """The number of evaluations in a run of `steps` steps."""
    return 1 + steps // recipe.every + (steps % recipe.every > 0)
