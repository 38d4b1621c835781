"""Run every sweep that ships for the tiny model once, as a user would, and show what each found.

    python -m tests.chains.sweeps FOLDER [SWEEP ...]

prepares in the folder what the sweeps start from (a demo, puzzles, short cold starts), runs each with a
single command for two steps and one seed, and prints a table. It exits with 1 if a run failed or a table
lacks a number. Whatever exists already is not made again.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vtune.files.json_text import read_record
from vtune.runs.sweep.table import TABLE

SIZES = ("--train", "64", "--eval", "16", "--traces", "128")
DEMO = {"runs/demo/report.html": ("demo",)}
SHAPES = {
    "data/shapes/train.parquet": (
        "data", "make", "shapes", *SIZES, "--out", "data/shapes", "--tiny", "models/shapes-tiny"),
    "data/curated/shapes-counting/samples.parquet": ("curate", "shapes-counting"),
    "data/curated/shapes-boxes/samples.parquet": ("curate", "shapes-boxes"),
    "runs/orsta-tiny-sft/done.json": (
        "sft", "--recipe", "orsta-tiny", "--out", "runs/orsta-tiny-sft", "--set", "epochs=1"),
}  # fmt: skip
TRAILS = {
    "data/trails/train.parquet": (
        "data", "make", "trails", *SIZES, "--out", "data/trails", "--tiny", "models/trails-tiny"),
    "runs/credit-tiny-sft/done.json": (
        "sft", "--recipe", "credit-tiny", "--out", "runs/credit-tiny-sft", "--set", "epochs=1"),
}  # fmt: skip
PREPARED: dict[str, dict[str, tuple[str, ...]]] = {
    "codev-tiny": DEMO,
    "orsta-tiny": SHAPES,
    "credit-tiny": TRAILS,
}
"""Recipe -> file whose existence shows that something is prepared -> the command that makes it."""
SWEEPS = {
    "shortcut": "codev-tiny",
    "codev-ablation-tiny": "codev-tiny",
    "iou-schedules-tiny": "orsta-tiny",
    "learning-rate-tiny": "orsta-tiny",
    "task-mix-tiny": "orsta-tiny",
    "credit-tiny": "credit-tiny",
    "credit-ablation-tiny": "credit-tiny",
}
"""Sweep -> its recipe."""
SHORT = ("--set", "steps=2", "--set", "sweep.last_steps=2", "--set", "sweep.seeds=[0]")
"""As in `cli/sweep.md`."""


def run(folder: Path, words: tuple[str, ...]) -> float:
    """Run a vtune command in a folder and return the seconds it took.

    Raises:
        SystemExit: If it fails.
    """
    print("vtune", *words, flush=True)
    began = time.monotonic()
    program = Path(sys.executable).with_name("vtune")
    if subprocess.run([program, *words], cwd=folder).returncode:
        raise SystemExit(f"failed: vtune {' '.join(words)}")
    return time.monotonic() - began


def missing(table: dict[str, Any]) -> list[str]:
    """What a sweep's table should have but lacks."""
    found = [f"{name} is not finished" for name in table["unfinished"]]
    for name, row in table["variants"].items():
        trained = row["seeds"] is not None
        found += [
            f"{name}: no {number} in training"
            for number in ("accuracy", "entropy") * trained
            if not row[number]
        ]
        for suite in table["suites"]:
            held = row["held_out"][suite]
            found += [f"{name}: no accuracy on {suite}"] * (not held["accuracy"])
            found += [f"{name}: no share on {suite}, and no reason"] * (
                not (held["faithful"] or held["no_shares"])
            )
    return found


def main(folder: Path, sweeps: Sequence[str]) -> int:
    """Prepare, run and check; returns the exit status."""
    folder.mkdir(parents=True, exist_ok=True)
    for recipe in dict.fromkeys(SWEEPS[sweep] for sweep in sweeps):
        for file, words in PREPARED[recipe].items():
            if not (folder / file).exists():
                run(folder, words)
    lines = ["| sweep | rows | differences | suites | seconds | missing |", "|---|---|---|---|---|---|"]
    faults = 0
    for sweep in sweeps:
        recipe, out = SWEEPS[sweep], folder / "runs" / sweep
        resumed = ("--resume",) if out.exists() else ()
        seconds = run(
            folder, ("rl", "--recipe", recipe, "--sweep", sweep, "--out", f"runs/{sweep}", *SHORT, *resumed)
        )
        table = read_record(out / TABLE, "variants", "suites", fix="run the sweep again")
        lacks = missing(table)
        faults += len(lacks)
        counts = f"{len(table['variants'])} | {len(table['differences'])} | {', '.join(table['suites'])}"
        lines.append(f"| {sweep} | {counts} | {seconds:.0f} | {'; '.join(lacks) or 'nothing'} |")
    print("\n".join(lines))
    return min(faults, 1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:] or list(SWEEPS)))
