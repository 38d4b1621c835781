"""`vtune rl --sweep`: which variants of a recipe are compared, from which starts and on which suites."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from vtune.config import Strict, Uses, find, load_recipe, override
from vtune.errors import RecipeError
from vtune.models.policy import resolved
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.sweep.table import SWEEP, TABLE
from vtune.runs.train.rl import RLRecipe
from vtune.uses import USES

OWN = "sweep."
"""Begins the keys of the sweep's own file among the overrides."""
SUITES = "held-out"
"""In the sweep's folder: the suites on which all trained runs are evaluated."""

_NAME = re.compile(r"\w[\w.+-]*")
_OWN = (SWEEP, TABLE, SUITES, USES, "recipe.yaml")
"""What stands beside the folders of variants, or tells a run's folder."""


class HeldOut(Strict):
    """A suite on which the last checkpoint of every run is evaluated."""

    suite: str
    """Name of a shipped suite, or a path."""
    settings: dict[str, Any]
    """`key.path` -> value, over the suite."""
    name: str | None = None
    """In the table, and of folders; null: that of the suite's file. So one suite may stand there twice."""

    @property
    def title(self) -> str:
        """Its name in this sweep."""
        return self.name or Path(self.suite).stem


class Untrained(Strict):
    """A model that is evaluated as it is, without a step of training: one more row of the table."""

    model: str | None
    """Folder, run or hub name; null: the one that the recipe starts from."""
    settings: dict[str, Any]
    """`key.path` -> value, over all suites: e.g. `offers: []` for a model that knows no tools."""


class Sweep(Strict):
    """Which variants of a recipe are to be compared."""

    uses: Uses = ()
    """Files with parts of the user's own."""
    seeds: tuple[int, ...] = Field(min_length=1)
    """Every variant is run with each; a seed orders the data and decides the draws."""
    last_steps: int = Field(gt=0)
    """Numbers of training are means over this many steps at the end."""
    variants: dict[str, dict[str, Any]] = Field(min_length=1)
    """Name -> `key.path` -> value, over the recipe. A name is that of a folder, too."""
    untrained: dict[str, Untrained] = Field(default_factory=dict)
    """Name -> model, for rows without training."""
    differences: tuple[tuple[str, str], ...]
    """Pairs of rows whose difference is reported, first minus second, seed by seed."""
    held_out: tuple[HeldOut, ...]
    """Empty: the numbers are those of training alone."""

    @field_validator("held_out", mode="before")
    @classmethod
    def _is_a_list(cls, value: Any) -> Any:
        if value is None or isinstance(value, Mapping):
            raise ValueError("it is a list of suites: write `- suite: NAME`, with `settings`, or [] for none")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"a seed is given twice: {', '.join(map(str, self.seeds))}")
        for name in (*self.variants, *self.untrained):
            if not _NAME.fullmatch(name) or name in _OWN:
                raise ValueError(
                    f"variant {name!r} is not a name of a folder here: letters, digits and . + - _, "
                    f"but none of {', '.join(_OWN)}"
                )
        for name, settings in self.variants.items():
            if name in self.untrained:
                raise ValueError(f"`{name}` is a variant, and stands in `untrained`, too")
            if "seed" in settings:
                raise ValueError(f"variant `{name}` sets `seed`; the seeds are those of `seeds`")
        for pair in self.differences:
            for name in pair:
                if name not in self.variants and name not in self.untrained:
                    raise ValueError(f"`differences` names `{name}`, which is not one of the variants")
            if pair[0] == pair[1]:
                raise ValueError(f"`differences` compares `{pair[0]}` with itself")
        return self

    @model_validator(mode="after")
    def _suites_have_names(self) -> Self:
        names = [one.title for one in self.held_out]
        for name in names:
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f"`held_out`: {name!r} is not a name of a folder: letters, digits and . + - _"
                )
            if names.count(name) > 1:
                raise ValueError(f"`held_out` has `{name}` twice: give one another `name`")
        if self.untrained and not self.held_out:
            raise ValueError("`untrained` models are only evaluated: name a suite in `held_out`")
        return self


class Start(NamedTuple):
    """An untrained model, and what it is evaluated on."""

    model: str
    suites: Mapping[str, EvalSuite]


