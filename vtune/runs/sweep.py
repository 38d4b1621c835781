"""`vtune rl --sweep`: a recipe in several variants, each with several seeds, as runs of their own."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import Field, model_validator

from vtune.config import Strict, differing_keys, dump_recipe, find, load_recipe, override
from vtune.errors import DataError, RecipeError, RunFailed
from vtune.files.json_text import read_record
from vtune.models.policy import resolved
from vtune.report.progress import say
from vtune.runs.child import last_words, run_child
from vtune.runs.eval import STARTED, EvalSuite, check_eval
from vtune.runs.folder import MAY_CHANGE, check_folder, check_same_run, locked, write_whole
from vtune.runs.questions import fingerprints
from vtune.runs.rl import RLRecipe, check_rl
from vtune.runs.sweep_table import DONE, RESULTS, SWEEP, TABLE, Run, sweep_table
from vtune.schema.parquet import fingerprint

Start = Callable[..., int]
"""`run_child`, or what takes its place in a test."""

HELD_OUT_SUITE = "held-out.yaml"
"""In the sweep's folder: what all runs are evaluated on."""

_NAME = re.compile(r"\w[\w.+-]*")
_OWN = (SWEEP, TABLE, HELD_OUT_SUITE, "recipe.yaml")
"""What stands beside the folders of variants, or tells a run's folder."""


class HeldOut(Strict):
    """What the last checkpoint of every run is evaluated on."""

    suite: str
    """Name of a shipped suite, or a path."""
    settings: dict[str, Any]
    """`key.path` -> value, over the suite."""


