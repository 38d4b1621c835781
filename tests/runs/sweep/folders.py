"""A finished sweep on disk: two variants, three seeds, two suites."""

import json
from pathlib import Path
from typing import Any

import yaml

from tests.runs.sweep.test_sweep import estimate

SEEDS = (0, 1, 2)
STEPS = 4
SCORES = {"plain": (0.50, 0.60, 0.70), "sharp": (0.60, 0.60, 0.90)}
"""Variant -> accuracy on `same`, by seed; on `points` it is a hundred times as much."""


def make_sweep(path: Path, **columns: Any) -> Path:
    """Write the folder of a finished sweep.

    Args:
        path: The folder.
        columns: Variant -> further columns for every step of its training.
    """
    path.mkdir(parents=True)
    sweep = {
        "seeds": list(SEEDS),
        "last_steps": 2,
        "variants": {"plain": {}, "sharp": {}},
        "differences": [["sharp", "plain"]],
        "held_out": [{"suite": "lens", "name": name, "settings": {}} for name in ("same", "points")],
    }
    (path / "sweep.yaml").write_text(yaml.safe_dump(sweep, sort_keys=False))
    for variant, scores in SCORES.items():
        for seed, score in zip(SEEDS, scores, strict=True):
            folder = path / variant / f"seed-{seed}"
            _write_run(folder, seed, columns.get(variant, {}))
            for name, scale in (("same", 1), ("points", 100)):
                _write_evaluation(folder / "eval" / name, scale * score)
                _write_items(folder / "eval" / name, seed, round(10 * score))
    return path


def _write_run(folder: Path, seed: int, columns: dict[str, float]) -> None:
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(f"seed: {seed}\nsteps: {STEPS}\n")
    (folder / "done.json").write_text("{}")
    rows = [
        {
            "step": step,
            "source": source,
            "accuracy": (step + seed) / 10,
            "entropy": 1.0,
            "tool_calls": 0.0,
            "seconds": 30.0,
            **columns,
        }
        for step in range(STEPS)
        for source in ("all", "lens")
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def _write_evaluation(folder: Path, score: float) -> None:
    folder.mkdir(parents=True)
    looks = {"n": 6, "n_unscored": 0, "no_shares": None, "faithful_of_all": estimate(0.25)}
    looks |= {"faithful_of_correct": estimate(0.5), "tool_calls": estimate(0.0)}
    results = {"score": {"score": score}, "faithfulness": looks, "sources": {}, "model": "m"}
    results |= {"samples": 6, "limit": None, "unaudited": None}
    (folder / "suite.yaml").write_text("name: lens\n")
    (folder / "results.json").write_text(json.dumps(results))


def _write_items(folder: Path, seed: int, right: int) -> None:
    """Ten questions of a seed, of which the first n are answered right."""
    rows = [
        {
            "id": f"{seed}/{number}",
            "source": "lens",
            "category": None,
            "cluster": f"{seed}/{number}",
            "scores": [float(number < right)],
        }
        for number in range(10)
    ]
    (folder / "items.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
