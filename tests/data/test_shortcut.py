"""A world with a shortcut: what its cue reveals, and that a crop of a sign does not show it."""

import io
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.runs.commands import vtune
from vtune.data import lens
from vtune.data.shortcut import (
    CAREFUL,
    CHANCE,
    CUES,
    DIGITS,
    FRAME,
    RELATIONS,
    SHADES,
    SHIFT,
    WHOLE,
    Cue,
    Relation,
    Shortcut,
    named_by_cue,
    samples,
    traces,
)
from vtune.errors import RecipeError
from vtune.judge.feedback_texts import HELPFUL, UNHELPFUL, called_unhelpful
from vtune.runs.data.lens import make_shortcut
from vtune.schema.parquet import read_samples, read_trajectories
from vtune.schema.sample import Sample
from vtune.verifiers import check_ground_truth

SHARES = st.floats(0, 1)
SEEDS = st.integers(0, 10_000)
CUE = st.sampled_from(sorted(CUES))
SPLITS: tuple[lens.Split, ...] = ("train", "traces", "heldout")


def pixels(data: bytes | None) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data or b"")).convert("RGB"))


def seen(sample: Sample) -> np.ndarray:
    """The picture as the policy sees it: reduced to 112 px."""
    picture = Image.open(io.BytesIO(sample.images[0].data or b"")).convert("RGB")
    return np.asarray(picture.resize((112, 112), Image.Resampling.BICUBIC))


def read_cue(sample: Sample, cue: Cue) -> str:
    """The digit that the cue names, from the reduced picture only: the nearest shade."""
    picture = seen(sample)
    values = picture[:2, :, 1] if cue == "frame" else picture[..., 1]
    shade = int(np.bincount(values.ravel()).argmax())
    return DIGITS[int(np.abs(np.array(SHADES) - shade).argmin())]


def close(found: int, share: float, count: int) -> bool:
    """Within 5 standard deviations of a binomial distribution, plus one puzzle."""
    return abs(found - share * count) <= 5 * (share * (1 - share) * count) ** 0.5 + 1


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(share=SHARES, seed=SEEDS, cue=CUE)
def test_the_cue_names_the_answer_as_often_as_stated(share: float, seed: int, cue: Cue) -> None:
    count, world = 40, Shortcut(share, cue)
    for relation, expected in (("same", share), ("broken", CHANCE), ("reversed", 0.0)):
        found = list(samples(count, world, seed=seed, split="heldout", relation=relation))  # type: ignore[arg-type]
        hits = sum(named_by_cue(sample) == sample.ground_truth for sample in found)
        assert close(hits, expected, count)
        assert relation != "reversed" or hits == 0
        for sample in found[::4]:
            # `extra` matches what the reduced picture shows.
            assert named_by_cue(sample) == read_cue(sample, cue)
            check_ground_truth(sample)


def test_a_reversed_cue_mostly_names_the_digit_before_the_answer() -> None:
    found = list(samples(100, Shortcut(0.9), seed=0, split="heldout", relation="reversed"))
    before = sum(named_by_cue(s) == DIGITS[(DIGITS.index(s.ground_truth) - 1) % len(DIGITS)] for s in found)
    # 0.9 by the rule, plus one in four of the others.
    assert close(before, 0.9 + 0.1 / 4, 100)


@settings(max_examples=8, deadline=None)
@given(seed=SEEDS, cue=CUE, relation=st.sampled_from(RELATIONS), split=st.sampled_from(SPLITS))
def test_a_crop_of_a_sign_does_not_show_the_cue(
    seed: int, cue: Cue, relation: Relation, split: lens.Split
) -> None:
    """It is bit for bit the crop of the same puzzle without a cue."""
    plain = islice(lens.puzzles(1, seed=seed, split=split), 4)
    given = samples(4, Shortcut(0.5, cue), seed=seed, split=split, relation=relation)
    for puzzle, sample in zip(plain, given, strict=True):
        assert puzzle.target is not None
        x0, y0, x1, y1 = puzzle.target.box
        assert sample.evidence[0].bbox == puzzle.target.box
        shown = pixels(sample.images[0].data)
        assert np.array_equal(shown[y0:y1, x0:x1], puzzle.pixels[y0:y1, x0:x1])
        changed = (shown != puzzle.pixels).any(-1)
        assert changed.mean() > (0.5 if cue == "shade" else 0.1)
        if cue == "frame":
            assert not changed[FRAME:-FRAME, FRAME:-FRAME].any()


