"""`vtune rl --sweep`: which variants of a recipe are compared, from which starts and on which suites."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from vtune.config import Uses, find, load_recipe, override
from vtune.errors import RecipeError, nearest
from vtune.models.source import resolved
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.sweep.numbers import HELD_OUT
from vtune.runs.sweep.placeholders import OF_RUNS, PREPARED, SEED, Row, filled, marks, rows
from vtune.runs.sweep.table import SWEEP, TABLE
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.sections import Strict
from vtune.uses import USES

OWN = "sweep."
"""Prefix of overrides for keys of the sweep file itself."""
SUITES = "held-out"
"""File in the sweep's folder: the suites on which all trained runs are evaluated."""

R = TypeVar("R", bound=Strict)

_NAME = re.compile(r"\w[\w.+-]*")
_OWN = (SWEEP, TABLE, SUITES, USES, PREPARED, "recipe.yaml")
"""Names beside the variants' folders, or that mark a run's folder."""


class HeldOut(Strict):
    """A suite on which the last checkpoint of every run is evaluated."""

    suite: str
    """Name of a built-in suite, or a path."""
    settings: dict[str, Any]
    """`key.path` -> value, overriding the suite."""
    name: str | None = None
    """Name in the table and for folders, so that a suite may be listed twice; null: the suite file's name."""

    @property
    def title(self) -> str:
        """Its name in this sweep."""
        return self.name or Path(self.suite).stem


class Untrained(Strict):
    """A model evaluated as it is, without training: an additional row in the table."""

    model: str | None
    """Folder, run or hub name; null: the one that the recipe starts from."""
    settings: dict[str, Any]
    """`key.path` -> value, overriding all suites: e.g. `offers: []` for a model that does not know tools."""