class Plan(NamedTuple):
    """A sweep with all that it names."""

    sweep: Sweep
    recipes: Mapping[str, RLRecipe]
    """Variant -> recipe."""
    suites: Mapping[str, EvalSuite]
    """Name -> suite, for what the variants train."""
    untrained: Mapping[str, Start]

    def suites_of(self, variant: str) -> Mapping[str, EvalSuite]:
        """What a row of the table is evaluated on."""
        return self.untrained[variant].suites if variant in self.untrained else self.suites


def load_sweep(
    path: Path, recipe: Path, overrides: Sequence[str], *, suite_overrides: Sequence[str] = ()
) -> Plan:
    """Read a sweep, and the recipe in every variant.

    Args:
        path: The sweep.
        recipe: The recipe that is varied.
        overrides: `key.path=value` for all variants; `sweep.key.path=value` is for the sweep itself.
        suite_overrides: `key.path=value` for all evaluations.

    Raises:
        RecipeError: With the problems found, in all variants; also where an override would be without effect
            because the sweep sets its key.
    """
    own, overrides = _split(overrides)
    sweep = load_recipe(path, Sweep, own)
    _check_overrides(sweep, overrides)
    # What is wrong with it is reported once, not for each variant.
    base = load_recipe(recipe, RLRecipe, overrides)
    recipes: dict[str, RLRecipe] = {}
    problems = []
    for name, settings in sweep.variants.items():
        given = [override(key, value) for key, value in settings.items()]
        try:
            varied = load_recipe(recipe, RLRecipe, [*overrides, *given], given_by=f"variant `{name}`")
        except RecipeError as error:
            problems.append(f"variant `{name}`: {error}")
            continue
        if sweep.last_steps > varied.steps:
            problems.append(
                f"variant `{name}` has {varied.steps} steps, and last_steps is {sweep.last_steps}; "
                f"lower it (`--set {OWN}last_steps={varied.steps}`), or raise `steps`"
            )
        # The sweep's own files go along: each variant is a run of a process of its own.
        brought = {"model": resolved(varied.model), "uses": _joined(sweep.uses, varied.uses)}
        recipes[name] = varied.model_copy(update=brought)
    if problems:
        raise RecipeError("\n".join(problems), where=str(path))
    untrained = {
        name: Start(
            resolved(one.model or base.model),
            _suites(sweep, one.settings, suite_overrides, f"`held_out`, with `untrained.{name}.settings`"),
        )
        for name, one in sweep.untrained.items()
    }
    return Plan(sweep, recipes, _suites(sweep, {}, suite_overrides, "`held_out`"), untrained)


def _split(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those of the sweep's own file, without their prefix, and those of the recipe."""
    own = [word.removeprefix(OWN) for word in overrides if word.startswith(OWN)]
    return own, [word for word in overrides if not word.startswith(OWN)]


def _check_overrides(sweep: Sweep, overrides: Sequence[str]) -> None:
    for key in (word.partition("=")[0] for word in overrides):
        if key == "seed":
            raise RecipeError(
                "`--set seed` is without effect: the sweep says the seeds",
                fix=f"write `--set {OWN}seeds=[…]`, or leave it out",
            )
        for name, settings in sweep.variants.items():
            hidden = [own for own in settings if f"{key}.".startswith(f"{own}.")]
            if hidden:
                raise RecipeError(
                    f"`--set {key}` would be without effect in variant `{name}`, which sets `{hidden[0]}`",
                    fix="leave it out, or change a copy of the sweep",
                )


def _suites(
    sweep: Sweep, settings: Mapping[str, Any], overrides: Sequence[str], given_by: str
) -> dict[str, EvalSuite]:
    """Name -> suite, with its own settings, then those of who is evaluated, then those for all."""
    found = {
        one.title: load_recipe(
            find(one.suite, "eval_suites"),
            EvalSuite,
            [*(override(key, value) for key, value in {**one.settings, **settings}.items()), *overrides],
            given_by=given_by,
        )
        for one in sweep.held_out
    }
    return {
        name: suite.model_copy(update={"uses": _joined(sweep.uses, suite.uses)})
        for name, suite in found.items()
    }


def _joined(first: Sequence[str], then: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *then)))
