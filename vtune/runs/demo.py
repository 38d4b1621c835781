"""The whole loop on one machine: puzzles, a tiny model, a cold start, RL, evaluation, audit."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vtune.config import find, load_recipe
from vtune.data import lens
from vtune.errors import RecipeError
from vtune.files.json_text import read_record
from vtune.models.tiny import build_tiny
from vtune.report.progress import say
from vtune.runs.data.lens import make_lens
from vtune.runs.evaluate.evaluation import STARTED, EvalSuite, run_eval
from vtune.runs.folder import check_folder, write_whole
from vtune.runs.train.loop import run_rl
from vtune.runs.train.rl import RLRecipe
from vtune.runs.train.sft import SFTRecipe, run_sft
from vtune.update.checkpoint import newest_checkpoint

LEVEL = 1
TRAIN, HELDOUT, TRACES = 1200, 256, 4000
"""Puzzles for reinforcement training, for evaluation, and cold-start traces."""

GUESSABLE = 0.5
"""With `compare`: share of questions that can be answered without a look."""

COLUMNS = ("accuracy", "faithful_of_correct", "faithful_of_all", "tool_calls", "red_flags")

RESTORE = "the demo wrote it; restore it, or remove the folder"

ACCURACY_ONLY = ("reward.tool=0.0",)
"""CodeV table 2, first row: what `compare` takes away from the reward; the format part stays in both."""


def run_demo(out: Path, *, seed: int, compare: bool, common: Sequence[str] = ()) -> dict[str, Any]:
    """Run what is not done yet in `out`, and return the table.

    Every part is a run folder of its own; an interrupted demo goes on where it stopped.

    Args:
        out: Folder for everything.
        seed: Of the data, the weights and every draw.
        compare: Train the same cold start once with the answer as the only reward and once with the
            evidence reward, on a mix in which half of the questions can be guessed (CodeV, table 2).
        common: Overrides for reinforcement training and evaluation alike, e.g. the sandbox's tier.

    Returns:
        One entry a row of the table (`before_sft`, `after_sft`, then `after_rl` and `after_rl_crop_black`,
        or with `compare` `accuracy_only` and `evidence`), each with the numbers of `COLUMNS` and `n`;
        besides `seed`, `seconds` and `folder`.

    Raises:
        RecipeError: If the folder holds a demo with another seed or kind.
    """
    _same_demo(out, {"seed": seed, "compare": compare})
    began = time.monotonic()
    data, tiny = out / "data", out / "tiny"
    guessable = GUESSABLE if compare else 0.0
    if not (data / "done.json").exists():
        say(f"making {TRAIN + HELDOUT} puzzles and {TRACES} traces")
        made = make_lens(
            data, train=TRAIN, heldout=HELDOUT, traces=TRACES, level=LEVEL, guessable=guessable, seed=seed
        )
        write_whole(data / "done.json", json.dumps({**made, "seconds": time.monotonic() - began}) + "\n")
    if not (tiny / "processor_config.json").exists():
        build_tiny(tiny, lens.corpus(LEVEL, seed=seed), seed=seed)

    def measure(name: str, model: Path, *overrides: str) -> dict[str, Any]:
        say(f"evaluating: {name.replace('_', ' ')}")
        return _measured(out / "eval" / name, str(model), data / "heldout.parquet", seed, *common, *overrides)

    table = {"before_sft": measure("before_sft", tiny)}
    sft = _trained(
        out / "sft",
        lambda folder, resume: run_sft(
            load_recipe(
                find("codev-tiny", "recipes.sft"),
                SFTRecipe,
                [f"model={tiny}", f"data=[{data / 'traces.parquet'}]", f"seed={seed}"],
            ),
            folder,
            resume=resume,
        ),
    )
    table["after_sft"] = measure("after_sft", sft)

    def reinforce(name: str, *overrides: str) -> Path:
        given = (f"model={sft}", f"data=[{data / 'train.parquet'}]", f"seed={seed}", *common, *overrides)
        recipe = load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe, given)
        return _trained(out / name, lambda folder, resume: run_rl(recipe, folder, resume=resume))

    if compare:
        table["accuracy_only"] = measure("accuracy_only", reinforce("rl_accuracy_only", *ACCURACY_ONLY))
        table["evidence"] = measure("evidence", reinforce("rl_evidence"))
    else:
        rl = reinforce("rl")
        table["after_rl"] = measure("after_rl", rl)
        table["after_rl_crop_black"] = measure("after_rl_crop_black", rl, "call_images=black")
    result = {"seed": seed, **table, "seconds": _seconds(out), "folder": str(out)}
    write_whole(out / "demo.json", json.dumps(result, indent=2) + "\n")
    return result


def _seconds(out: Path) -> float:
    """What all parts took, however often the demo was interrupted between them."""
    parts = [*out.glob("*/done.json"), *out.glob("eval/*/results.json")]
    return float(sum(read_record(part, "seconds", fix=RESTORE)["seconds"] for part in parts))


def _same_demo(out: Path, settings: Mapping[str, object]) -> None:
    """Make the folder, or see that it holds this demo."""
    check_folder(out)
    file = out / "settings.json"
    if not file.exists():
        out.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps(settings) + "\n")
    elif (before := read_record(file, fix=RESTORE)) != settings:
        raise RecipeError(
            f"{out} holds a demo with {before}", fix="choose another --out, or remove the folder"
        )


def _trained(folder: Path, train: Callable[[Path, bool], dict[str, Any]]) -> Path:
    """The weights of a finished run; the run is started, or taken up again, where it is not finished."""
    done = folder / "done.json"
    if not done.exists():
        say(f"training: {folder.name}")
        result = train(folder, (folder / "recipe.yaml").exists())
        write_whole(done, json.dumps(result, indent=2) + "\n")
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
