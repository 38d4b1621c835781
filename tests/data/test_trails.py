import json
import random
from collections import Counter
from io import BytesIO
from itertools import islice, pairwise

import numpy as np
import pytest
from PIL import Image

from vtune.data.trail_world import (
    APART,
    CORNERS,
    DISTRACTORS,
    MOST_ROADS,
    SEALS,
    SIDE,
    make_world,
    picture,
    plate_box,
)
from vtune.data.trails import (
    CAREFUL,
    ELSEWHERE,
    SHORT,
    TOOLS,
    TWICE,
    Split,
    corpus,
    region,
    samples,
    traces,
    trails,
)
from vtune.errors import RecipeError
from vtune.schema.trajectory import Trajectory
from vtune.verifiers import check_ground_truth

WORLD = make_world(24, 8, seed=0)
SPLITS: tuple[Split, ...] = ("train", "traces", "heldout")


def zoomed(trace: Trajectory) -> list[list[int]]:
    return [json.loads(call.arguments)["bbox_2d"] for call in trace.calls if call.tool == TOOLS[1]]


def test_every_colour_joins_the_towns_of_a_half_in_one_ring() -> None:
    for half, towns in WORLD.towns.items():
        names = {town.name for town in towns}
        assert len(names) == len(towns) == {"known": 24, "heldout": 8}[half]
        for colour in SEALS:
            way = WORLD.follow(towns[0].name, colour, len(towns))
            assert way[0] == way[-1]
            assert set(way) == names
    assert not {t.name for t in WORLD.towns["known"]} & {t.name for t in WORLD.towns["heldout"]}


def test_held_out_names_are_new_combinations_of_known_words() -> None:
    world = make_world(160, 40, seed=0)
    known = {word for town in world.towns["known"] for word in town.name.split()}
    assert {word for town in world.towns["heldout"] for word in town.name.split()} <= known


def test_quilts_can_be_told_apart_behind_a_plate() -> None:
    quilts = np.array([town.quilt for half in WORLD.towns.values() for town in half])
    differing = (quilts[:, None] != quilts[None]).sum(axis=-1)
    assert differing[np.triu_indices(len(quilts), 1)].min() >= APART


def test_a_world_without_enough_names_or_towns_is_refused() -> None:
    for known, heldout in ((300, 10), (24, MOST_ROADS), (2, 8)):
        with pytest.raises(RecipeError, match="cannot make a world"):
            make_world(known, heldout, seed=0)


def test_every_road_has_an_article_and_every_town_its_distractors() -> None:
    articles = list(WORLD.articles())
    assert len({article.id for article in articles}) == len(articles) == 32 * (len(SEALS) + DISTRACTORS)
    told = {article.text for article in articles}
    for (name, colour), there in WORLD.roads.items():
        assert f"The {colour} road of {name} leads to {there}." in told


def test_a_seal_is_grey_at_policy_size_and_coloured_in_a_crop() -> None:
    town = WORLD.towns["known"][0]
    box = plate_box(CORNERS[1])
    whole, cut = {}, {}
    for colour in SEALS:
        drawn = Image.fromarray(picture(town, colour, CORNERS[1], random.Random(0)))
        whole[colour] = np.asarray(drawn.resize((112, 112), Image.Resampling.BICUBIC), np.int64)
        cut[colour] = np.asarray(drawn.crop(box), np.int64)
    for one, other in pairwise(SEALS):
        assert abs(whole[one] - whole[other]).max() <= 4
        assert abs(cut[one] - cut[other]).max() >= 100


def test_splits_share_no_picture_and_trails_stay_in_their_half() -> None:
    found = {split: list(islice(trails(WORLD, seed=0, split=split), 30)) for split in SPLITS}
    pictures = [trail.data for split in SPLITS for trail in found[split]]
    assert len(set(pictures)) == len(pictures) == 90
    towns = {split: {name for trail in found[split] for name in trail.towns} for split in SPLITS}
    assert not towns["heldout"] & (towns["train"] | towns["traces"])
    assert Counter(trail.roads for trail in found["train"]) == {1: 10, 2: 10, 3: 10}
    for trail in found["train"]:
        assert len(set(trail.towns)) == trail.roads + 1


