import io
import re
from collections import Counter
from itertools import islice
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from vtune.data.lens import (
    CAREFUL,
    CELL,
    COLOURS,
    FONT,
    GUESSABLE_COLOUR,
    GUESSABLE_DIGIT,
    LEVELS,
    SIDE,
    WHOLE,
    Puzzle,
    Split,
    corpus,
    puzzles,
    samples,
    traces,
)
from vtune.errors import RecipeError
from vtune.runs.data.lens import make_lens
from vtune.schema.parquet import read_samples, read_trajectories
from vtune.schema.trajectory import Trajectory
from vtune.verifiers import check_ground_truth

EVERY = pytest.mark.parametrize("level", LEVELS)
SPLITS: tuple[Split, ...] = ("train", "traces", "heldout")


def drawn(
    level: int, count: int, *, seed: int = 0, split: Split = "train", guessable: float = 0.0
) -> list[Puzzle]:
    return list(islice(puzzles(level, seed=seed, split=split, guessable=guessable), count))


def pixels(data: bytes | None) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data or b"")).convert("RGB"))


def colour_of(question: str) -> str:
    """The colour that a one-step question names."""
    (colour,) = re.findall(r"on the (\w+) sign\?", question)
    return str(colour)


@EVERY
def test_the_ground_truth_passes_its_verifier_at_every_level(level: int) -> None:
    found = list(samples(level, 24, seed=0, split="train"))
    assert len({sample.id for sample in found}) == 24
    for sample in found:
        check_ground_truth(sample)
        assert pixels(sample.images[0].data).shape == (SIDE, SIDE, 3)
        assert sample.tools == ("python",)
        assert bool(sample.evidence) == (sample.tool_ratio > 0) == (sample.ability == "visual_search")


@EVERY
def test_the_seed_determines_the_puzzles(level: int) -> None:
    first, again, other = (list(samples(level, 3, seed=seed, split="train")) for seed in (0, 0, 1))
    assert first == again
    assert not {sample.images for sample in first} & {sample.images for sample in other}


