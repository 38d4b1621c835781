"""The results of a sweep, read from its folder: means over seeds with intervals, and paired differences."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from vtune.config import read_values
from vtune.errors import DataError
from vtune.metrics.power import shown_by
from vtune.metrics.seeds import INTERVAL, SeedMean, over_seeds
from vtune.runs.sweep.numbers import (
    HELD_OUT,
    OWN_REWARD,
    RESULTS,
    TRAINING,
    Numbers,
    of_evaluation,
    of_training,
)
from vtune.runs.sweep.placeholders import OF_RUNS, differences, marks, rows
from vtune.runs.sweep.questions import Items, by_questions, items_of

SWEEP = "sweep.yaml"
"""File that marks a sweep's folder."""
TABLE = "table.json"
DONE = "done.json"
"""File in the folder of a finished run: its result."""
BY_QUESTIONS = "of a single evaluation's faithfulness: over its independent questions"


class Run(NamedTuple):
    """One run of a sweep."""

    variant: str
    seed: int | None
    """None: a model evaluated without training, for which the seed does not matter."""
    folder: Path
    trained: bool = True
    """False: it is only evaluated."""

    @property
    def name(self) -> str:
        """Its name for people: the path of its folder inside the sweep's folder."""
        return self.variant if self.seed is None else f"{self.variant}/seed-{self.seed}"

    def evaluation(self, suite: str) -> Path:
        """The folder of its evaluation on a suite."""
        return self.folder / "eval" / suite


@dataclass(frozen=True, slots=True)
class Found:
    """The numbers of one run."""

    training: Numbers = field(default_factory=dict)
    held_out: Mapping[str, Numbers] = field(default_factory=dict)
    """By suite."""
    no_shares: Mapping[str, str] = field(default_factory=dict)
    """Suite -> why there is no share of faithful answers."""
    items: Mapping[str, Items] = field(default_factory=dict)
    """Suite -> its questions."""


def is_sweep(path: Path) -> bool:
    """Whether a folder is that of a sweep."""
    return (path / SWEEP).is_file()


def sweep_table(path: Path) -> dict[str, Any]:
    """The numbers of a sweep's finished runs.

    For training, means over the last steps: `accuracy`, the share of answers with full marks; the reward
    parts, unweighted, custom ones as `own reward, NAME`; `entropy` per token in nats; `tool calls` per
    rollout; `call errors`, the share of the calls in these steps that failed through the model's fault;
    `correctable calls` of failing conversations, if credit is transferred; for boxes `iou@50` to `iou@99` and
    `ap`; `gradient norm` before clipping, in total and per part. Over all steps: `accuracy, all steps`, the
    mean (an area under the curve), `largest fall`, of the accuracy reward from a mean of the same number of
    steps to a later one, and `minutes`.

    For each suite: `accuracy`, its score, with `fsp` and `fcp` for HR-Bench; for boxes as above; for
    questions that need a look `faithful` (right and faithful, of all: CodeV's Table 5), `faithful of right`
    (algorithm 1) and `tool calls`; and habits, as shares of all: `no look`, `whole picture`, `look beside`;
    where a cue gives a wrong answer, `by cue` is the share that follows it, and `by cue after a look` the
    share among those whose look shows the target. If it is unknown what calls showed, they are None, and
    `no_shares` says why.

    Args:
        path: The sweep's folder.

    Returns:
        `name`, `path`, `interval` (the method), `last_steps`, `suites`; `variants`: name -> `seeds` (number
        of finished runs; None for an untrained model, which is the same for every seed), each number as
        `value`, `low`, `high` (None with one seed, or if all are equal), `n`, the number of runs that have
        it, and their `values` by seed (None if no run has it), and `held_out`: suite -> the same;
        `differences`: `A - B` -> the same for differences seed by seed, and `shown`, the smallest true
        difference that this many seeds, varying this much, detect in 80 of 100 sweeps (None without an
        interval); accuracy on a suite also has `by_questions`, with `value`, `low` and `high` over the
        questions of all seeds (None if a score is not their mean), and `shown` then uses the larger of the
        two spreads; `runs`: name -> `training` and `held_out` of each run; `unfinished`: runs and evaluations
        that are missing.

    Raises:
        DataError: If a file in the folder is broken, or the sweep is older than suites in its table.
    """
    sweep = _settings(path / SWEEP)
    suites = [str(one.get("name") or Path(one["suite"]).stem) for one in sweep["held_out"]]
    by_row, unfinished = _finished(path, sweep, suites)
    return {
        "name": path.resolve().name,
        "path": str(path),
        "interval": f"{INTERVAL}; {BY_QUESTIONS}" if suites else INTERVAL,
        "last_steps": sweep["last_steps"],
        "suites": suites,
        "variants": {
            variant: {"seeds": None if None in found else len(found)} | _row(list(found.values()), suites)
            for variant, found in by_row.items()
        },
        "differences": {
            f"{first} - {second}": _difference_row(by_row[first], by_row[second], suites)
            for first, second in differences(sweep["differences"], sweep["axes"])
        },
        "runs": {
            Run(variant, seed, path).name: _numbers_of(found)
            for variant, of_seeds in by_row.items()
            for seed, found in of_seeds.items()
        },
        "unfinished": unfinished,
    }


