"""The runs of a sweep: one after the other, each an ordinary run folder with its evaluations."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vtune.config import differing_keys, dump_recipe
from vtune.errors import DataError, RecipeError, RunFailed
from vtune.files.json_text import read_record
from vtune.files.writing import write_atomically
from vtune.models.policy import load_chat
from vtune.models.shape import local_file
from vtune.report.progress import say
from vtune.runs.evaluate.begun import STARTED, suite_as_today
from vtune.runs.evaluate.evaluation import check_eval, judged_as_shown
from vtune.runs.evaluate.questions import fingerprints
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.folder import MAY_CHANGE, check_folder, check_same_run, check_uses, keep_uses, locked
from vtune.runs.processes.child import last_words, run_child
from vtune.runs.sweep.recipe import SUITES, Plan, Start
from vtune.runs.sweep.table import DONE, RESULTS, SWEEP, TABLE, Run, sweep_table
from vtune.runs.train.rl import RLRecipe, check_rl
from vtune.schema.parquet import fingerprint

StartChild = Callable[..., int]
"""`run_child`, or what takes its place in a test."""

TRAINING = "training"
"""Name of the command without which there is nothing to evaluate."""


class Command(NamedTuple):
    """One command of a run."""

    name: str
    words: list[str]
    log: Path
    result: Path | None
    """Where its result goes; None where it writes that itself."""


def runs_of(plan: Plan, out: Path) -> list[Run]:
    """Every run, in the order in which they are done: untrained models, then all variants, seed by seed."""
    return [Run(name, None, out / name) for name in plan.untrained] + [
        Run(variant, seed, out / variant / f"seed-{seed}")
        for seed in plan.sweep.seeds
        for variant in plan.sweep.variants
    ]


def check_sweep_folder(plan: Plan, out: Path, *, resume: bool, processes: int) -> None:
    """Check that a sweep can begin in a folder, or continue in it with what is there.

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
    for run in runs_of(plan, out):
        if run.seed is not None and (run.folder / "recipe.yaml").exists():
            recipe = _seeded(plan.recipes[run.variant], run.seed)
            check_same_run(run.folder, recipe, prints[run.variant], processes=processes, uses=recipe.uses)
        for name, suite in plan.suites_of(run.variant).items():
            if (run.evaluation(name) / RESULTS).exists():
                _check_same_evaluation(run.evaluation(name), suite, plan.untrained.get(run.variant))


def _check_same_evaluation(folder: Path, suite: EvalSuite, start: Start | None) -> None:
    """Check that an evaluation is the one that would be made now; `start` where its model is not trained."""
    results = read_record(folder / RESULTS, "suite", "environment", fix="the evaluation wrote it; restore it")
    now = judged_as_shown(suite).model_dump(mode="json")
    before = suite_as_today(results["suite"], now)
    changed = [key for key in differing_keys(before, now) if key not in MAY_CHANGE]
    anew = "set it back, or remove the folders `eval` to evaluate all runs anew"
    if changed:
        raise RecipeError(
            f"the suite is not the one of {folder}; it differs in {', '.join(changed)}", fix=anew
        )
    check_uses(results["environment"].get("uses", {}), folder, named=suite.uses)
    if results["environment"]["data"] != fingerprints(suite):
        raise DataError(
            f"{folder} was evaluated on other data",
            fix="put them back, or remove the folders `eval` to evaluate all runs anew",
        )
    if start is not None and results["model"] != start.model:
        raise RecipeError(f"{folder} is of the model {results['model']}, not of {start.model}", fix=anew)


def plan_sweep(
    plan: Plan,
    out: Path,
    *,
    check: Callable[[RLRecipe], dict[str, Any]],
    resume: bool,
    processes: int,
    begin: bool = True,
) -> dict[str, Any]:
    """What a dry run reports: each variant's own plan, and what would become of each run.

    Args:
        plan: The sweep.
        out: Its folder.
        check: The plan of one recipe.
        resume: Whether the sweep in the folder would be continued.
        processes: Of each run.
        begin: Whether a sweep is to begin, or continue, in just this folder: else nobody minds what is in it.

    Raises:
        VtuneError: With the problems found.
    """
    variants = {name: check(recipe) for name, recipe in plan.recipes.items()}
    missing = _missing(plan)
    if not missing and not any(facts["missing"] for facts in variants.values()):
        if begin:
            check_sweep_folder(plan, out, resume=resume, processes=processes)
        _check_held_out(plan)
    states = {run.name: _state(plan, run) for run in runs_of(plan, out)}
    return {"variants": variants, "runs": states, "missing": missing}