def test_the_same_arguments_write_the_same_files(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        made = make_lens(folder, train=3, heldout=2, traces=4, level=1, guessable=0.5, seed=7)
        assert {name: entry["rows"] for name, entry in made.items()} == {
            "train": 3,
            "heldout": 2,
            "traces": 4,
        }  # type: ignore[index]
    for name in ("train", "heldout", "traces"):
        first, second = ((folder / f"{name}.parquet").read_bytes() for folder in folders)
        assert first == second
    pictures = [
        {sample.images[0].data for sample in read_samples(folders[0] / f"{name}.parquet")}
        for name in ("train", "heldout")
    ]
    pictures.append({trace.images[0].data for trace in read_trajectories(folders[0] / "traces.parquet")})
    assert [len(part) for part in pictures] == [3, 2, 4]
    assert len(set.union(*pictures)) == 9


@EVERY
def test_splits_share_no_picture_whatever_the_seeds(level: int) -> None:
    """At some place, the background of one split has a green that it never has there in another split."""
    by_split = {
        split: np.stack(
            [puzzle.pixels for seed in (0, 1) for puzzle in drawn(level, 4, seed=seed, split=split)]
        )
        for split in SPLITS
    }
    for number, split in enumerate(SPLITS):
        for other in SPLITS[number + 1 :]:
            for first in by_split[split]:
                for second in by_split[other]:
                    # Most of a picture is background, where the two always differ.
                    assert (first[..., 1] == second[..., 1]).mean() < 0.5


@EVERY
def test_the_evidence_box_is_the_sign_in_question_and_shows_the_answer(level: int) -> None:
    asked = [puzzle for puzzle in drawn(level, 40) if puzzle.target is not None]
    assert len(asked) > 15
    for puzzle in asked:
        target = puzzle.target
        assert target is not None
        x0, y0, x1, y1 = target.box
        region = puzzle.pixels[y0:y1, x0:x1]
        plain = (region == COLOURS[target.colour]).all(-1)
        # The whole sign is inside: its colour reaches every side of the box but not beyond.
        assert all(edge.any() for edge in (plain[0], plain[-1], plain[:, 0], plain[:, -1]))
        around = puzzle.pixels[max(y0 - 1, 0) : y1 + 1, max(x0 - 1, 0) : x1 + 1]
        assert (around == COLOURS[target.colour]).all(-1).sum() == plain.sum()
        # Everything of another colour is the digit, dot by dot; level 1 signs show it four times.
        for part in np.split(~plain, 2 if level == 1 else 1):
            for copy in np.split(part, 2 if level == 1 else 1, axis=1):
                assert any(np.array_equal(cut(copy), shape) for shape in shapes(puzzle.answer))
        assert puzzle.answer == target.digit


def cut(dots: np.ndarray) -> np.ndarray:
    """The bounding part of a mask in which it is true."""
    rows, columns = np.nonzero(dots)
    part: np.ndarray = dots[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    return part


def shapes(digit: str) -> list[np.ndarray]:
    """A digit in several sizes."""
    dots = cut(np.array([[dot == "1" for dot in row] for row in FONT[digit].split()]))
    return [dots.repeat(size, 0).repeat(size, 1) for size in range(1, 7)]


@EVERY
def test_no_digit_can_be_told_from_the_mean_colour_of_its_sign(level: int) -> None:
    for puzzle in drawn(level, 20):
        if puzzle.target is not None:
            x0, y0, x1, y1 = puzzle.target.box
            mean = puzzle.pixels[y0:y1, x0:x1].mean((0, 1))
            assert mean.tolist() == pytest.approx(COLOURS[puzzle.target.colour])


@EVERY
def test_a_sample_carries_the_box_of_its_puzzle(level: int) -> None:
    for puzzle, sample in zip(drawn(level, 12), samples(level, 12, seed=0, split="train"), strict=True):
        boxes = [] if puzzle.target is None else [tuple(map(float, puzzle.target.box))]
        assert [item.bbox for item in sample.evidence] == boxes
        assert np.array_equal(pixels(sample.images[0].data), puzzle.pixels)
        assert (sample.question, sample.ground_truth) == (puzzle.question, puzzle.answer)


def test_level_1_signs_align_with_visual_tokens() -> None:
    for puzzle in drawn(1, 30):
        assert puzzle.target is not None
        x0, y0, x1, y1 = puzzle.target.box
        assert x0 // CELL == (x1 - 1) // CELL
        assert y0 // CELL == (y1 - 1) // CELL
        assert colour_of(puzzle.question) in ("red", "blue")


def test_answers_and_places_are_evenly_distributed() -> None:
    found = drawn(1, 200)
    digits = Counter(puzzle.answer for puzzle in found)
    assert max(digits.values()) < 2 * len(found) / len(digits)
    places = Counter(
        (puzzle.target.box[0] // CELL, puzzle.target.box[1] // CELL) for puzzle in found if puzzle.target
    )
    assert len(places) == 16
    assert max(places.values()) < 3 * len(found) / 16


def signs(puzzle: Puzzle) -> dict[str, tuple[int, int, int, int]]:
    """Colour -> box of each sign found in the picture; discs are skipped, as they leave box corners empty."""
    code = puzzle.pixels.astype(np.int32) @ (1 << 16, 1 << 8, 1)
    found = {}
    for colour, (red, green, blue) in COLOURS.items():
        mask = (code == (red << 16 | green << 8 | blue)).astype(np.uint8)
        count, _, stats, _ = cv2.connectedComponentsWithStats(mask)
        for x, y, width, height, size in stats[1:count].tolist():
            if size > 100 and mask[y, x] and mask[y + height - 1, x + width - 1]:
                found[colour] = (x, y, x + width, y + height)
    return found


def test_level_4_questions_have_one_answer() -> None:
    kinds: Counter[str] = Counter()
    for puzzle in drawn(4, 70):
        if puzzle.question.startswith("How many"):
            kinds["count"] += 1
            assert puzzle.answer == str(len(signs(puzzle)))
        elif puzzle.question.startswith("Which colour"):
            kinds["colour"] += 1
            sizes = {colour: box[2] - box[0] for colour, box in signs(puzzle).items()}
            assert [c for c, size in sizes.items() if size == max(sizes.values())] == [puzzle.answer]
        elif step := re.search(r"only sign to the (left|right) of the (\w+) sign", puzzle.question):
            kinds["two"] += 1
            there = signs(puzzle)
            side, colour = step[1], step[2]
            edge = there[colour][0]
            beside = [c for c, box in there.items() if (box[0] > edge if side == "right" else box[0] < edge)]
            assert puzzle.target is not None
            assert beside == [puzzle.target.colour]
        else:
            kinds["one"] += 1
            assert puzzle.target is not None
            assert colour_of(puzzle.question) == puzzle.target.colour
    assert set(kinds) == {"one", "two", "count", "colour"}
    assert min(kinds.values()) > 5


@EVERY
def test_guessable_puzzles_have_the_given_share_and_a_separate_source(level: int) -> None:
    found = drawn(level, 100, guessable=0.5)
    assert 30 < sum(puzzle.guessable for puzzle in found) < 70
    for puzzle in found:
        if puzzle.guessable:
            assert colour_of(puzzle.question) == GUESSABLE_COLOUR
            assert puzzle.answer == GUESSABLE_DIGIT
        elif puzzle.question.startswith("Which digit is on the ") and "only" not in puzzle.question:
            assert colour_of(puzzle.question) != GUESSABLE_COLOUR
    assert len({puzzle.answer for puzzle in found if not puzzle.guessable}) > 4
    assert not any(puzzle.guessable for puzzle in drawn(level, 20))
    assert all(puzzle.guessable for puzzle in drawn(level, 20, guessable=1.0))
    asked = list(samples(level, 12, seed=0, split="train", guessable=0.5))
    sources = ["lens_guessable" if puzzle.guessable else "lens" for puzzle in found[:12]]
    assert [sample.source for sample in asked] == sources
    assert len(set(sources)) == 2


def habit(trace: Trajectory, puzzle: Puzzle) -> str:
    if not trace.calls:
        return "none"
    (crop,) = trace.calls[0].crops
    if crop.bbox == (0, 0, SIDE, SIDE):
        return "whole"
    assert puzzle.target is not None
    assert crop.bbox == puzzle.target.box
    return "careful"


def test_traces_mix_habits_in_the_stated_shares() -> None:
    count = 150
    # Without pictures, which take longest; the next test checks those.
    told = traces(1, count, seed=3, drawn=False)
    asked = puzzles(1, seed=3, split="traces")
    found = Counter(habit(trace, puzzle) for trace, puzzle in zip(told, asked, strict=False))
    assert found.total() == count
    for name, share in (("careful", CAREFUL), ("whole", WHOLE), ("none", 1 - CAREFUL - WHOLE)):
        assert found[name] / count == pytest.approx(share, abs=4 * (share * (1 - share) / count) ** 0.5)


@EVERY
def test_a_trace_shows_what_its_code_crops_and_answers_correctly(level: int) -> None:
    asked = {sample.id: sample for sample in samples(level, 16, seed=0, split="traces")}
    found = list(traces(level, 16, seed=0))
    assert {trace.sample_id for trace in found} == set(asked)
    assert {len(trace.calls) for trace in found} == {0, 1}
    whole = {call.crops[0].bbox == (0, 0, SIDE, SIDE) for trace in found for call in trace.calls}
    assert whole == {False, True}
    for trace in found:
        sample = asked[trace.sample_id]
        assert trace.answer == sample.ground_truth
        assert f"<answer>{sample.ground_truth}</answer>" in trace.messages[-1].content
        assert trace.images[0] == sample.images[0]
        assert trace.source == sample.source
        for call in trace.calls:
            (crop,) = call.crops
            x0, y0, x1, y1 = map(int, crop.bbox)
            assert f"image.crop(({x0},{y0},{x1},{y1}))" in call.arguments
            assert crop.shown is not None
            shown = pixels(trace.images[crop.shown].data)
            assert np.array_equal(shown, pixels(sample.images[0].data)[y0:y1, x0:x1])


def test_the_corpus_is_the_text_of_the_traces() -> None:
    texts = list(corpus(1, seed=0, count=5))
    assert texts == [message.content for trace in traces(1, 5, seed=0) for message in trace.messages]


@pytest.mark.parametrize(("level", "guessable"), [(0, 0.0), (5, 0.0), (1, 1.5), (1, -0.1), (1, float("nan"))])
def test_an_invalid_level_or_share_is_refused(level: int, guessable: float) -> None:
    with pytest.raises(RecipeError, match=r"no lens level|guessable share"):
        next(puzzles(level, seed=0, split="train", guessable=guessable))
