"""`vtune demo`: the whole loop with a tiny model, or two rewards compared where pictures have a shortcut."""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from vtune.config import find, load_recipe
from vtune.data import lens
from vtune.errors import RecipeError
from vtune.files.json_text import read_record
from vtune.files.writing import check_folder_output, write_atomically
from vtune.models.tiny import build_tiny
from vtune.report.progress import say
from vtune.runs.data.lens import make_lens
from vtune.runs.evaluate.evaluation import run_eval
from vtune.runs.evaluate.identity import STARTED
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.processes.machines import gpus_here, places
from vtune.runs.sweep.recipe import OWN, load_sweep
from vtune.runs.sweep.runs import check_failed, run_sweep
from vtune.runs.sweep.table import SWEEP
from vtune.runs.train.loop import run_rl
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.runs.train.sft import run_sft
from vtune.runs.train.sft_recipe import SFTRecipe
from vtune.runs.view.page import write_page
from vtune.update.checkpoint import newest_checkpoint

LEVEL = 1
TRAIN, HELDOUT, TRACES = 1200, 256, 4000
"""Number of puzzles for reinforcement learning and for evaluation, and of cold-start traces."""

COMPARED = "shortcut"
"""The sweep that `compare` runs."""

COLUMNS = ("accuracy", "faithful_of_correct", "faithful_of_all", "tool_calls", "red_flags")

PAGE = "report.html"

RESTORE = "the demo wrote it; restore it, or remove the folder"


def run_demo(out: Path, *, seed: int, compare: bool, common: Sequence[str] = ()) -> dict[str, Any]:
    """Run what is not finished yet in `out`, and return the table.

    Every part has its own run folder; an interrupted demo resumes where it stopped.

    Args:
        out: Folder for everything.
        seed: Seed for the data, the weights and all sampling.
        compare: Train the same cold start once with the answer as the only reward and once with the
            evidence reward, in a world with a shortcut (CodeV, table 2).
        common: Overrides for both reinforcement learning and evaluation, e.g. the sandbox's tier.

    Returns:
        One entry per row of the table (`before_sft`, `after_sft`, `after_rl` and `after_rl_crop_black`), each
        with the numbers of `COLUMNS` and `n`; with `compare`, instead, `compared`, the table of the sweep
        (see `vtune.runs.sweep.table.sweep_table`); also `seed`, `seconds`, `folder` and `page`, the file to
        open.

    Raises:
        RecipeError: If the folder holds a demo with another seed or kind.
        RunFailed: If a part of a comparison fails.
    """
    _same_demo(out, {"seed": seed, "compare": compare})
    parts = _compared(out, seed, common) if compare else _whole_loop(out, seed, common)
    page = write_page([out / name for name in parts.shown], out / PAGE)
    result = {"seed": seed, **parts.found, "seconds": _seconds(out), "folder": str(out), "page": page["page"]}
    write_atomically(out / "demo.json", json.dumps(result, indent=2) + "\n")
    return result


class _Parts(NamedTuple):
    """What a demo has found, and the folders of its page."""

    found: dict[str, Any]
    shown: tuple[str, ...]
    """In the order of training, so that a film runs from beginning to end."""


def _whole_loop(out: Path, seed: int, common: Sequence[str]) -> _Parts:
    demo = _Demo(out, seed, tuple(common))
    tiny = demo.prepared()
    table = {"before_sft": demo.measured("before_sft", tiny)}
    sft = demo.taught(tiny)
    table["after_sft"] = demo.measured("after_sft", sft)
    rl = demo.reinforced("rl", sft)
    table["after_rl"] = demo.measured("after_rl", rl)
    table["after_rl_crop_black"] = demo.measured("after_rl_crop_black", rl, "call_images=black")
    return _Parts(table, ("sft", "rl", "eval/before_sft", "eval/after_sft", "eval/after_rl"))


def _compared(out: Path, seed: int, common: Sequence[str]) -> _Parts:
    """Run the sweep for one seed."""
    given = [f"{OWN}seeds=[{seed}]", *common]
    recipe = find("codev-tiny", "recipes.rl")
    plan = load_sweep(find(COMPARED, "recipes.sweep"), recipe, given, suite_overrides=common)
    # Train both rewards at the same time if there are two GPUs or cores.
    shares = places(min(len(plan.recipes), gpus_here() or len(os.sched_getaffinity(0))), 1)
    table = run_sweep(plan, out, resume=(out / SWEEP).exists(), processes=1, shares=shares)
    check_failed(table.pop("failed"))
    runs = [f"{row}/seed-{seed}" for row in table["variants"]]
    trained = [run for run in runs if (out / run / "checkpoints").exists()]
    evaluated = [f"{run}/eval/{suite}" for run in runs for suite in table["suites"]]
    return _Parts({"compared": table}, (*trained, *evaluated))