class Sweep(Strict):
    """Which variants of a recipe are to be compared."""

    seeds: tuple[int, ...] = Field(min_length=1)
    """Every variant is run with each; a seed orders the data and decides the draws."""
    last_steps: int = Field(gt=0)
    """Numbers of training are means over so many steps at the end."""
    variants: dict[str, dict[str, Any]] = Field(min_length=1)
    """Name -> `key.path` -> value, over the recipe. A name is that of a folder, too."""
    differences: tuple[tuple[str, str], ...]
    """Pairs of variants whose difference is told, first minus second, seed by seed."""
    held_out: HeldOut | None
    """Null: the accuracy is that of training alone."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"a seed is given twice: {', '.join(map(str, self.seeds))}")
        for name, settings in self.variants.items():
            if not _NAME.fullmatch(name) or name in _OWN:
                raise ValueError(
                    f"variant {name!r} is no name of a folder here: letters, digits and . + - _, "
                    f"but none of {', '.join(_OWN)}"
                )
            if "seed" in settings:
                raise ValueError(f"variant `{name}` sets `seed`; the seeds are those of `seeds`")
        for pair in self.differences:
            for name in pair:
                if name not in self.variants:
                    raise ValueError(f"`differences` names `{name}`, which is none of the variants")
            if pair[0] == pair[1]:
                raise ValueError(f"`differences` compares `{pair[0]}` with itself")
        return self


class Plan(NamedTuple):
    """A sweep with all that it names."""

    sweep: Sweep
    recipes: Mapping[str, RLRecipe]
    """Variant -> recipe."""
    suite: EvalSuite | None


def load_sweep(
    path: Path, recipe: Path, overrides: Sequence[str], *, suite_overrides: Sequence[str] = ()
) -> Plan:
    """Read a sweep, and the recipe in every variant.

    Args:
        path: The sweep.
        recipe: The recipe that is varied.
        overrides: `key.path=value` for all variants.
        suite_overrides: The same for the evaluation.

    Raises:
        RecipeError: With the problems found, in all variants; also where an override would be without effect
            because the sweep sets its key.
    """
    sweep = load_recipe(path, Sweep)
    _check_overrides(sweep, overrides)
    load_recipe(recipe, RLRecipe, overrides)  # what is wrong with it is told once, not for each variant
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
                "let it be at most `steps`"
            )
        recipes[name] = varied.model_copy(update={"model": resolved(varied.model)})
    if problems:
        raise RecipeError("\n".join(problems), where=str(path))
    return Plan(sweep, recipes, _suite(sweep, suite_overrides))


def _check_overrides(sweep: Sweep, overrides: Sequence[str]) -> None:
    for key in (word.partition("=")[0] for word in overrides):
        if key == "seed":
            raise RecipeError("`--set seed` is without effect: the sweep says the seeds", fix="leave it out")
        for name, settings in sweep.variants.items():
            hidden = [own for own in settings if f"{key}.".startswith(f"{own}.")]
            if hidden:
                raise RecipeError(
                    f"`--set {key}` would be without effect in variant `{name}`, which sets `{hidden[0]}`",
                    fix="leave it out, or change a copy of the sweep",
                )


def _suite(sweep: Sweep, overrides: Sequence[str]) -> EvalSuite | None:
    if sweep.held_out is None:
        return None
    given = [override(key, value) for key, value in sweep.held_out.settings.items()]
    return load_recipe(
        find(sweep.held_out.suite, "eval_suites"), EvalSuite, [*given, *overrides], given_by="`held_out`"
    )


def runs_of(plan: Plan, out: Path) -> list[Run]:
    """Every run, in the order in which they are done: all variants with the first seed, then the next."""
    return [
        Run(variant, seed, out / variant / f"seed-{seed}")
        for seed in plan.sweep.seeds
        for variant in plan.sweep.variants
    ]


def check_sweep_folder(plan: Plan, out: Path, *, resume: bool, processes: int) -> None:
    """See that a sweep can begin in a folder, or go on in it with what is there.

    Variants and seeds may be added to a sweep, and taken away.

    Raises:
        RecipeError: If the folder holds a sweep and `resume` was not asked, or the other way round; if a run
            in it began, or an evaluation in it ended, with other settings.
        DataError: The same with other data.
    """
    check_folder(out)
    there = (out / SWEEP).exists()
    if (out / "recipe.yaml").exists():
        raise RecipeError(f"{out} holds a run", fix="choose another --out")
    if there and not resume:
        raise RecipeError(
            f"{out} holds a sweep already",
            fix="continue it with --resume, choose another --out, or remove it",
        )
    if resume and not there:
        raise RecipeError(f"{out} holds no sweep to resume", fix="start it without --resume")
    prints = {name: {file: fingerprint(Path(file)) for file in recipe.data if Path(file).is_file()}
              for name, recipe in plan.recipes.items()}  # fmt: skip
    judged = None if plan.suite is None else fingerprints(plan.suite)
    for run in runs_of(plan, out):
        if (run.folder / "recipe.yaml").exists():
            recipe = _seeded(plan.recipes[run.variant], run.seed)
            check_same_run(run.folder, recipe, prints[run.variant], processes=processes)
        if plan.suite is not None and (run.evaluation / RESULTS).exists():
            _check_same_evaluation(run, plan.suite, judged)


def _check_same_evaluation(run: Run, suite: EvalSuite, prints: Mapping[str, str] | None) -> None:
    results = read_record(run.evaluation / RESULTS, fix="the evaluation wrote it; restore it")
    now = suite.model_dump(mode="json")
    changed = [key for key in differing_keys(results["suite"], now) if key not in MAY_CHANGE]
    if changed:
        raise RecipeError(
            f"the suite is not the one of {run.evaluation}; it differs in {', '.join(changed)}",
            fix="set it back, or remove the folders `eval` to evaluate all runs anew",
        )
    if results["environment"]["data"] != prints:
        raise DataError(
            f"{run.evaluation} was evaluated on other data",
            fix="put them back, or remove the folders `eval` to evaluate all runs anew",
        )


def plan_sweep(
    plan: Plan,
    out: Path,
    *,
    check: Callable[[RLRecipe], dict[str, Any]],
    resume: bool,
    processes: int,
    begin: bool = True,
) -> dict[str, Any]:
    """What a dry run tells: each variant's own plan, and what would become of each run.

    Args:
        plan: The sweep.
        out: Its folder.
        check: The plan of one recipe.
        resume: Whether the sweep in the folder would go on.
        processes: Of each run.
        begin: Whether a sweep is to begin, or go on, in just this folder: else nobody minds what is in it.

    Raises:
        VtuneError: With the problems found.
    """
    missing = [] if plan.suite is None else [f for f in plan.suite.data if not Path(f).exists()]
    variants = {name: check(recipe) for name, recipe in plan.recipes.items()}
    if not missing and not any(facts["missing"] for facts in variants.values()):
        if begin:
            check_sweep_folder(plan, out, resume=resume, processes=processes)
        _check_held_out(plan)
    states = {run.name: _state(run) for run in runs_of(plan, out)}
    return {"variants": variants, "runs": states, "missing": [f"data file {name}" for name in missing]}


def _check_held_out(plan: Plan) -> None:
    if plan.suite is not None:
        # The policies to come have the tokenizer of the one that they start from.
        for model in {recipe.model for recipe in plan.recipes.values()}:
            check_eval(plan.suite, model)


def _state(run: Run) -> str:
    if (run.folder / DONE).exists():
        return "finished"
    return "to go on" if (run.folder / "recipe.yaml").exists() else "to start"


def run_sweep(
    plan: Plan,
    out: Path,
    *,
    resume: bool,
    processes: int,
    options: Sequence[str] = (),
    start: Start = run_child,
) -> dict[str, Any]:
    """Run what is not finished, one run after the other, and return the table.

    Every run is an ordinary run folder, `out/VARIANT/seed-N`, its recipe beside it, and an evaluation in it;
    so it can be looked at, resumed and repeated by itself. One that fails does not keep the others from
    being run.

    Args:
        plan: The sweep.
        out: Folder for everything; gets `sweep.yaml` and, after each run, `table.json`.
        resume: Go on in a folder that holds a sweep: finished runs stay, others are resumed exactly.
        processes: Of each run.
        options: Words for each run's command line, e.g. `--gpus 8`.
        start: (words, log=…, result=…) -> exit status; runs one command.

    Returns:
        The table, see `vtune.runs.sweep_table.sweep_table`, and `failed`: what was tried in vain, each with
        `name`, `how` and `said`.

    Raises:
        VtuneError: Before anything starts, with what is wrong.
        SystemExit: 130 if a run was interrupted.
    """
    for recipe in plan.recipes.values():
        check_rl(recipe, world=processes)
    _check_held_out(plan)
    check_sweep_folder(plan, out, resume=resume, processes=processes)
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        write_whole(out / SWEEP, dump_recipe(plan.sweep))
        if plan.suite is not None:
            write_whole(out / HELD_OUT_SUITE, dump_recipe(plan.suite))
        runs = runs_of(plan, out)
        failed: list[dict[str, str]] = []
        for number, run in enumerate(runs, start=1):
            title = f"sweep: run {number} of {len(runs)}, {run.name}"
            for name, words, log, result in _commands(plan, run, out, options):
                say(f"{title}: {name}")
                code = start(words, log=log, result=result)
                if code:
                    failed.append({"name": f"{run.name}: {name}", "how": _how(code), "said": last_words(log)})
                    say(f"{title}: {name} {_how(code)}")
                    break
            table = sweep_table(out)
            write_whole(out / TABLE, json.dumps(table, indent=2, allow_nan=False) + "\n")
    return table | {"failed": failed}


def _commands(
    plan: Plan, run: Run, out: Path, options: Sequence[str]
) -> Iterator[tuple[str, list[str], Path, Path | None]]:
    """What is left to do for a run: what it is called, its words, its log, and where its result goes."""
    log = run.folder.with_name(f"{run.folder.name}.log")
    if not (run.folder / DONE).exists():
        run.folder.mkdir(parents=True, exist_ok=True)
        file = run.folder.with_name(f"{run.folder.name}.yaml")
        write_whole(file, dump_recipe(_seeded(plan.recipes[run.variant], run.seed)))
        words = ["rl", "--recipe", str(file), "--out", str(run.folder), "--json", *options]
        begun = (run.folder / "recipe.yaml").exists()
        yield "training", [*words, *(["--resume"] if begun else [])], log, run.folder / DONE
    if plan.suite is not None and not (run.evaluation / RESULTS).exists():
        model = run.folder / "checkpoints" / "newest"
        words = ["eval", "--suite", str(out / HELD_OUT_SUITE), "--model", str(model)]
        words += ["--out", str(run.evaluation), "--json"]
        begun = (run.evaluation / STARTED).exists()
        yield "evaluation", [*words, *(["--resume"] if begun else [])], log, None


def _seeded(recipe: RLRecipe, seed: int) -> RLRecipe:
    return recipe.model_copy(update={"seed": seed})


def _how(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"


def check_failed(failed: Sequence[Mapping[str, str]]) -> None:
    """Raise what failed in a sweep, after its table was shown.

    Raises:
        RunFailed: If anything did.
    """
    if failed:
        said = [f"{one['name']} {one['how']}:\n{one['said']}" for one in failed]
        raise RunFailed(
            "\n".join([f"{len(failed)} of the sweep's runs failed", *said]),
            fix="mend what they say; --resume tries them again, and repeats none that is finished",
        )
