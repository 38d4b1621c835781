from dataclasses import replace

import numpy as np
import pytest

from vtune.errors import DataError
from vtune.metrics.benchmarks import SCORERS, Mark
from vtune.metrics.proportion import wilson

SETS = ("coco", "ovdeval")
"""Scorers that score the boxes of many pictures as one set: see test_detection_scores.py."""
NAMES = [name for name in SCORERS if name not in SETS]


def mark(category: str, cycle: str, score: float | None, *, unreadable: bool = False) -> Mark:
    extra: dict[str, object] = {
        "category": category,
        "cycle_category": cycle,
        "l2-category": "one",
        "task": "one",
    }
    extra["facets"] = {"subject": category or "none"}
    return Mark("s/1", extra, score, unreadable)


def test_the_overall_score_is_not_the_mean_of_the_categories() -> None:
    marks = [mark("direct_attributes", "", score) for score in (1.0, 1.0, 0.0)]
    marks += [mark("relative_position", "", 0.0, unreadable=True)]
    found = SCORERS["categories"](marks)
    assert found["score"] == 0.5
    assert (found["n"], found["unreadable"], found["unscored"]) == (4, 1, 0)
    assert found["categories"]["direct_attributes"]["score"] == pytest.approx(2 / 3)
    relative = found["categories"]["relative_position"]
    assert relative.pop("intervals")["score"]["low"] == 0.0
    assert relative == {"score": 0.0, "n": 1, "clusters": 1, "unreadable": 1, "unscored": 0}


def test_sources_have_equal_weight_whatever_their_size() -> None:
    marks = [replace(mark("", "", score), source="large") for score in (1.0, 1.0, 1.0, 0.0)]
    marks += [replace(mark("", "", score), source="small") for score in (0.0, None)]
    found = SCORERS["sources"](marks)
    assert (found["score"], found["n"], found["unscored"]) == (0.375, 6, 1)
    assert found["sources"]["large"]["score"] == 0.75


def test_a_mean_of_parts_is_none_if_a_part_has_no_score() -> None:
    right, lost = mark("single", "0", 1.0), mark("single", "1", None)
    sources = SCORERS["sources"]([replace(right, source="up"), replace(lost, source="down")])
    tasks = [replace(one, extra={"task": task}) for one, task in ((right, "maze"), (lost, "grid"))]
    cycles = SCORERS["hrbench"]([right, lost, mark("cross", "0", 0.0), mark("cross", "1", 1.0)])
    assert (sources["unscored_parts"], sources["n"], sources["unscored"]) == (["down"], 2, 1)
    assert sources["sources"]["up"]["score"] == 1.0
    assert not {"score", "intervals"} & set(sources)
    found = SCORERS["tasks"](tasks)
    assert (found["unscored_parts"], found["score"]) == (["grid"], 1.0)
    assert "task_mean" not in found
    # One category of the second rotation is known, and so is its mean over rotations.
    assert (cycles["unscored_parts"], cycles["score"], cycles["fcp"]) == (["1 (fsp)"], 0.75, 0.5)
    assert "fsp" not in cycles
    assert set(cycles["intervals"]) == {"score", "fcp"}
    assert cycles["cycles"]["1"] == {"score": 1.0, "fcp": 1.0}
    gone = SCORERS["hrbench"]([right, lost])
    assert gone["unscored_parts"] == ["1"]
    assert not {"score", "fsp"} & set(gone)


def test_rotations_have_equal_weight_and_one_right_of_four_counts_a_quarter() -> None:
    right = {("single", "0"), ("single", "1"), ("single", "2"), ("cross", "0")}
    marks = [
        mark(category, cycle, float((category, cycle) in right))
        for category in ("single", "cross")
        for cycle in "0123"
    ]
    found = SCORERS["hrbench"](marks)
    assert (found["score"], found["fsp"], found["fcp"]) == (0.5, 0.75, 0.25)
    assert found["cycles"]["0"] == {"score": 1.0, "fsp": 1.0, "fcp": 1.0}
    assert found["cycles"]["3"] == {"score": 0.0, "fsp": 0.0, "fcp": 0.0}
    # Three more wrong answers in the last rotation change only its mean.
    more = SCORERS["hrbench"]([*marks, *[mark("single", "3", 0.0)] * 3])
    assert (more["score"], more["fsp"], more["fcp"]) == (0.5, 0.75, 0.25)


def test_levels_split_by_category_prefix_category_and_subcategory() -> None:
    marks = [
        replace(mark(category, "", score), extra={"category": category, "l2-category": below})
        for category, below, score in (
            ("Perception/Remote Sensing", "color", 1.0),
            ("Perception/Monitoring", "color", 0.0),
            ("Reasoning/Monitoring", "count", 1.0),
        )
    ]
    found = SCORERS["levels"](marks)
    assert found["score"] == pytest.approx(2 / 3)
    assert {name: part["score"] for name, part in found["tasks"].items()} == {
        "Perception": 0.5,
        "Reasoning": 1.0,
    }
    assert found["categories"]["Perception/Monitoring"]["score"] == 0.0
    assert found["subcategories"]["color"]["score"] == 0.5
    assert "tasks" not in SCORERS["levels"]([mark("Attribute", "", 1.0)])


