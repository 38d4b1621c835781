import json
import re
from collections import Counter
from dataclasses import replace
from io import BytesIO
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vtune.data.shapes import (
    COUNTED_RIGHT,
    EXACT,
    GRIDS,
    LABEL,
    MOST,
    NEAR,
    RED,
    SIDE,
    TASKS,
    Puzzle,
    Split,
    corpus,
    puzzles,
    samples,
    traces,
)
from vtune.errors import RecipeError
from vtune.runs.data.shapes import make_shapes
from vtune.schema.parquet import read_samples, read_trajectories
from vtune.schema.sample import Sample
from vtune.verifiers import check_ground_truth, verifier_of
from vtune.verifiers.detection import with_iou

SPLITS: tuple[Split, ...] = ("train", "traces", "heldout")


def drawn(count: int, *, seed: int = 0, split: Split = "train", grid: int = 4) -> list[Puzzle]:
    return list(islice(puzzles(seed=seed, split=split, grid=grid), count))


def asked(count: int, *, seed: int = 0, split: Split = "train") -> list[Sample]:
    return list(samples(count, seed=seed, split=split))


def score(reply: str, sample: Sample, iou: float) -> float:
    verifier = verifier_of(sample)
    if verifier.reads_iou:
        sample = with_iou(sample, [iou])
    return verifier.verify(reply, sample).score


@pytest.mark.parametrize("grid", GRIDS)
def test_the_boxes_are_where_the_red_pixels_are(grid: int) -> None:
    found = drawn(60, grid=grid)
    assert {puzzle.task for puzzle in found} == set(TASKS)
    for puzzle in found:
        red = (puzzle.pixels == RED).all(axis=-1)
        painted = np.zeros_like(red)
        for x0, y0, x1, y1 in puzzle.boxes:
            painted[y0 * SIDE // 1000 : y1 * SIDE // 1000, x0 * SIDE // 1000 : x1 * SIDE // 1000] = True
        assert (red == painted).all()
        assert list(puzzle.boxes) == sorted(puzzle.boxes, key=lambda box: (box[1], box[0]))


def test_the_ground_truth_earns_full_marks_at_the_tightest_threshold() -> None:
    found = asked(30)
    assert {sample.source for sample in found} == {f"shapes_{task}" for task in TASKS}
    for sample in found:
        check_ground_truth(sample)
        assert score(f"<answer>{sample.ground_truth}</answer>", sample, 0.99) == pytest.approx(1.0)
        assert score("<answer>[]</answer>", sample, 0.5) == 0.0
        assert sample.tools == ()


def test_an_unknown_grid_is_refused() -> None:
    with pytest.raises(RecipeError, match="a grid cannot have 3 cells"):
        drawn(1, grid=3)


def test_a_question_matches_its_puzzle() -> None:
    found = drawn(600)
    counts = {task: Counter(len(p.boxes) for p in found if p.task == task) for task in TASKS}
    assert set(counts["counting"]) == set(range(1, MOST + 1))
    assert max(counts["counting"].values()) < 2 * min(counts["counting"].values())
    assert set(counts["grounding"]) == {1}
    assert set(counts["detection"]) == {1, 2}


def test_traces_are_loose_by_the_stated_shares_and_readable() -> None:
    right, edges = [], Counter[int]()
    for trace, puzzle in zip(traces(900, seed=0, drawn=False), puzzles(seed=0, split="traces"), strict=False):
        said = re.fullmatch(r"<think>.+</think>\n<answer>(.+)</answer>", trace.messages[-1].content)
        assert said is not None
        if puzzle.task == "counting":
            right.append(said[1] == puzzle.answer)
            assert abs(int(said[1]) - len(puzzle.boxes)) <= 1
            assert 1 <= int(said[1]) <= MOST
            continue
        written = json.loads(said[1])
        assert {box["label"] for box in written} == {LABEL}
        for box, truth in zip(written, puzzle.boxes, strict=True):
            edges.update(abs(a - b) for a, b in zip(box["bbox_2d"], truth, strict=True))
    assert len(right) == 300
    assert np.mean(right) == pytest.approx(COUNTED_RIGHT, abs=0.06)
    assert edges[0] / edges.total() == pytest.approx(EXACT, abs=0.03)
    assert edges[4] / edges.total() == pytest.approx(NEAR, abs=0.03)
    assert set(edges) == {0, 4, 25}


def test_loose_boxes_earn_less_the_tighter_they_have_to_be() -> None:
    """Otherwise no threshold would lower the reward."""
    # One sample takes the truth of each puzzle in turn, as verifiers ignore the picture.
    (sample,) = (one for one in asked(len(TASKS)) if one.verifier == "grounding")
    told = zip(traces(600, seed=0, drawn=False), drawn(600, split="traces"), strict=True)
    said = [
        (trace.messages[-1].content, replace(sample, ground_truth=puzzle.answer))
        for trace, puzzle in told
        if puzzle.task == "grounding"
    ]
    assert len(said) == 200
    mean = {iou: np.mean([score(reply, one, iou) for reply, one in said]) for iou in (0.85, 0.95, 0.99)}
    assert 0.2 < mean[0.85] < 0.6
    assert mean[0.95] < mean[0.85] / 2
    assert 0 < mean[0.99] < mean[0.95] / 2


def test_splits_share_no_picture_and_the_seed_determines_the_puzzles() -> None:
    pictures = {split: {s.images[0].data for s in asked(30, split=split)} for split in SPLITS}
    assert all(len(found) == 30 for found in pictures.values())
    assert not pictures["train"] & pictures["heldout"]
    assert not pictures["train"] & pictures["traces"]
    greens = {split: int(drawn(1, split=split)[0].pixels[SIDE - 1, 0, 1]) for split in SPLITS}
    assert len(set(greens.values())) == 3
    assert asked(6) == asked(6)
    assert asked(6) != asked(6, seed=1)


def test_blank_traces_have_the_same_text_as_those_with_pictures() -> None:
    blank = traces(6, seed=0, drawn=False)
    for trace, same, sample in zip(traces(6, seed=0), blank, asked(6, split="traces"), strict=True):
        assert trace.images == sample.images != same.images
        assert (trace.messages, trace.answer) == (same.messages, same.answer)


def test_the_files_are_as_requested_and_a_model_is_not_overwritten(tmp_path: Path) -> None:
    made = make_shapes(tmp_path, train=6, heldout=3, traces=4, grid=4, seed=0, tiny=None)
    assert {name: entry["rows"] for name, entry in made.items()} == {  # type: ignore[index]
        "train": 6,
        "heldout": 3,
        "traces": 4,
    }
    (first, *_) = read_samples(tmp_path / "train.parquet")
    assert Image.open(BytesIO(first.images[0].data or b"")).size == (SIDE, SIDE)
    assert len(list(read_trajectories(tmp_path / "traces.parquet"))) == 4
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RecipeError, match="holds a model"):
        make_shapes(tmp_path / "b", train=1, heldout=1, traces=1, grid=4, seed=0, tiny=tmp_path)


def test_the_tokenizer_sees_the_texts_of_traces() -> None:
    texts = list(corpus(seed=0, count=3))
    assert "Detect all red squares." in "".join(texts)
    assert "<answer>" in "".join(texts)