@dataclass(frozen=True, slots=True)
class _Demo:
    """The parts of a demo; each one runs unless it is finished."""

    out: Path
    seed: int
    common: tuple[str, ...]
    """Overrides for both reinforcement learning and evaluation."""

    def prepared(self) -> Path:
        """Make the data and the tiny model; return the model's folder."""
        began = time.monotonic()
        data, tiny = self.out / "data", self.out / "tiny"
        if not (data / "done.json").exists():
            say(f"making {TRAIN + HELDOUT} puzzles and {TRACES} traces")
            made = make_lens(
                data,
                train=TRAIN,
                heldout=HELDOUT,
                traces=TRACES,
                level=LEVEL,
                guessable=0.0,
                seed=self.seed,
            )
            write_atomically(
                data / "done.json", json.dumps({**made, "seconds": time.monotonic() - began}) + "\n"
            )
        if not (tiny / "processor_config.json").exists():
            build_tiny(tiny, lens.corpus(LEVEL, seed=self.seed), seed=self.seed)
        return tiny

    def taught(self, tiny: Path) -> Path:
        """The weights after the cold start."""
        given = [f"model={tiny}", f"data=[{self.out / 'data' / 'traces.parquet'}]", f"seed={self.seed}"]
        recipe = load_recipe(find("codev-tiny", "recipes.sft"), SFTRecipe, given)
        return _trained(self.out / "sft", partial(run_sft, recipe))

    def reinforced(self, name: str, sft: Path, *overrides: str) -> Path:
        """The weights after reinforcement learning."""
        data = self.out / "data" / "train.parquet"
        given = (f"model={sft}", f"data=[{data}]", f"seed={self.seed}", *self.common, *overrides)
        recipe = load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe, given)
        return _trained(self.out / name, partial(run_rl, recipe))

    def measured(self, name: str, model: Path, *overrides: str) -> dict[str, Any]:
        """A row of the table."""
        say(f"evaluating: {name.replace('_', ' ')}")
        data, given = self.out / "data" / "heldout.parquet", (*self.common, *overrides)
        return _measured(self.out / "eval" / name, str(model), data, self.seed, *given)


def _seconds(out: Path) -> float:
    """Total time of training and evaluation, however often the demo was interrupted in between."""
    parts = [*out.rglob("done.json"), *out.rglob("results.json"), *out.glob("prepared/*/cold-start.json")]
    return float(sum(read_record(part, "seconds", fix=RESTORE)["seconds"] for part in parts))


def _same_demo(out: Path, settings: Mapping[str, object]) -> None:
    """Create the folder, or check that it holds this same demo."""
    check_folder_output(out)
    file = out / "settings.json"
    if not file.exists():
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(settings) + "\n")
    elif (before := read_record(file, fix=RESTORE)) != settings:
        raise RecipeError(
            f"{out} holds a demo with {before}", fix="choose another --out, or remove the folder"
        )


def _trained(folder: Path, train: Callable[..., dict[str, Any]]) -> Path:
    """The weights of a finished run; it is started, or resumed, if it is not finished."""
    done = folder / "done.json"
    if not done.exists():
        say(f"training: {folder.name}")
        result = train(folder, resume=(folder / "recipe.yaml").exists())
        write_atomically(done, json.dumps(result, indent=2) + "\n")
    newest = newest_checkpoint(folder / "checkpoints")
    if newest is None:
        raise RecipeError(f"{folder} has no checkpoint", fix="remove the folder and run the demo again")
    return newest


def _measured(folder: Path, model: str, data: Path, seed: int, *overrides: str) -> dict[str, Any]:
    """One row of the table."""
    results = folder / "results.json"
    if not results.exists():
        given = (f"data=[{data}]", f"seed={seed}", *overrides)
        suite = load_recipe(find("lens", "eval_suites"), EvalSuite, given)
        run_eval(suite, model, folder, limit=None, resume=(folder / STARTED).exists())
    found = read_record(results, "faithfulness", fix=RESTORE)["faithfulness"]
    row: dict[str, Any] = {name: found[name]["value"] if found[name] else None for name in COLUMNS}
    row["n"] = found["n"]
    row["intervals"] = {name: [found[name]["low"], found[name]["high"]] for name in COLUMNS if found[name]}
    return row