def _finished(
    path: Path, sweep: Mapping[str, Any], suites: Sequence[str]
) -> tuple[dict[str, dict[int | None, Found]], list[str]]:
    """Variant -> seed -> the numbers of its finished run, and the names of what is not finished."""
    axes, untrained = sweep["axes"], sweep["untrained"]
    filled = [sweep["held_out"], [(one["model"], one["settings"]) for one in untrained.values()]]
    once = not marks(filled) & {*OF_RUNS}
    runs = [Run(name, None, path / name, trained=False) for name, *_ in rows(untrained, axes) if once] + [
        Run(name, seed, path / name / f"seed-{seed}", trained=of in sweep["variants"])
        for name, of, _ in (*(() if once else rows(untrained, axes)), *rows(sweep["variants"], axes))
        for seed in sweep["seeds"]
    ]
    found: dict[str, dict[int | None, Found]] = {run.variant: {} for run in runs}
    unfinished: list[str] = []
    for run in runs:
        missing = [suite for suite in suites if not _evaluated(run, suite)]
        if run.trained and not (run.folder / DONE).exists():
            unfinished.append(run.name)
            continue
        unfinished += [f"{run.name}/eval/{suite}" for suite in missing]
        if run.trained or len(missing) < len(suites):
            found[run.variant][run.seed] = _found(run, suites, sweep["last_steps"])
    return found, unfinished


def variants_of(folder: Path) -> list[str]:
    """Names of the variants and untrained models of the sweep in a folder; empty if there is no sweep.

    Raises:
        DataError: If its file cannot be read.
    """
    if not is_sweep(folder):
        return []
    sweep = _settings(folder / SWEEP)
    return [*sweep["variants"], *sweep["untrained"]]


def _settings(file: Path) -> dict[str, Any]:
    sweep = read_values(file, fix="restore the file as the sweep wrote it")
    if not isinstance(sweep, dict) or {"variants", "seeds", "last_steps", "held_out"} - set(sweep):
        raise DataError("not the settings of a sweep", where=str(file), fix="the sweep wrote it; restore it")
    for key, without in (("differences", []), ("axes", {}), ("untrained", {})):
        sweep[key] = sweep.get(key) or without
    if not isinstance(sweep["held_out"], list):
        raise DataError(
            "the sweep was made before there were tables of several suites",
            where=str(file),
            fix="report its runs one by one, or run it again with `held_out` as a list",
        )
    return sweep


def _evaluated(run: Run, suite: str) -> bool:
    return (run.evaluation(suite) / RESULTS).exists()


def _found(run: Run, suites: Sequence[str], last_steps: int) -> Found:
    evaluations = {suite: of_evaluation(run.evaluation(suite)) for suite in suites if _evaluated(run, suite)}
    return Found(
        training={} if not run.trained else of_training(run.folder, last_steps),
        held_out={suite: numbers for suite, (numbers, _) in evaluations.items()},
        no_shares={suite: why for suite, (_, why) in evaluations.items() if why},
        items={suite: items_of(run.evaluation(suite)) for suite in evaluations},
    )


def _row(runs: Sequence[Found], suites: Sequence[str], *, paired: bool = False) -> dict[str, Any]:
    """The mean of each number over runs, or over pairs of them."""
    own = dict.fromkeys(name for run in runs for name in run.training if name.startswith(OWN_REWARD))
    row: dict[str, Any] = _means([run.training for run in runs], (*TRAINING, *own), paired=paired)
    row["held_out"] = {
        suite: {
            **_means([run.held_out.get(suite, {}) for run in runs], HELD_OUT, paired=paired),
            "no_shares": next((run.no_shares[suite] for run in runs if suite in run.no_shares), None),
        }
        for suite in suites
    }
    return row


def _means(runs: Sequence[Numbers], names: Sequence[str], *, paired: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        there = [run[name] for run in runs if name in run]
        values = [number.value for number in there]
        # A single value keeps its own interval.
        mean = there[0] if len(there) == 1 else over_seeds(values)
        found[name] = (asdict(mean) | {"values": values}) if mean else None
        if mean and paired:
            found[name]["shown"] = shown_by(values)
    return found


def _difference_row(
    first: Mapping[int | None, Found], second: Mapping[int | None, Found], suites: Sequence[str]
) -> dict[str, Any]:
    """Differences over the seeds that both have; an untrained model is paired with every seed."""
    seeds = [seed for seed in first if seed in second or None in second]
    if None in first:
        seeds = list(second)
    nothing = Found()
    pairs = [
        (first.get(seed, first.get(None, nothing)), second.get(seed, second.get(None, nothing)))
        for seed in seeds
    ]
    row = _row([_difference(*pair) for pair in pairs], suites, paired=True)
    for suite in suites:
        accuracy = row["held_out"][suite]["accuracy"]
        if accuracy is not None:
            both = [
                (a.items[suite], b.items[suite]) for a, b in pairs if suite in a.items and suite in b.items
            ]
            over = by_questions(both, accuracy["values"])
            accuracy["by_questions"] = asdict(over) if over else None
            accuracy["shown"] = shown_by(accuracy["values"], over=over)
    return {"seeds": len(pairs)} | row


def _difference(first: Found, second: Found) -> Found:
    return Found(
        training=_less(first.training, second.training),
        held_out={
            suite: _less(numbers, second.held_out.get(suite, {})) for suite, numbers in first.held_out.items()
        },
        no_shares={**second.no_shares, **first.no_shares},
    )


def _less(first: Numbers, second: Numbers) -> Numbers:
    return {
        name: SeedMean(number.value - second[name].value, None, None, 1)
        for name, number in first.items()
        if name in second
    }


def _numbers_of(found: Found) -> dict[str, Any]:
    """The numbers of one run."""
    return {
        "training": {name: number.value for name, number in found.training.items()},
        "held_out": {
            suite: {name: number.value for name, number in numbers.items()}
            for suite, numbers in found.held_out.items()
        },
    }
