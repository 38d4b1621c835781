from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

from tests.metrics.detections import MINI, mini, published, results, sets, summary
from vtune.metrics.detection_interval import RESAMPLES, Counts, counts, interval
from vtune.metrics.detection_set import Answered, Detection, matches, mean_precision, numbers
from vtune.schema.annotated import AnnotatedPicture, Annotation

EXACT = 1e-9

Plays = Callable[[AnnotatedPicture], list[Detection]]


def detected(one: Annotation, move: float = 0.0, score: float | None = None) -> Detection:
    x, y, width, height = one.sides
    sure = width * height / 1e6 if score is None else score
    return Detection(one.category, (x + move * width, y, width, height), sure)


POLICIES: dict[str, Plays] = {
    "perfect": lambda p: [detected(one) for one in p.annotations],
    "shifted": lambda p: [detected(one, 0.02 * (n % 20)) for n, one in enumerate(p.annotations)],
    "doubled": lambda p: [detected(one, move) for one in p.annotations for move in (0.0, 0.1)],
    "wrong names": lambda p: [Detection(one.category % 5 + 1, one.sides, 0.5) for one in p.annotations],
    "all alike": lambda p: [detected(one, 0.03 * (n % 9), 1.0) for n, one in enumerate(p.annotations)],
    "every second": lambda p: [detected(one) for one in p.annotations[::2]],
    "nothing": lambda p: [],
}


def precision(held: Counts, weights: np.ndarray | None = None) -> float | None:
    """AP of one resample, by default with every picture once; None if there are no boxes."""
    drawn = np.ones(len(held.pictures)) if weights is None else weights
    (found,) = held.precision(drawn[np.newaxis])
    return None if np.isnan(found) else float(found)


@pytest.mark.skipif(not MINI.is_file(), reason="coco-mini is not here")
@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_on_photographs_scores_like_pycocotools(policy: str) -> None:
    content, pictures = mini()
    answered = [Answered(picture, tuple(POLICIES[policy](picture))) for picture in pictures]
    wanted = summary(content, results(answered))
    found = matches(answered)
    assert numbers(found, [p.identity for p in pictures]) == pytest.approx(wanted, abs=EXACT)
    assert mean_precision(matches(answered, sizes=False)) == pytest.approx(wanted["ap"], abs=EXACT)
    assert precision(counts(found)) == pytest.approx(wanted["ap"], abs=EXACT)
    assert (wanted["ap"] == pytest.approx(1.0)) == (policy == "perfect")


@pytest.mark.skipif(not MINI.is_file(), reason="coco-mini is not here")
def test_a_part_of_a_set_scores_as_if_it_were_the_whole_set() -> None:
    content, pictures = mini()
    answered = [Answered(picture, tuple(POLICIES["shifted"](picture))) for picture in pictures]
    part = [one for one in answered if len(one.picture.annotations) < 10]
    kept = {one.picture.identity for one in part}
    content["images"] = [entry for entry in content["images"] if entry["id"] in kept]
    content["annotations"] = [entry for entry in content["annotations"] if entry["image_id"] in kept]
    assert 0 < len(part) < len(answered)
    assert numbers(matches(answered), kept) == pytest.approx(summary(content, results(part)), abs=EXACT)


@settings(max_examples=60, deadline=None)
@given(answered=sets())
def test_crowds_ties_and_empty_pictures_score_like_pycocotools(answered: list[Answered]) -> None:
    wanted = summary(published(answered), results(answered))
    found = matches(answered)
    assert numbers(found, [one.picture.identity for one in answered]) == pytest.approx(wanted, abs=EXACT)
    assert mean_precision(matches(answered, sizes=False)) == pytest.approx(wanted.get("ap"), abs=EXACT)
    assert precision(counts(found)) == pytest.approx(wanted.get("ap"), abs=EXACT)