def test_the_seed_determines_the_world_and_its_questions() -> None:
    assert make_world(24, 8, seed=0) == WORLD
    assert make_world(24, 8, seed=1) != WORLD
    asked = list(samples(WORLD, 9, seed=0, split="train"))
    assert asked == list(samples(WORLD, 9, seed=0, split="train"))
    assert asked != list(samples(WORLD, 9, seed=1, split="train"))
    assert list(traces(WORLD, 9, seed=0)) == list(traces(WORLD, 9, seed=0))


def test_samples_can_be_judged_and_have_the_plate_as_evidence() -> None:
    for sample, trail in zip(
        samples(WORLD, 12, seed=0, split="heldout"), trails(WORLD, seed=0, split="heldout"), strict=False
    ):
        check_ground_truth(sample)
        assert sample.ground_truth == trail.towns[-1]
        assert sample.tools == TOOLS
        (seal,) = sample.evidence
        assert seal.bbox == plate_box(trail.cell)
        assert [round(edge * SIDE / 1000) for edge in region(trail.cell)] == list(seal.bbox)


def test_traces_have_the_stated_habits() -> None:
    looks: Counter[str] = Counter()
    short = right = careful = 0
    searches: Counter[int] = Counter()
    shown = 0
    # Without pictures, which take longest; the next test checks those.
    asked = islice(trails(WORLD, seed=0, split="traces", drawn=False), 450)
    for trace, trail in zip(traces(WORLD, 450, seed=0, drawn=False), asked, strict=True):
        boxes = zoomed(trace)
        kind = "blind" if not boxes else "careful" if boxes == [region(trail.cell)] else "elsewhere"
        looks[kind] += 1
        queries = [call.arguments for call in trace.calls if call.tool == TOOLS[2]]
        for _, times in Counter(queries).items():
            searches[times] += 1
        short += trail.roads > 1 and len(set(queries)) < trail.roads
        if kind == "careful":
            careful += 1
            right += trace.answer == trail.towns[-1]
        for call in trace.calls:
            for crop in call.crops:
                data = trace.images[crop.shown or 0].data or b""
                assert Image.open(BytesIO(data)).size == (56, 56)
                shown += 1
    assert looks["careful"] / 450 == pytest.approx(CAREFUL, abs=0.06)
    assert looks["elsewhere"] / 450 == pytest.approx(ELSEWHERE, abs=0.06)
    assert searches[2] / searches.total() == pytest.approx(TWICE, abs=0.04)
    assert short / 300 == pytest.approx(SHORT, abs=0.05)
    assert right / careful == pytest.approx(1 - SHORT * 2 / 3, abs=0.05)
    assert shown == looks["careful"] + looks["elsewhere"]


def test_a_zoom_shows_its_box_and_blank_traces_have_the_same_text() -> None:
    zooms = 0
    for trace, blank in zip(traces(WORLD, 12, seed=0), traces(WORLD, 12, seed=0, drawn=False), strict=True):
        assert (trace.messages, trace.calls) == (blank.messages, blank.calls)
        whole, *_ = pictures = [Image.open(BytesIO(one.data or b"")) for one in trace.images]
        for crop in (crop for call in trace.calls for crop in call.crops):
            assert pictures[crop.shown or 0].tobytes() == whole.crop(tuple(map(int, crop.bbox))).tobytes()
            zooms += 1
    assert 4 < zooms < 12


def test_the_tokenizer_is_trained_on_trace_texts_without_tags() -> None:
    text = "".join(corpus(WORLD, seed=0, count=6))
    assert "Which town is reached?" in text
    assert " leads to " in text
    assert "<think>" not in text