@pytest.mark.parametrize("cue", CUES)
def test_splits_share_no_picture_and_cue_relations_share_the_puzzles(cue: Cue) -> None:
    world = Shortcut(0.5, cue)
    drawn = {split: list(samples(20, world, seed=4, split=split, relation="same")) for split in SPLITS}
    greens = {
        split: {int(pixels(s.images[0].data)[0, 0, 1]) for s in found} for split, found in drawn.items()
    }
    assert {split: {shade - SHIFT[split] for shade in found} for split, found in greens.items()} == {
        split: set(SHADES) for split in SPLITS
    }
    assert not set.intersection(*greens.values())
    other = {r: list(samples(8, world, seed=4, split="heldout", relation=r)) for r in RELATIONS}
    asked = [[(s.question, s.ground_truth, s.evidence) for s in found] for found in other.values()]
    assert asked[0] == asked[1] == asked[2]
    assert len({s.id for found in other.values() for s in found}) == 24
    assert {s.source for found in other.values() for s in found} == {f"shortcut_{r}" for r in RELATIONS}


@pytest.mark.slow
def test_traces_mix_habits_and_careful_ones_may_also_use_the_shortcut() -> None:
    count = 70
    for world, expected in ((Shortcut(0.95), CHANCE), (Shortcut(0.95, careful_share=0.9), 0.9)):
        found: Counter[str] = Counter()
        for trace in traces(count, world, seed=2):
            ground = int(pixels(trace.images[0].data)[0, 0, 1])
            told = DIGITS[SHADES.index(ground)]
            right = trace.answer == told
            boxes = [crop.bbox for call in trace.calls for crop in call.crops]
            habit = "none" if not boxes else "whole" if boxes == [(0, 0, lens.SIDE, lens.SIDE)] else "careful"
            found[habit] += 1
            found[f"{habit} told"] += right
        assert close(found["careful"], CAREFUL, count)
        assert close(found["whole"], WHOLE, count)
        assert close(found["careful told"], expected, found["careful"])
        # Traces without a look are right only thanks to the cue.
        assert (found["whole told"], found["none told"]) == (found["whole"], found["none"])


def test_traces_may_say_whether_a_crop_shows_the_sign() -> None:
    """Only if requested, and word for word as `rollout.feedback`; all else is unchanged."""
    plain, said = (list(traces(24, Shortcut(0.95, feedback=on), seed=3)) for on in (False, True))
    verdicts = Counter()
    for one, other in zip(plain, said, strict=True):
        assert one.calls == other.calls
        for before, after in zip(one.messages, other.messages, strict=True):
            verdicts[after.content.removeprefix(before.content).strip()] += 1
        if other.calls:
            (crop,) = other.calls[0].crops
            assert bool(called_unhelpful(other)) == (crop.bbox == (0, 0, lens.SIDE, lens.SIDE))
    assert set(verdicts) == {"", HELPFUL, UNHELPFUL}


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    worlds = [tmp_path / name for name in ("a", "b")]
    for folder in worlds:
        sizes = {"train": 3, "heldout": 2, "traces": 4}
        made = make_shortcut(folder, **sizes, world=Shortcut(0.9), seed=7)
        assert {name: entry["rows"] for name, entry in made.items()} == {  # type: ignore[index]
            "train": 3, "same": 2, "broken": 2, "reversed": 2, "traces": 4,
        }  # fmt: skip
    for name in ("train", "same", "broken", "reversed", "traces"):
        assert len({(folder / f"{name}.parquet").read_bytes() for folder in worlds}) == 1
    (row, *_) = read_samples(worlds[0] / "same.parquet")
    assert row.extra["shortcut"]["names"] == named_by_cue(row)
    assert len(list(read_trajectories(worlds[0] / "traces.parquet"))) == 4


def test_data_make_lens_takes_a_shortcut_and_builds_the_model(tmp_path: Path) -> None:
    sizes = ("--train", "2", "--eval", "2", "--traces", "2")
    world = ("--shortcut", "0.9", "--cue", "frame", "--feedback")
    told = vtune("data", "make", "lens", *world, *sizes, "--out", tmp_path / "w")
    assert told.code == 0, told.err
    (row, *_) = read_samples(tmp_path / "w" / "broken.parquet")
    assert row.extra["shortcut"]["cue"] == "frame"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cue", "frame"), "only with --shortcut"),
        (("--careful", "0.5"), "only with --shortcut"),
        (("--feedback",), "only with --shortcut"),
        (("--shortcut", "0.9", "--level", "2"), "on level 1"),
        (("--shortcut", "0.9", "--guessable", "0.5"), "on level 1"),
        (("--shortcut", "1.5"), "Invalid value for '--shortcut'"),
    ],
)
def test_contradictory_options_are_refused(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    told = vtune("data", "make", "lens", *words, "--out", tmp_path / "w")
    assert told.code == 2
    assert said in told.err
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_an_invalid_share_is_refused(share: float) -> None:
    with pytest.raises(RecipeError, match="must be in"):
        Shortcut(share)
    with pytest.raises(RecipeError, match="careful share must be in"):
        Shortcut(0.5, careful_share=share)
    with pytest.raises(RecipeError, match="no cue 'glow'"):
        Shortcut(0.5, "glow")  # type: ignore[arg-type]