def _missing(plan: Plan) -> list[str]:
    """What evaluations would not find; what the variants want to be there is reported with them."""
    suites = [*plan.suites.values(), *(s for start in plan.untrained.values() for s in start.suites.values())]
    files = dict.fromkeys(name for suite in suites for name in suite.data if not Path(name).exists())
    models = dict.fromkeys(
        start.model
        for start in plan.untrained.values()
        if not Path(start.model).is_dir() and not local_file(start.model, "config.json")
    )
    return [f"data file {name}" for name in files] + [f"model {name}" for name in models]


def _check_held_out(plan: Plan) -> None:
    # The policies to come have the tokenizer of the one that they start from.
    starts = [Start(recipe.model, plan.suites) for recipe in plan.recipes.values()]
    read: list[EvalSuite] = []
    for start in (*starts, *plan.untrained.values()):
        load_chat(start.model)
        for suite in start.suites.values():
            if suite not in read:  # all its data are read
                check_eval(suite, start.model)
                read.append(suite)


def _state(plan: Plan, run: Run) -> str:
    suites = plan.suites_of(run.variant)
    if run.seed is not None:
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
    start: StartChild = run_child,
) -> dict[str, Any]:
    """Run what is not finished, one run after the other, and return the table.

    Every run is an ordinary run folder, `out/VARIANT/seed-N`, its recipe beside it, and an evaluation on each
    suite in it, `eval/SUITE`; an untrained model has the evaluations alone, in `out/NAME/eval/SUITE`. So
    each can be looked at, resumed and repeated by itself. One that fails does not keep the others from being
    run.

    Args:
        plan: The sweep.
        out: Folder for everything; gets `sweep.yaml` and, after each run, `table.json`.
        resume: Continue in a folder that holds a sweep: finished runs stay, others are resumed exactly.
        processes: Of each run.
        options: Words for each run's command line, e.g. `--gpus 8`.
        start: (words, log=…, result=…) -> exit status; runs one command.

    Returns:
        The table, see `vtune.runs.sweep.table.sweep_table`, and `failed`: what was tried in vain, each with
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
        write_atomically(out / SWEEP, dump_recipe(keep_uses(plan.sweep, out)))
        _write_suites(out / SUITES, plan.suites)
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
                    if name == TRAINING:
                        break
            table = sweep_table(out)
            write_atomically(out / TABLE, json.dumps(table, indent=2, allow_nan=False) + "\n")
    return table | {"failed": failed}


def _write_suites(folder: Path, suites: Mapping[str, EvalSuite]) -> None:
    for name, suite in suites.items():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{name}.yaml", dump_recipe(suite))


def _commands(plan: Plan, run: Run, out: Path, options: Sequence[str]) -> Iterator[Command]:
    """What is left to do for a run."""
    log = run.folder.with_name(f"{run.folder.name}.log")
    suites = out / SUITES
    model = str(run.folder / "checkpoints" / "newest")
    if run.seed is None:
        log, suites, model = run.folder / "eval.log", run.folder / SUITES, plan.untrained[run.variant].model
        _write_suites(suites, plan.suites_of(run.variant))
    elif not (run.folder / DONE).exists():
        run.folder.mkdir(parents=True, exist_ok=True)
        file = run.folder.with_name(f"{run.folder.name}.yaml")
        write_atomically(file, dump_recipe(_seeded(plan.recipes[run.variant], run.seed)))
        words = ["rl", "--recipe", str(file), "--out", str(run.folder), "--json", *options]
        begun = (run.folder / "recipe.yaml").exists()
        yield Command(TRAINING, [*words, *(["--resume"] if begun else [])], log, run.folder / DONE)
    for name in plan.suites_of(run.variant):
        folder = run.evaluation(name)
        if (folder / RESULTS).exists():
            continue
        words = ["eval", "--suite", str(suites / f"{name}.yaml"), "--model", model]
        words += ["--out", str(folder), "--json"]
        begun = (folder / STARTED).exists()
        yield Command(f"evaluation on {name}", [*words, *(["--resume"] if begun else [])], log, None)


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
            fix="fix what they say; --resume tries them again, and repeats none that is finished",
        )