class Sweep(Strict):
    """Which variants of a recipe to compare."""

    uses: Uses = ()
    """Files with the user's own parts."""
    seeds: tuple[int, ...] = Field(min_length=1)
    """Every variant runs with each seed, which orders the data and controls sampling."""
    last_steps: int = Field(gt=0)
    """Training metrics are means over this many steps at the end."""
    axes: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    """Name -> values. Every variant, and every untrained model, runs at each value, as `VARIANT-VALUE`; in
    settings and commands `{name}` is the value."""
    prepare: dict[str, str] = Field(default_factory=dict)
    """Name -> command of vtune, run once per seed before the first run that reads its `--out`, in this order.
    `{seed}` is the seed, `{prepared}` a folder for this sweep and seed; both also work in settings. A command
    whose name contains an axis runs for each value."""
    variants: dict[str, dict[str, Any]] = Field(min_length=1)
    """Name -> `key.path` -> value, overriding the recipe. The name is also that of a folder."""
    untrained: dict[str, Untrained] = Field(default_factory=dict)
    """Name -> model, for rows without training."""
    differences: tuple[tuple[str, str], ...]
    """Pairs of rows whose difference is reported, first minus second, seed by seed."""
    held_out: tuple[HeldOut, ...]
    """Empty: only training metrics are reported."""
    spread: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Number in the table -> expected standard deviation over seeds of its difference; with it, a dry run
    reports the smallest difference that these seeds can show."""

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
        for row in (*self.rows(self.variants), *self.rows(self.untrained)):
            name = row.name
            if not _NAME.fullmatch(name) or name in _OWN:
                raise ValueError(
                    f"variant {name!r} is not a valid folder name here: letters, digits and . + - _, "
                    f"but none of {', '.join(_OWN)}"
                )
        for name, settings in self.variants.items():
            if name in self.untrained:
                raise ValueError(f"`{name}` is a variant, and is also in `untrained`")
            if "seed" in settings:
                raise ValueError(f"variant `{name}` sets `seed`, but the sweep's `seeds` are used")
        for pair in self.differences:
            for name in pair:
                if name not in self.variants and name not in self.untrained:
                    raise ValueError(f"`differences` names `{name}`, which is not one of the variants")
            if pair[0] == pair[1]:
                raise ValueError(f"`differences` compares `{pair[0]}` with itself")
        return self

    @model_validator(mode="after")
    def _axes_and_commands_fit(self) -> Self:
        for axis, values in self.axes.items():
            if not re.fullmatch(r"[a-z]\w*", axis) or axis in OF_RUNS:
                raise ValueError(f"axis {axis!r} is not a name: lower-case letters, but none of {OF_RUNS}")
            if not values or len({str(value) for value in values}) < len(values):
                raise ValueError(f"axis `{axis}` needs values, each once")
        for name, command in self.prepare.items():
            if "--out" not in command.split()[:-1]:
                raise ValueError(f"`prepare.{name}` does not say where its result goes: --out")
            lacking = [mark for mark in (SEED, PREPARED) if mark not in marks(command)]
            if lacking:
                raise ValueError(f"`prepare.{name}` does not say {{{lacking[0]}}}: seeds would share it")
            if own := marks(command) & {*self.axes} - marks(name):
                raise ValueError(f"`prepare.{name}` is another command for each {min(own)}: name it so, too")
        known = [*OF_RUNS, *self.axes]
        filled = [
            self.prepare,
            self.variants,
            [one.model_dump() for one in (*self.untrained.values(), *self.held_out)],
        ]
        for mark in sorted(marks(filled) - {*known}):
            # Prompts contain braces, too: only names close to a known placeholder count as typos.
            if meant := get_close_matches(mark, known, 1, 0.75):
                raise ValueError(f"`{{{mark}}}` is not a placeholder; did you mean `{{{meant[0]}}}`?")
        for number in self.spread:
            if number not in HELD_OUT:
                raise ValueError(f"`spread` has {number!r}, which is not one of {', '.join(HELD_OUT)}")
        return self

    def rows(self, names: Mapping[str, Any]) -> list[Row]:
        """The rows of variants, or of untrained models, at all values of the axes."""
        return rows(names, self.axes)

    @property
    def suites_by_run(self) -> bool:
        """Whether the suites differ between rows, or seeds."""
        return bool(marks([one.settings for one in self.held_out]) & {*OF_RUNS, *self.axes})

    @property
    def by_seed(self) -> bool:
        """Whether untrained models, or what they are evaluated on, differ between seeds."""
        filled = [
            *((one.model, one.settings) for one in self.untrained.values()),
            *(one.settings for one in self.held_out),
        ]
        return bool(marks(filled) & {*OF_RUNS})

    @model_validator(mode="after")
    def _suites_have_names(self) -> Self:
        names = [one.title for one in self.held_out]
        for name in names:
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f"`held_out`: {name!r} is not a valid folder name: letters, digits and . + - _"
                )
            if names.count(name) > 1:
                raise ValueError(f"`held_out` has `{name}` twice: give one another `name`")
        if self.untrained and not self.held_out:
            raise ValueError("`untrained` models are only evaluated: name a suite in `held_out`")
        return self


class Start(NamedTuple):
    """An untrained model and the suites for it."""

    model: str
    suites: Mapping[str, EvalSuite]


class Plan(NamedTuple):
    """A sweep with everything that it names; `seeded` fills in the placeholders for seeds."""

    sweep: Sweep
    recipes: Mapping[str, RLRecipe]
    """Row -> recipe."""
    suites: Mapping[str, EvalSuite]
    """Name -> suite, for trained variants."""
    untrained: Mapping[str, Start]
    at: Mapping[str, Mapping[str, Any]]
    """Row -> axis -> its value."""

    def recipe_of(self, row: str, seed: int, prepared: Path) -> RLRecipe:
        """The recipe of a run; `prepared` is the folder of its seed."""
        recipe = self.recipes[row].model_copy(update={"seed": seed})
        recipe = _filled(recipe, {SEED: seed, PREPARED: str(prepared)})
        return recipe.model_copy(update={"model": resolved(recipe.model)})

    def suites_of(
        self, row: str, seed: int | None = None, prepared: Path = Path()
    ) -> Mapping[str, EvalSuite]:
        """The suites of a table row; seed None: they are the same for all seeds."""
        suites = self.untrained[row].suites if row in self.untrained else self.suites
        known = {**self.at[row], **_of_run(seed, prepared)}
        return {name: _filled(suite, known) for name, suite in suites.items()}

    def read_by(self, row: str) -> list[str]:
        """Paths that the runs of a row read, with placeholders for their seeds."""
        recipe = self.recipes.get(row)
        starts = [self.untrained[row].model] if recipe is None else [recipe.model, *recipe.data]
        suites = self.suites_of(row).values()
        return [*starts, *(name for suite in suites for name in suite.data)]

    def model_of(self, row: str, seed: int | None, prepared: Path) -> str:
        """The untrained model of a row."""
        return resolved(str(filled(self.untrained[row].model, _of_run(seed, prepared))))


def load_sweep(
    path: Path,
    recipe: Path,
    overrides: Sequence[str],
    *,
    suite_overrides: Sequence[str] = (),
    only: Sequence[str] = (),
    kept: Sequence[str] = (),
) -> Plan:
    """Read a sweep, and the recipe in every variant.

    Args:
        path: The sweep.
        recipe: The recipe that is varied.
        overrides: `key.path=value` for all variants; `sweep.key.path=value` for the sweep itself.
        suite_overrides: `key.path=value` for all evaluations.
        only: Names of the variants and untrained models to keep; empty: all.
        kept: Further names to keep, if the sweep still has them.

    Raises:
        RecipeError: Lists the problems in all variants; also if no variant has a given name, or an override
            has no effect because the sweep sets its key.
    """
    own, overrides = _split(overrides)
    sweep = _chosen(load_recipe(path, Sweep, own), only, kept)
    _check_overrides(sweep, overrides)
    # So that its problems are reported once, not for each variant.
    base = load_recipe(recipe, RLRecipe, overrides)
    recipes: dict[str, RLRecipe] = {}
    problems = []
    for row in sweep.rows(sweep.variants):
        settings = filled(sweep.variants[row.of], row.at)
        given = [override(key, value) for key, value in settings.items()]
        try:
            varied = load_recipe(recipe, RLRecipe, [*overrides, *given], given_by=f"variant `{row.name}`")
        except RecipeError as error:
            problems.append(f"variant `{row.name}`: {error}")
            continue
        if sweep.last_steps > varied.steps:
            problems.append(
                f"variant `{row.name}` has {varied.steps} steps, and last_steps is {sweep.last_steps}; "
                f"lower it (`--set {OWN}last_steps={varied.steps}`), or raise `steps`"
            )
        # Add the sweep's own files: each variant runs in a separate process.
        brought = {"model": resolved(varied.model), "uses": _joined(sweep.uses, varied.uses)}
        recipes[row.name] = varied.model_copy(update=brought)
    if problems:
        raise RecipeError("\n".join(problems), where=str(path))
    starts = sweep.rows(sweep.untrained)
    untrained = {row.name: _start(sweep, row, base.model, suite_overrides) for row in starts}
    at = {row.name: row.at for row in (*sweep.rows(sweep.variants), *starts)}
    return Plan(sweep, recipes, _suites(sweep, {}, suite_overrides, "`held_out`"), untrained, at)


def _chosen(sweep: Sweep, only: Sequence[str], kept: Sequence[str]) -> Sweep:
    """The sweep reduced to some variants and untrained models, and the differences between them."""
    if not only:
        return sweep
    for name in only:
        if name not in (*sweep.variants, *sweep.untrained):
            raise RecipeError(f"the sweep has no variant `{name}`", fix=_meant(sweep, name))
    names = {*only, *kept}
    chosen: dict[str, Any] = {
        "variants": {name: one for name, one in sweep.variants.items() if name in names},
        "untrained": {name: one for name, one in sweep.untrained.items() if name in names},
        "differences": tuple(pair for pair in sweep.differences if {*pair} <= names),
    }
    if not chosen["variants"]:
        raise RecipeError(
            "`--only` names only models that are not trained",
            fix=f"add one that is: {', '.join(sweep.variants)}",
        )
    return sweep.model_copy(update=chosen)


def _meant(sweep: Sweep, name: str) -> str:
    """The fix for an unknown variant name."""
    if "," in name:
        return "one name for each --only"
    every = (*sweep.rows(sweep.variants), *sweep.rows(sweep.untrained))
    row = next((row for row in every if row.name == name), None)
    if row is not None:
        return f"`--only {row.of}` runs it at all values of {', '.join(row.at)}"
    return nearest(name, (*sweep.variants, *sweep.untrained))


def _start(sweep: Sweep, row: Row, model: str, overrides: Sequence[str]) -> Start:
    one = sweep.untrained[row.of]
    settings = filled(one.settings, row.at)
    given_by = f"`held_out`, with `untrained.{row.of}.settings`"
    model = str(filled(one.model or model, row.at))
    return Start(resolved(model), _suites(sweep, settings, overrides, given_by))


def _split(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Overrides of the sweep file, without their prefix, and overrides of the recipe."""
    own = [word.removeprefix(OWN) for word in overrides if word.startswith(OWN)]
    return own, [word for word in overrides if not word.startswith(OWN)]


