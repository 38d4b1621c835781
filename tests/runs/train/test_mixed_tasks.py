"""V-Triune's mixed training in small: the shipped recipe on the easy grid, and its metrics."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.runs.commands import Ended, numbers, same_weights, setting, vtune
from vtune.data import shapes
from vtune.models.families import family_of
from vtune.models.tiny import build_tiny
from vtune.runs.data.shapes import make_shapes
from vtune.schema.parquet import read_trajectories

pytestmark = pytest.mark.train

STEPS = 40
SOURCES = [f"shapes_{task}" for task in shapes.TASKS]
BOXED = SOURCES[1:]


@pytest.fixture(scope="module")
def puzzles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shapes")
    make_shapes(folder, train=360, heldout=6, traces=1200, grid=2, seed=0, tiny=None)
    build_tiny(folder / "tiny", shapes.corpus(seed=0, grid=2, count=200), seed=0)
    return folder


@pytest.fixture(scope="module")
def started(puzzles: Path) -> Path:
    """Weights that find the squares and write loose boxes."""
    words = setting(
        model=puzzles / "tiny",
        data=f"[{puzzles / 'traces.parquet'}]",
        epochs=1.0,
        update__threads=1,
        update__learning_rate=0.003,
        update__warmup_steps=10,
    )
    ended = vtune("sft", "--recipe", "orsta-tiny", "--out", puzzles / "sft", *words)
    assert ended.code == 0, ended.err
    return (puzzles / "sft/checkpoints/newest").resolve()


def learn(started: Path, puzzles: Path, out: Path, *more: str, **changes: object) -> Ended:
    settings: dict[str, object] = {
        "model": started,
        "data": f"[{puzzles / 'train.parquet'}]",
        "steps": STEPS,
        "prompts_per_step": 9,
        "reward__iou__thresholds": "[0.85, 0.99]",
        "reward__iou__until": "[0.5]",
        "update__threads": 1,
        "update__learning_rate": 0.0003,
        "update__warmup_steps": 2,
        "trajectories_every": STEPS,
    }
    return vtune("rl", "--recipe", "orsta-tiny", "--out", out, *setting(**(settings | changes)), *more)


@pytest.fixture(scope="module")
def ran(started: Path, puzzles: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    out = tmp_path_factory.mktemp("runs") / "mixed"
    ended = learn(started, puzzles, out, "--json")
    assert ended.code == 0, ended.err
    return out, ended


@pytest.fixture(scope="module")
def report(ran: tuple[Path, Ended]) -> dict[str, Any]:
    ended = vtune("report", ran[0], "--replies", "--json")
    assert ended.code == 0, ended.err
    (found,) = json.loads(ended.out)["runs"]
    return dict(found)


def mean_reward(run: Path, source: str, steps: range) -> float:
    """Mean accuracy part of the reward, with equal weight for every reply."""
    rows = [row for (step, name), row in numbers(run).items() if name == source and step in steps]
    return sum(row["reward_accuracy"] * row["trajectories"] for row in rows) / sum(
        row["trajectories"] for row in rows
    )


@pytest.mark.parametrize("source", SOURCES)
def test_the_reward_of_each_source_rises(ran: tuple[Path, Ended], source: str) -> None:
    """Even for boxes, although they have to be much tighter at the end."""
    run, _ = ran
    half = STEPS // 2
    if source in BOXED:
        start = mean_reward(run, source, range(5))
        assert mean_reward(run, source, range(half - 10, half)) > start + 0.1
        assert mean_reward(run, source, range(STEPS - 10, STEPS)) > start + 0.1
    else:
        assert mean_reward(run, source, range(half, STEPS)) > mean_reward(run, source, range(half)) + 0.03


def test_the_reward_falls_at_tighter_thresholds_and_recovers(report: dict[str, Any]) -> None:
    (found,) = report["tightenings"]
    assert (found["step"], found["old"], found["new"]) == (STEPS // 2, 0.85, 0.99)
    assert set(found["sources"]) == set(BOXED)
    before, after, end = (
        fmean(found["sources"][source][name] for source in BOXED) for name in ("before", "after", "end")
    )
    assert after < before - 0.1
    assert end > after + 0.05


def test_box_scores_are_reported_at_every_threshold(ran: tuple[Path, Ended]) -> None:
    rows = numbers(ran[0])
    for source in BOXED:
        row = rows[STEPS - 1, source]
        shares = [row[f"iou@{at}"] for at in (50, 75, 95, 99)]
        assert shares == sorted(shares, reverse=True)
        assert 0 < shares[-1] <= row["ap"] <= 1
        first = min(step for step, name in rows if name == source)
        assert row["iou@99"] > rows[first, source]["iou@99"]
    assert "iou@50" not in rows[0, "shapes_counting"]
    assert rows[0, "all"]["iou_threshold"] == 0.85


def test_frozen_parts_are_bitwise_unchanged_and_the_others_are_not(
    ran: tuple[Path, Ended], started: Path
) -> None:
    out, ended = ran
    assert json.loads(ended.out)["frozen"] == ["vision", "connector"]
    assert "frozen, and bit for bit the same as at the start: vision, connector" in ended.err
    before, after = (
        load_file(folder / "model.safetensors") for folder in (started, out / "checkpoints/newest")
    )
    part_of = family_of("qwen2_5_vl").part_of
    moved = {part_of(name) for name, weight in before.items() if not torch.equal(weight, after[name])}
    assert moved == {"language"}
    assert {part_of(name) for name in before} == {"vision", "connector", "language"}
    told = {name for name in numbers(out)[0, "all"] if name.startswith("grad_norm_")}
    assert told == {f"grad_norm_language{group}" for group in ("", "_early", "_late", "_ends")}


def test_the_worst_and_the_best_reply_of_each_source_can_be_read(report: dict[str, Any]) -> None:
    assert {(one["step"], one["source"]) for one in report["replies"]} == {(STEPS - 1, s) for s in SOURCES}
    for source in SOURCES:
        worst, best = (one for one in report["replies"] if one["source"] == source)
        assert worst["reward"] <= best["reward"]
        assert "<answer>" in best["reply"]


def test_with_eight_updates_per_batch_moved_tokens_are_clipped(
    started: Path, puzzles: Path, tmp_path: Path
) -> None:
    """V-Triune's off-policy setting: the first update is on-policy, in the others clipping can act."""
    out = tmp_path / "run"
    ended = learn(
        started, puzzles, out, steps=2, prompts_per_step=4, updates_per_step=8, update__learning_rate=0.002
    )
    assert ended.code == 0, ended.err
    rows = numbers(out)
    # Token by token, the weights differ from those that generated.
    assert rows[0, "all"]["mismatch_mean"] > 1e-3
    assert rows[1, "all"]["clip_share"] > 0
    assert not same_weights(started, out / "checkpoints/newest")
    drawn = list(read_trajectories(out / "trajectories/step-000001.parquet"))
    assert {version for t in drawn for version in t.weight_versions} - {None} == {1}