def test_the_two_counting_grids_are_one_task_in_the_mean_and_two_in_the_list() -> None:
    marks = [
        replace(mark("", "", score), extra={"task": task})
        for task, score in (
            ("Counting Grid - Blank Grids", 1.0),
            ("Counting Grid - Word Grids", 0.0),
            ("Nested Squares", 1.0),
            ("Nested Squares", 1.0),
        )
    ]
    found = SCORERS["tasks"](marks)
    assert (found["score"], found["task_mean"]) == (0.75, 0.75)
    assert {name: part["score"] for name, part in found["tasks"].items()} == {
        "Counting Grid - Blank Grids": 1.0,
        "Counting Grid - Word Grids": 0.0,
        "Nested Squares": 1.0,
    }


def test_facets_split_a_score_in_several_ways_and_questions_may_have_several_values() -> None:
    marks = [
        replace(mark("", "", score), extra={"facets": {"level": level, "skills": skills}})
        for level, skills, score in ((1, ["a", "b"], 1.0), (1, ["a"], 0.0), (2, [], 1.0), (2, ["b"], None))
    ]
    found = SCORERS["facets"](marks)
    assert (found["score"], found["n"], found["unscored"]) == (pytest.approx(2 / 3), 4, 1)
    shares = {
        name: {key: part.get("score") for key, part in of.items()} for name, of in found["facets"].items()
    }
    assert shares == {"level": {"1": 0.5, "2": 1.0}, "skills": {"a": 0.5, "b": 1.0}}
    assert found["facets"]["skills"]["b"]["n"] == 2


@pytest.mark.parametrize("name", NAMES)
def test_unscored_rollouts_are_left_out_and_counted(name: str) -> None:
    scores = (1.0, 0.0, None)
    marks = [replace(mark("single", "0", score), sample_id=f"s/{score}") for score in scores]
    found = SCORERS[name](marks)  # type: ignore[index]
    assert (found["score"], found["n"], found["unscored"]) == (0.5, 3, 1)
    assert found["clusters"] == 2  # the clusters behind the score
    nothing = SCORERS[name]([mark("single", "0", None)])  # type: ignore[index]
    assert "score" not in nothing
    assert nothing["unscored"] == 1


@pytest.mark.parametrize("name", ["categories", "hrbench", "levels", "tasks", "facets"])
def test_a_sample_that_fits_no_part_is_an_error(name: str) -> None:
    with pytest.raises(DataError, match="which the score is split by"):
        SCORERS[name]([replace(mark("", "", 1.0), extra={})])  # type: ignore[index]


def test_every_score_has_its_interval_over_independent_questions() -> None:
    marks = [
        replace(mark(category, cycle, float(number % 3 > 0)), sample_id=f"{category}/{number}/{cycle}")
        for category in ("single", "cross")
        for number in range(30)
        for cycle in "0123"
    ]
    apart = SCORERS["hrbench"](marks)
    pictures = [replace(mark, cluster=mark.sample_id.rpartition("/")[0]) for mark in marks]
    together = SCORERS["hrbench"](pictures)
    assert (apart["clusters"], together["clusters"], together["n"]) == (240, 60, 240)
    for key in ("score", "fsp", "fcp"):
        assert together["intervals"][key]["value"] == pytest.approx(together[key]) == pytest.approx(2 / 3)
    # All rotations of a question have the same result, so they are one trial, overall and in each part.
    for key, count in (("score", 60), ("fsp", 30), ("fcp", 30)):
        assert tuple(together["intervals"][key].values())[1:] == pytest.approx(wilson(2 / 3 * count, count))
    assert tuple(apart["intervals"]["score"].values())[1:] == pytest.approx(wilson(160, 240))


def referred(draw: np.random.Generator, photographs: int) -> list[Mark]:
    """Like RefCOCO, RefCOCO+ and RefCOCOg: the same photographs, each hard or easy in all three."""
    skill = draw.beta(2.0, 1.0, size=photographs)
    return [
        replace(
            mark("", "", float(draw.random() < skill[photograph])),
            source=source,
            sample_id=f"{source}/{photograph}/{number}",
            cluster=f"photograph {photograph}",
        )
        for source in ("refcoco", "refcoco+", "refcocog")
        for photograph in range(photographs)
        for number in range(2)
    ]


def test_intervals_over_photographs_shared_by_sources_cover_95_percent() -> None:
    """If each source resamples the same photographs separately, it is 88 of 100."""
    draw = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        sure = SCORERS["sources"](referred(draw, 150))["intervals"]["score"]
        held += sure["low"] <= 2 / 3 <= sure["high"]
    assert 0.91 <= held / 200 <= 0.99


def test_sources_on_the_same_photographs_give_the_interval_of_all_answers() -> None:
    marks = referred(np.random.default_rng(1), 20)
    by_source, over_all = (SCORERS[name](marks)["intervals"]["score"] for name in ("sources", "mean"))
    # Equal up to the randomness of resampling.
    assert by_source == pytest.approx(over_all, abs=0.02)


def test_the_interval_of_a_mean_of_means_is_about_that_mean() -> None:
    marks = [
        replace(mark("", "", float(number % 10 > 0)), source="large", sample_id=f"l/{number}")
        for number in range(400)
    ]
    marks += [
        replace(mark("", "", float(number % 2 > 0)), source="small", sample_id=f"s/{number}")
        for number in range(40)
    ]
    found = SCORERS["sources"](marks)
    sure = found["intervals"]["score"]
    assert sure["value"] == pytest.approx(found["score"]) == pytest.approx(0.7)
    # Half of the combined standard errors: the small source dominates the uncertainty.
    half = 1.96 * ((0.9 * 0.1 / 400 + 0.5 * 0.5 / 40) ** 0.5) / 2
    assert (sure["low"], sure["high"]) == pytest.approx((0.7 - half, 0.7 + half), abs=0.01)