def _check_overrides(sweep: Sweep, overrides: Sequence[str]) -> None:
    for key in (word.partition("=")[0] for word in overrides):
        if key == "seed":
            raise RecipeError(
                "`--set seed` has no effect: the sweep gives the seeds",
                fix=f"write `--set {OWN}seeds=[…]`, or leave it out",
            )
        for name, settings in sweep.variants.items():
            hidden = [own for own in settings if f"{key}.".startswith(f"{own}.")]
            if hidden:
                raise RecipeError(
                    f"`--set {key}` would have no effect in variant `{name}`, which sets `{hidden[0]}`",
                    fix="leave it out, or change a copy of the sweep",
                )


def _suites(
    sweep: Sweep, settings: Mapping[str, Any], overrides: Sequence[str], given_by: str
) -> dict[str, EvalSuite]:
    """Name -> suite, with its own settings, then those of the evaluated model, then those for all."""
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


def _of_run(seed: int | None, prepared: Path) -> dict[str, Any]:
    return {} if seed is None else {SEED: seed, PREPARED: str(prepared)}


def _filled(recipe: R, known: Mapping[str, Any]) -> R:
    """A recipe with its placeholders filled in."""
    values = recipe.model_dump(mode="json")
    return type(recipe).model_validate(filled(values, known)) if marks(values) & {*known} else recipe