@settings(max_examples=25, deadline=None)
@given(answered=sets())
def test_a_picture_sampled_twice_counts_as_two(answered: list[Answered]) -> None:
    again = [
        Answered(
            AnnotatedPicture(
                one.picture.identity + 0.5,  # type: ignore[arg-type]  # next to itself in the order of ties
                *(200, 200, "", {}),
                tuple(
                    Annotation(a.identity + 1000, a.category, a.sides, a.area, a.crowd)
                    for a in one.picture.annotations
                ),
            ),
            one.detections,
        )
        for one in answered[:1]
    ]
    # Without ties within a category, as copies of a tied box would not be adjacent.
    untied = [distinct(one, number) for number, one in enumerate(answered)]
    copies = [Answered(again[0].picture, untied[0].detections)]
    wanted = mean_precision(matches([*untied, *copies]))
    held = counts(matches(untied))
    weights = np.array([2.0 if one == answered[0].picture.identity else 1.0 for one in held.pictures])
    assert precision(held, weights) == pytest.approx(wanted, abs=EXACT)


def distinct(one: Answered, number: int) -> Answered:
    detections = tuple(
        Detection(d.category, d.sides, (100 * number + at + 1) / 1000) for at, d in enumerate(one.detections)
    )
    return Answered(one.picture, detections)


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    picture = AnnotatedPicture(1, 100, 100, "", {}, (Annotation(1, 0, (0, 0, 50, 50), 2500.0, False),))
    found = matches([Answered(picture, (Detection(0, (0, 0, 50, 50), 1.0),))])
    assert numbers(found, [1])["ap"] == pytest.approx(1.0)
    assert mean_precision(found) == pytest.approx(1.0)
    assert capfd.readouterr().out == ""


def squares(hits: int, count: int) -> list[Answered]:
    """Pictures with one box each, the first of which are found."""
    return [
        Answered(
            AnnotatedPicture(n, 100, 100, "", {}, (Annotation(n, 0, (0, 0, 50, 50), 2500.0, False),)),
            (Detection(0, (0, 0, 50, 50) if n <= hits else (60, 60, 20, 20), 0.5),),
        )
        for n in range(1, count + 1)
    ]


def test_an_interval_contains_the_score_and_narrows_with_more_pictures() -> None:
    widths = []
    for count in (20, 200):
        answered = squares(count // 2, count)
        held = counts(matches(answered))
        value = precision(held)
        assert value is not None
        clusters = {one.picture.identity: f"picture {one.picture.identity}" for one in answered}
        found = interval(value, [held], [clusters])
        assert 0 <= found["low"] < value < found["high"] <= 1
        assert found == interval(value, [held], [clusters])
        widths.append(found["high"] - found["low"])
    assert widths[1] < widths[0] / 2
    assert RESAMPLES >= 1000


def test_without_enough_data_there_is_no_interval() -> None:
    perfect = counts(matches(squares(20, 20)))
    alike = interval(1.0, [perfect], [{n: str(n) for n in range(1, 21)}])
    assert (alike["low"], alike["high"]) == (None, None)
    assert "are the same" in alike["why"]
    few = interval(1.0, [perfect], [dict.fromkeys(range(1, 21), "the same scene")])
    assert few["low"] is None
    assert "1 independent" in few["why"]


@pytest.mark.parametrize(("first", "second"), [(0, 1), (7, 7)])
def test_the_ids_of_annotations_change_no_number(first: int, second: int) -> None:
    """pycocotools treats a match with id 0 as no match, and two annotations with the same id as one."""
    annotations = [
        Annotation(identity, 1, (9.0 * number, 9.0, 50.0, 50.0), 2500.0, False)
        for number, identity in enumerate((first, second))
    ]
    pictures = [AnnotatedPicture(n, 200, 200, "", {}, (one,)) for n, one in enumerate(annotations)]
    found = matches([Answered(one, (detected(one.annotations[0]),)) for one in pictures])
    assert numbers(found, [0, 1])["ap"] == pytest.approx(1.0)
    assert precision(counts(found)) == pytest.approx(1.0)
