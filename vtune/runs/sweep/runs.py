"""The runs of a sweep: each an ordinary run folder with its evaluations."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vtune.config import dump_recipe
from vtune.differences import both, differing_keys, with_values
from vtune.errors import DataError, RecipeError, RunFailed
from vtune.files.json_text import read_record
from vtune.files.writing import check_folder_output, write_atomically
from vtune.metrics.power import power_of
from vtune.models.policy import load_chat
from vtune.models.shape import local_config
from vtune.runs.evaluate.evaluation import check_eval, judged_as_shown
from vtune.runs.evaluate.identity import STARTED, suite_as_today
from vtune.runs.evaluate.questions import fingerprints
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.folder import MAY_CHANGE, check_same_run
from vtune.runs.kept_uses import check_uses, keep_uses
from vtune.runs.moved import by_content, index_prints
from vtune.runs.processes.child import Child
from vtune.runs.start import locked
from vtune.runs.sweep.jobs import Job, Jobs, StartChild
from vtune.runs.sweep.numbers import RESULTS
from vtune.runs.sweep.placeholders import PREPARED
from vtune.runs.sweep.preparing import Command, preparations, prepared_in
from vtune.runs.sweep.recipe import SUITES, Plan
from vtune.runs.sweep.table import DONE, SWEEP, TABLE, Run, sweep_table
from vtune.runs.train.rl import check_rl, suites_of
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.schema.parquet import fingerprint

TRAINING = "training"
"""Name of the command without which there is nothing to evaluate."""


def runs_of(plan: Plan, out: Path) -> list[Run]:
    """Every run, in the order in which they are done: untrained models, then all variants, seed by seed."""
    sweep = plan.sweep
    once = () if sweep.by_seed else plan.untrained
    return [Run(name, None, out / name, trained=False) for name in once] + [
        Run(name, seed, out / name / f"seed-{seed}", trained=name in plan.recipes)
        for seed in sweep.seeds
        for name in (*(plan.untrained if sweep.by_seed else ()), *plan.recipes)
    ]


def check_sweep_folder(plan: Plan, out: Path, *, resume: bool, processes: int) -> None:
    """Check that a sweep can begin in a folder, or continue with its content.

    Variants and seeds may be added and removed.

    Raises:
        RecipeError: If the folder holds a sweep without `resume`, or no sweep with it; if a run in it was
            started, or an evaluation finished, with other settings.
        DataError: If it was with other data.
    """
    check_folder_output(out)
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
    prints: dict[str, str] = {}
    for run in runs_of(plan, out):
        if run.trained and (run.folder / "recipe.yaml").exists():
            recipe = _recipe(plan, run, out)
            for file in recipe.data:
                if file not in prints and Path(file).is_file():
                    prints[file] = fingerprint(Path(file))
            own = {file: prints[file] for file in recipe.data if file in prints}
            _check_same_training(run.folder, recipe, own, processes=processes)
        for name, suite in _suites(plan, run, out).items():
            if (run.evaluation(name) / RESULTS).exists():
                _check_same_evaluation(run.evaluation(name), suite, _start(plan, run, out))


def _recipe(plan: Plan, run: Run, out: Path) -> RLRecipe:
    assert run.seed is not None
    return plan.recipe_of(run.variant, run.seed, prepared_in(out, run.seed))


def _suites(plan: Plan, run: Run, out: Path) -> Mapping[str, EvalSuite]:
    return plan.suites_of(run.variant, run.seed, prepared_in(out, run.seed))


def _start(plan: Plan, run: Run, out: Path) -> str | None:
    """The model of a run without training; None for others."""
    return None if run.trained else plan.model_of(run.variant, run.seed, prepared_in(out, run.seed))


def _check_same_training(
    folder: Path, recipe: RLRecipe, prints: Mapping[str, str], *, processes: int
) -> None:
    """Check that a run matches the current settings; if not, only this run has to be removed."""
    try:
        check_same_run(folder, recipe, prints, processes=processes, uses=recipe.uses)
    except (RecipeError, DataError) as error:
        anew = f"set that back, or remove {folder} to do this run anew"
        raise type(error)(error.what, where=error.where, fix=anew) from None


def _check_same_evaluation(folder: Path, suite: EvalSuite, model: str | None) -> None:
    """Check that an evaluation matches the current settings; `model` is given if it is untrained."""
    results = read_record(folder / RESULTS, "suite", "environment", fix="the evaluation wrote it; restore it")
    now = judged_as_shown(suite).model_dump(mode="json")
    before = suite_as_today(results["suite"], now)
    indexes = (results["environment"].get("indexes", {}), index_prints(suite))
    changed = by_content([key for key in differing_keys(before, now) if key not in MAY_CHANGE], *indexes)
    anew = "set it back, or remove the folders `eval` to evaluate all runs anew"
    if changed:
        raise RecipeError(
            f"the suite is not the one of {folder}; it differs in {with_values(both(changed, before, now))}",
            fix=anew,
        )
    check_uses(results["environment"].get("uses", {}), folder, named=suite.uses)
    if results["environment"]["data"] != fingerprints(suite):
        raise DataError(
            f"{folder} was evaluated on other data",
            fix="put them back, or remove the folders `eval` to evaluate all runs anew",
        )
    if model is not None and results["model"] != model:
        raise RecipeError(f"{folder} is about the model {results['model']}, not {model}", fix=anew)


def plan_sweep(
    plan: Plan,
    out: Path,
    *,
    check: Callable[[RLRecipe], dict[str, Any]],
    resume: bool,
    processes: int,
    begin: bool = True,
) -> dict[str, Any]:
    """What a dry run reports: each variant's plan, and what would happen to each run.

    Args:
        plan: The sweep.
        out: Its folder.
        check: Returns the plan of one recipe.
        resume: Whether the sweep in the folder would be continued.
        processes: Processes per run.
        begin: Whether a sweep will begin or continue in this folder; if not, its content is not checked.

    Raises:
        VtuneError: Lists the problems found.
    """
    check_folder_output(out)
    variants = {}
    for run in _firsts(plan, out):
        if run.trained:
            facts = check(_recipe(plan, run, out))
            facts["missing"] = _without_prepared(facts["missing"], out)
            variants[run.variant] = facts
    missing = _without_prepared(_missing(plan, out), out)
    if not missing and not any(facts["missing"] for facts in variants.values()):
        if begin:
            check_sweep_folder(plan, out, resume=resume, processes=processes)
        _check_held_out(plan, out)
    states = {run.name: _state(plan, run, out) for run in runs_of(plan, out)}
    return {
        "variants": variants,
        "runs": states,
        "missing": missing,
        "power": power_of(plan.sweep.spread, len(plan.sweep.seeds)),
    }


def _firsts(plan: Plan, out: Path) -> list[Run]:
    """The first run of each row, which represents all seeds in checks before the start."""
    return list({run.variant: run for run in reversed(runs_of(plan, out))}.values())[::-1]


def _is_to_come(name: str, out: Path) -> bool:
    """Whether a file or folder will be made by the sweep itself and does not exist yet."""
    return Path(name).is_relative_to(out / PREPARED) and not Path(name).exists()


def _without_prepared(missing: Sequence[str], out: Path) -> list[str]:
    """The missing items of a plan, except those that the sweep makes itself."""
    kinds = ("data file ", "model ")
    return [
        name
        for name in missing
        if not any(name.startswith(kind) and _is_to_come(name.removeprefix(kind), out) for kind in kinds)
    ]


def _missing(plan: Plan, out: Path) -> list[str]:
    """What evaluations would lack; what variants need is reported with them."""
    runs = _firsts(plan, out)
    suites = [suite for run in runs for suite in _suites(plan, run, out).values()]
    files = dict.fromkeys(name for suite in suites for name in suite.data if not Path(name).exists())
    starts = [start for run in runs if (start := _start(plan, run, out)) is not None]
    models = dict.fromkeys(model for model in starts if not Path(model).is_dir() and not local_config(model))
    return [f"data file {name}" for name in files] + [f"model {name}" for name in models]


def _check_held_out(plan: Plan, out: Path) -> None:
    """Check that the evaluations can run; what is prepared later is checked by the evaluation itself."""
    read: list[EvalSuite] = []
    for run in _firsts(plan, out):
        # Future policies have the tokenizer of the model they start from.
        model = _start(plan, run, out) or _recipe(plan, run, out).model
        if _is_to_come(model, out):
            continue
        load_chat(model)
        for suite in _suites(plan, run, out).values():
            if suite not in read and not any(_is_to_come(name, out) for name in suite.data):
                check_eval(suite, model)  # reads all of its data
                read.append(suite)


def _state(plan: Plan, run: Run, out: Path) -> str:
    suites = _suites(plan, run, out)
    if run.trained:
        finished, begun = (run.folder / DONE).exists(), (run.folder / "recipe.yaml").exists()
    else:
        finished = all((run.evaluation(name) / RESULTS).exists() for name in suites)
        begun = any((run.evaluation(name) / STARTED).exists() for name in suites)
    if finished:
        return "finished"
    return "to continue" if begun else "to start"


def run_sweep(
    plan: Plan,
    out: Path,
    *,
    resume: bool,
    processes: int,
    options: Sequence[str] = (),
    shares: Sequence[Mapping[str, str]] = ({},),
    start: StartChild = Child,
) -> dict[str, Any]:
    """Run what is not finished, and return the table.

    Every run is an ordinary run folder, `out/VARIANT/seed-N`, with its recipe beside it and an evaluation on
    each suite inside, `eval/SUITE`; an untrained model only has evaluations, in `out/NAME/eval/SUITE`. So
    each can be viewed, resumed and repeated separately. A failing run does not prevent the others.

    Args:
        plan: The sweep.
        out: Folder for everything; gets `sweep.yaml` and, after each run, `table.json`.
        resume: Continue in a folder that holds a sweep: finished runs stay, others are resumed exactly.
        processes: Processes per run.
        options: Words for each run's command line, e.g. `--gpus 8`.
        shares: Environment of each of the concurrent runs, see `machines.places`.
        start: Starts one command.

    Returns:
        The table, see `vtune.runs.sweep.table.sweep_table`, and `failed`: what failed, each with `name`,
        `how` and `said`.

    Raises:
        VtuneError: If something is wrong, before anything starts.
        SystemExit: 130 if a run was interrupted.
    """
    for run in _firsts(plan, out):
        recipe = _recipe(plan, run, out) if run.trained else None
        if recipe is not None and not any(_is_to_come(name, out) for name in (recipe.model, *recipe.data)):
            check_rl(recipe, suites_of(recipe), world=processes)
    _check_held_out(plan, out)
    check_sweep_folder(plan, out, resume=resume, processes=processes)
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        write_atomically(out / SWEEP, dump_recipe(keep_uses(plan.sweep, out)))
        if not plan.sweep.suites_by_run:
            _write_suites(out / SUITES, plan.suites)
        runs = runs_of(plan, out)
        jobs = [
            Job(run, f"sweep: run {number} of {len(runs)}, {run.name}", _commands(plan, run, out, options))
            for number, run in enumerate(runs, start=1)
        ]
        failed = Jobs(jobs, shares, start=start, ended=lambda run: _write_table(out)).run()
        table = _write_table(out)
    return table | {"failed": failed}


def _write_table(out: Path) -> dict[str, Any]:
    table = sweep_table(out)
    write_atomically(out / TABLE, json.dumps(table, indent=2, allow_nan=False) + "\n")
    return table


def _write_suites(folder: Path, suites: Mapping[str, EvalSuite]) -> None:
    for name, suite in suites.items():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{name}.yaml", dump_recipe(suite))


def _commands(plan: Plan, run: Run, out: Path, options: Sequence[str]) -> Iterator[Command]:
    """The remaining commands of a run."""
    log = run.folder.with_name(f"{run.folder.name}.log")
    if run.seed is not None:
        at, read = plan.at[run.variant], plan.read_by(run.variant)
        yield from preparations(plan.sweep.prepare, at, run.seed, out, read)
    if not run.trained:
        log = run.folder / "eval.log"
    elif not (run.folder / DONE).exists():
        run.folder.mkdir(parents=True, exist_ok=True)
        file = run.folder.with_name(f"{run.folder.name}.yaml")
        write_atomically(file, dump_recipe(_recipe(plan, run, out)))
        words = ["rl", "--recipe", str(file), "--out", str(run.folder), "--json", *options]
        begun = (run.folder / "recipe.yaml").exists()
        yield Command(TRAINING, [*words, *(["--resume"] if begun else [])], log, run.folder / DONE, True)
    model = _start(plan, run, out) or str(run.folder / "checkpoints" / "newest")
    suites = out / SUITES
    if plan.sweep.suites_by_run or not run.trained:
        suites = run.folder / SUITES
        _write_suites(suites, _suites(plan, run, out))
    for name in _suites(plan, run, out):
        folder = run.evaluation(name)
        if (folder / RESULTS).exists():
            continue
        words = ["eval", "--suite", str(suites / f"{name}.yaml"), "--model", model]
        words += ["--out", str(folder), "--json"]
        begun = (folder / STARTED).exists()
        yield Command(f"evaluation on {name}", [*words, *(["--resume"] if begun else [])], log, None)


def check_failed(failed: Sequence[Mapping[str, str]]) -> None:
    """Raise what failed in a sweep, after its table was shown.

    Raises:
        RunFailed: If anything did.
    """
    if failed:
        said = [f"{one['name']} {one['how']}:\n{one['said']}" for one in failed]
        raise RunFailed(
            "\n".join([f"{len(failed)} of the sweep's runs failed", *said]),
            fix="fix what they report (if that changes their settings, remove their folders as well); "
            "--resume tries them again, and repeats no finished one",
        )
