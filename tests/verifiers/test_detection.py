import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.verifiers.cases import sample, wrap
from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import check_ground_truth
from vtune.verifiers.detection import verify_detection, with_iou
from vtune.verifiers.grounding import verify_grounding

CUP = {"label": "cup", "bbox_2d": [10, 10, 50, 50]}
PEN = {"label": "pen", "bbox_2d": [60, 10, 70, 90]}
DISH = {"label": "dish", "bbox_2d": [0, 60, 40, 100]}
PUBLISHED = {"iou_max_label_first": 1.0, "iou_max_iou_first": 0.0, "iou_completeness": 0.3, "map": 0.0}


def task(*truth: dict[str, Any], verifier: str = "detection", **parm: Any) -> Sample:
    return sample(verifier, json.dumps(truth), parm={"iou": 0.5} | parm)


def judged(what: Sample, *boxes: Any) -> Verdict:
    verify = verify_detection if what.verifier == "detection" else verify_grounding
    return verify(wrap(json.dumps(boxes)), what)


def box(label: str, *corners: Any) -> dict[str, Any]:
    return {"label": label, "bbox_2d": list(corners)}


def test_one_box_earns_its_iou_from_the_threshold_on() -> None:
    """V-Triune eq. 3."""
    tall = box("cup", 10, 10, 50, 46)  # IoU 0.9 with the truth
    for threshold, score in ((0.5, 0.9), (0.9, 0.9), (0.91, 0.0)):
        assert judged(task(CUP, iou=threshold), tall).score == pytest.approx(score)


def test_several_boxes_share_the_score() -> None:
    half = judged(task(CUP, PEN), CUP, box("pen", 0, 0, 5, 5))
    assert half.score == pytest.approx(0.5)
    assert {name: half.parts[name] for name in ("iou", "iou@50", "iou@99", "completeness", "boxes")} == {
        "iou": 0.5,
        "iou@50": 0.5,
        "iou@99": 0.5,
        "completeness": 0.5,
        "boxes": 2.0,
    }


def test_surplus_and_missing_boxes_lower_the_score() -> None:
    truth = task(CUP, PEN)
    assert judged(truth, CUP, PEN, DISH).score == pytest.approx(0.6)
    assert judged(truth, CUP, PEN, CUP).score == pytest.approx(0.6)
    assert judged(truth, CUP).score == pytest.approx(0.5 * 0.6)
    assert judged(truth, *[CUP, PEN] * 3).score == pytest.approx(0.6**4)
    assert judged(task(CUP, PEN, size_penalty=1.0), CUP, PEN, DISH).score == 1.0


CUPS = tuple(box("cup", 20 * k, 10, 20 * k + 15, 40) for k in range(5))
SQUARE = {"space": "pixels", "width": 130, "height": 130}
JUNK = (
    *(box("cup", 0, 0, 0, 0), box("cup", 50, 50, 10, 10), box("cup", float("inf"), 0, 9, 9)),
    *(box("cup", 130, 0, 150, 20), box("cup", -20, 0, 0, 20), box("cup", 0, 300, 20, 320)),
)


@pytest.mark.parametrize("found", range(1, 5))
@pytest.mark.parametrize("filling", [*JUNK, CUPS[0], box("cup", 0.2, 10, 15, 39.9)])
def test_junk_boxes_do_not_compensate_for_missing_ones(found: int, filling: dict[str, Any]) -> None:
    what = task(*CUPS, **SQUARE)
    honest = judged(what, *CUPS[:found])
    padded = judged(what, *CUPS[:found], *[filling] * (5 - found))
    assert padded.score == pytest.approx(honest.score) == pytest.approx(found / 5 * 0.6 ** (5 - found))
    assert "copies and boxes that are empty or outside the picture do not count" in padded.why
    assert judged(what, *CUPS[:found], *[filling] * (6 - found)).score < honest.score


def test_near_objects_and_duplicates_in_the_truth_are_not_junk() -> None:
    for shifted in (box("cup", 2, 10, 17, 40), box("cup", 0, 10, 15, 41)):  # IoU 0.76 and 0.97
        assert judged(task(CUPS[0], shifted, **SQUARE), CUPS[0], shifted).score == 1.0
    near = box("cup", 0, 10, 16, 41), box("cup", 21, 11, 35, 41)  # two cups, each a little off
    assert judged(task(*CUPS[:2], **SQUARE), *near).score > 0.85
    assert (
        judged(
            task(box("cup", 10, 10, 90, 90), box("cup", 12, 10, 92, 90), **SQUARE),
            box("cup", 10, 10, 91, 90),
            box("cup", 11, 10, 92, 90),
        ).score
        > 0.9
    )
    assert judged(task(CUPS[0], CUPS[0], **SQUARE), CUPS[0], CUPS[0]).score == 1.0
    assert judged(task(CUP, PEN, **SQUARE), CUP, box("pen", *CUP["bbox_2d"])).score == pytest.approx(0.5)
    beyond = box("cup", -3, 10, 50, 50)
    assert judged(task(CUP, **SQUARE), beyond).score == pytest.approx(40 / 53)


def test_naming_two_places_does_not_pay_with_the_pages_options() -> None:
    both = CUP, box("cup", 60, 60, 90, 90)
    for parm, score in (({}, 0.6), ({"size_penalty": 0.3}, 0.3), ({"credit": "whole"}, 0.0)):
        assert judged(task(CUP, **SQUARE, **parm), *both).score == pytest.approx(score)


def test_the_reason_explains_the_score() -> None:
    tall = box("cup", 10, 10, 50, 46)
    truth = task(CUP, PEN, iou=[0.85, 0.95])
    assert judged(truth, tall, PEN).why == ("2 boxes for 2, mean IoU 0.950, each counts from 0.85, 0.95")
    assert judged(truth, CUP).why.endswith(
        "mean IoU 0.500, each counts from 0.85, 0.95; times 0.6, for 1 too few"
    )
    assert judged(task(CUP), *[CUP] * 3).why == (
        "3 boxes for 1, mean IoU 1.000, each counts from 0.50; times 0.36, for 2 too many"
    )
    assert judged(task(CUP, size_penalty=1.0), CUP, PEN).why.endswith("counts from 0.50")
    assert (
        judged(task(CUP)).why
        == "0 boxes for 1, mean IoU 0.000, each counts from 0.50; times 0.6, for 1 too few"
    )


def test_the_published_ratios_also_reward_completeness() -> None:
    """The published server: found · 0.7 + completeness · 0.3, times 0.6 per surplus or missing box."""
    truth = task(CUP, PEN, det_reward_ratio=PUBLISHED)
    tall = box("cup", 10, 10, 50, 46)
    assert judged(truth, tall, PEN).score == pytest.approx((0.9 + 1) / 2 * 0.7 + 0.3)
    found, completeness = 0.9 / 2, 1 - (1 / 2 + 0) / 2
    assert judged(truth, tall).score == pytest.approx((found * 0.7 + completeness * 0.3) * 0.6)
    assert judged(truth, box("cup", 0, 0, 9, 9), box("pen", 0, 0, 9, 9)).score == 0.0


def test_several_thresholds_give_the_mean() -> None:
    tall = box("cup", 10, 10, 50, 46)
    assert judged(task(CUP, iou=[0.5, 0.85, 0.95]), tall).score == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("ratio", "score"),
    [
        ({"map50": 1.0}, 1.0),
        ({"map75": 1.0}, 1.0),
        ({"map": 1.0}, 0.9),
        ({"map": 1.0, "iou_max_label_first": 3.0 / 4}, None),
        ({"iou_max_iou_first": 1.0}, 0.9),
    ],
)
def test_the_terms_are_weighted_means(ratio: dict[str, float], score: float | None) -> None:
    tall = box("cup", 10, 10, 50, 46)
    expected = (1.0 * 0.9 + 0.75 * 0.9) / 1.75 if score is None else score
    assert judged(task(CUP, det_reward_ratio=ratio), tall).score == pytest.approx(expected)


def test_labels_count_in_detection_and_not_in_grounding() -> None:
    wrong = box("pen", 10, 10, 50, 50)
    assert judged(task(CUP), wrong).score == 0.0
    assert judged(task(CUP), box(" Cup", 10, 10, 50, 50)).score == 1.0
    assert judged(task(CUP, verifier="grounding"), wrong).score == 1.0
    assert judged(task(box("", 1, 1, 9, 9), verifier="grounding"), {"bbox_2d": [1, 1, 9, 9]}).score == 1.0


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param('[{"bbox_2d": [10, 10, 50, 50], "label": "cup"}]', id="json"),
        pytest.param("[{'bbox_2d': [10, 10, 50, 50], 'label': 'cup'}]", id="single quotes"),
        pytest.param('```json\n[{"bbox_2d": [10, 10, 50, 50], "label": "cup"}]\n```', id="in a fence"),
        pytest.param('{"bbox_2d": [10, 10, 50, 50], "label": "cup"}', id="not in a list"),
        pytest.param('```JSON\n[{"bbox_2d": [10, 10, 50, 50], "label": "cup"}]\n```', id="in another fence"),
        pytest.param("[{'bbox_2d': (10, 10, 50, 50), 'label': 'cup'}]", id="a Python tuple"),
        pytest.param("({'bbox_2d': (10, 10, 50, 50), 'label': 'cup'},)", id="tuples alone"),
        pytest.param('[{"bbox": [10, 10, 50, 50], "label": "cup"}]', id="a short key"),
        pytest.param('[{"bbox_2d": [[10, 10], [50, 50]], "label": "cup"}]', id="corners"),
        pytest.param('{"bbox_2d": [10, 10, 50, 50], "label": "cup"},', id="a line with a comma"),
        pytest.param(
            '[{"bbox_2d": [10.0, 1e1, 50, 50], "label": "CUP", "score": 0.9}]', id="floats, more keys"
        ),
    ],
)
def test_boxes_can_be_written_in_these_forms(answer: str) -> None:
    for verify, verifier in ((verify_detection, "detection"), (verify_grounding, "grounding")):
        assert verify(wrap(answer), task(CUP, verifier=verifier)).score == 1.0


def test_objects_on_separate_lines_are_a_list() -> None:
    lines = "\n".join(json.dumps(one) for one in (CUP, PEN))
    for answer in (lines, f"```json\n{lines}\n```", lines.replace("}\n", "},\n\n")):
        verdict = verify_detection(wrap(answer), task(CUP, PEN))
        assert (verdict.score, verdict.parts["boxes"]) == (1.0, 2.0)
    assert verify_detection(wrap("\n"), task(CUP, PEN)).parts["unreadable"] == 1.0
    assert verify_detection(wrap(f"{lines}\nand a dish"), task(CUP, PEN)).parts["unreadable"] == 1.0


def test_bare_corners_are_one_box_for_grounding() -> None:
    assert verify_grounding(wrap("[[10, 10], [50, 50]]"), task(CUP, verifier="grounding")).score == 1.0
    assert verify_grounding(wrap("[[10, 10], [50]]"), task(CUP, verifier="grounding")).score == 0.0


def test_a_truth_with_cocos_key_is_our_error() -> None:
    """COCO's `bbox` has width and height."""
    with pytest.raises(DataError, match="holds no boxes"):
        check_ground_truth(task({"label": "cup", "bbox": [10, 10, 50, 50]}))


def test_a_label_may_be_a_number() -> None:
    digit = {"label": 7, "bbox_2d": [10, 10, 50, 50]}
    for truth, said in ((digit, box("7", 10, 10, 50, 50)), (box("7", 10, 10, 50, 50), digit)):
        check_ground_truth(task(truth))
        assert judged(task(truth), said).score == 1.0
    assert judged(task(digit), digit | {"label": 8}).score == 0.0


def test_a_code_fence_full_of_spaces_takes_linear_time() -> None:
    """If spaces were matched in all possible splits, this would never end."""
    assert not verify_detection(wrap("```" + " " * 100_000 + "x"), task(CUP)).score
    fenced = f"```json{' ' * 5000}{json.dumps([CUP])}{' ' * 5000}```"
    assert verify_detection(wrap(fenced), task(CUP)).score == 1.0


@pytest.mark.parametrize(
    "answer", ["[10, 10, 50, 50]", "[[10, 10, 50, 50]]", "```\n[10,10,50,50]```", "(10, 10, 50, 50)"]
)
def test_bare_boxes_are_accepted_for_grounding(answer: str) -> None:
    assert verify_grounding(wrap(answer), task(CUP, verifier="grounding")).score == 1.0
    assert verify_detection(wrap(answer), task(CUP)).score == 0.0


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param('[{"bbox_2d": [10, 10, 50, 50], "label": "cup"}, {"bbox_2d": [60, 10', id="breaks off"),
        pytest.param('Here: [{"bbox_2d": [10, 10, 50, 50], "label": "cup"}]', id="prose around it"),
        pytest.param('[{"bbox_2d": [10, 10, 50, 50], "label": "cup"}], [1, 2, 3, 4]', id="two lists"),
        pytest.param('["cup"]', id="no boxes"),
        pytest.param("cup", id="a word"),
        pytest.param("7", id="a number"),
        pytest.param("[" * 5000, id="deep"),
        pytest.param("[[1,2,3,4]" + ",[1,2,3,4]" * 2000 + "]", id="endless"),
        pytest.param("[10, 10, 50]", id="three numbers"),
    ],
)
def test_a_reply_without_a_list_of_boxes_is_unreadable(answer: str) -> None:
    for verify, verifier in ((verify_detection, "detection"), (verify_grounding, "grounding")):
        verdict = verify(wrap(answer), task(CUP, verifier=verifier))
        assert (verdict.score, verdict.parts["unreadable"], verdict.parts["iou"]) == (0.0, 1.0, 0.0)


@pytest.mark.parametrize(
    "corners",
    [
        [50, 50, 10, 10],
        [10, 10, 10, 50],
        ["a", 1, 2, 3],
        [1, 2],
        None,
        [1e400, 0, 9, 9],
        [True] * 4,
        [10**400] * 4,
        [float("nan"), 10, 50, 50],
        [float("-inf"), 10, 50, 50],
    ],
)
def test_an_invalid_box_is_a_false_alarm(corners: Any) -> None:
    odd = {"label": "cup", "bbox_2d": corners}
    assert judged(task(CUP), odd).score == 0.0
    assert judged(task(CUP), CUP, odd).score == pytest.approx(0.6)
    assert judged(task(CUP), CUP, odd).parts["boxes"] == 2.0


def test_an_empty_list_is_readable_and_earns_nothing() -> None:
    verdict = judged(task(CUP))
    assert (verdict.score, verdict.parts["unreadable"]) == (0.0, 0.0)


def test_replies_may_use_another_coordinate_space_than_the_truth() -> None:
    thousandths = box("cup", 100, 50, 500, 250)
    size = {"width": 100, "height": 200}
    assert judged(task(CUP, reply_space="relative_1000", **size), thousandths).score == 1.0
    shown = {"shown_width": 1000, "shown_height": 1000}
    assert judged(task(CUP, reply_space="shown_pixels", **size, **shown), thousandths).score == 1.0
    assert judged(task(thousandths, space="relative_1000", reply_space="pixels", **size), CUP).score == 1.0
    assert judged(task(CUP), thousandths).score == 0.0


def test_v_triune_files_are_read_unchanged() -> None:
    truth = "<answer>\n[{'bbox_2d': [100, 100, 500, 500], 'label': 'a cup'}]\n</answer>"
    parm = {
        "det_verifier_normalized": True,
        "det_reward_ratio": PUBLISHED | {"map50": 0.0, "map75": 0.0},
        "iou": 0.99,
    }
    what = sample("detection", truth, parm=parm)
    check_ground_truth(what)
    assert judged(what, box("a cup", 100, 100, 500, 500)).score == 1.0


@pytest.mark.parametrize(
    ("truth", "parm"),
    [
        pytest.param([], {}, id="no box"),
        pytest.param([box("", 1, 1, 9, 9)], {}, id="no label"),
        pytest.param([box("cup", 9, 9, 1, 1)], {}, id="inside out"),
        pytest.param([box("cup", float("nan"), 1, 9, 9)], {}, id="no number"),
        pytest.param(
            [box("cup", 1, 1, 900, 900)], {"width": 100, "height": 100}, id="outside of the picture"
        ),
        pytest.param([box("cup", 1, 1, 1900, 900)], {"space": "relative_1000"}, id="pixels for thousandths"),
        pytest.param([box("cup", 0.1, 0.1, 0.5, 0.5)], {}, id="shares for pixels"),
        pytest.param([box("a", 0, 0, 0.5, 1)], {"space": "relative_1000"}, id="shares for thousandths"),
        pytest.param([box("cup", "1", "1", "9", "9")], {}, id="texts for numbers"),
        pytest.param([CUP], {"space": "metres"}, id="unknown space"),
        pytest.param([CUP], {"space": "pixels", "det_verifier_normalized": True}, id="two spaces"),
        pytest.param([CUP], {"reply_space": "relative_1000"}, id="size missing"),
        pytest.param([CUP], {"reply_space": "shown_pixels"}, id="size of the picture missing"),
        pytest.param([CUP], {"width": -1}, id="negative size"),
        pytest.param([CUP], {"iou": 1.5}, id="threshold above 1"),
        pytest.param([CUP], {"iou": []}, id="no threshold"),
        pytest.param([CUP], {"iou": [0.5, "a"]}, id="threshold that is not a number"),
        pytest.param([CUP], {"size_penalty": 0}, id="penalty that takes all"),
        pytest.param([CUP], {"det_reward_ratio": {"map99": 1.0}}, id="unknown term"),
        pytest.param([CUP], {"det_reward_ratio": {"map": 0.0}}, id="no term"),
        pytest.param([CUP], {"det_reward_ratio": {"map": 2.0}}, id="weight above 1"),
        pytest.param([CUP], {"det_reward_ratio": 1}, id="one weight for all"),
        pytest.param([CUP], {"ap_ranking": "score"}, id="unknown ranking"),
        pytest.param([CUP], {"answer_in": "prose"}, id="unknown place"),
    ],
)
def test_a_nonsensical_truth_is_our_error(truth: list[Any], parm: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="quiz/1"):
        check_ground_truth(task(*truth, **parm))


def test_a_small_corner_box_among_others_is_not_read_as_relative() -> None:
    check_ground_truth(task(box("ant", 0.1, 0.1, 0.9, 0.8), CUP))
    check_ground_truth(task(box("ant", 0, 0, 1, 1)))


def test_a_size_filled_in_by_the_run_may_be_missing_before_it() -> None:
    what = task(CUP, reply_space="shown_pixels", width=100, height=100)
    check_ground_truth(what)
    with pytest.raises(DataError, match="shown_width"):
        judged(what, CUP)


def test_a_run_sets_thresholds_only_for_samples_without_them() -> None:
    assert with_iou(sample("detection", "[]"), (0.9,)).verifier_parm["iou"] == [0.9]
    assert with_iou(task(CUP), (0.9,)).verifier_parm["iou"] == 0.5
    with pytest.raises(DataError, match=r"reward\.iou"):
        judged(sample("detection", json.dumps([CUP])), CUP)


sides = st.integers(0, 60)
labels = st.sampled_from(["cup", "pen"])
boxes = st.builds(
    lambda label, x, y, w, h: box(label, x, y, x + w + 1, y + h + 1), labels, sides, sides, sides, sides
)
lists = st.lists(boxes, min_size=1, max_size=5)
parms = st.fixed_dictionaries(
    {
        "iou": st.sampled_from([0.1, 0.5, [0.3, 0.6]]),
        "size_penalty": st.sampled_from([0.6, 1.0]),
        "det_reward_ratio": st.sampled_from(
            [PUBLISHED, {"map": 1.0, "iou_max_iou_first": 0.5}, {"iou_max_label_first": 1.0, "map50": 0.2}]
        ),
    }
)


@settings(max_examples=60, deadline=None)
@given(predicted=st.lists(boxes, max_size=6), truth=lists, parm=parms, seed=st.integers(0, 99))
def test_scores_are_between_0_and_1_and_ignore_box_order(
    predicted: list[Any], truth: list[Any], parm: dict[str, Any], seed: int
) -> None:
    verdict = judged(task(*truth, **parm), *predicted)
    assert 0.0 <= verdict.score <= 1.0
    assert all(0.0 <= value <= 1.0 for name, value in verdict.parts.items() if name != "boxes")
    shuffle = random.Random(seed).sample
    mixed = judged(task(*shuffle(truth, len(truth)), **parm), *shuffle(predicted, len(predicted)))
    assert (mixed.score, mixed.parts) == (verdict.score, verdict.parts)


@settings(max_examples=60, deadline=None)
@given(predicted=lists, truth=lists, parm=parms, junk=st.lists(st.sampled_from(JUNK), min_size=1, max_size=5))
def test_junk_never_pays(
    predicted: list[Any], truth: list[Any], parm: dict[str, Any], junk: list[Any]
) -> None:
    what = task(*truth, **SQUARE, **parm)
    assert judged(what, *predicted, *junk).score <= judged(what, *predicted).score + 1e-12


@settings(max_examples=60, deadline=None)
@given(truth=lists, parm=parms)
def test_the_true_boxes_earn_full_marks(truth: list[Any], parm: dict[str, Any]) -> None:
    assert judged(task(*truth, **parm), *truth).score == pytest.approx(1.0)


@settings(max_examples=60, deadline=None)
@given(
    cuts=st.lists(st.integers(0, 19), min_size=3, max_size=3),
    grown=st.integers(0, 2),
    by=st.integers(0, 19),
    ratio=st.sampled_from([{}, {"iou_completeness": 0.3}, {"map": 1.0}, {"iou_max_iou_first": 1.0}]),
    threshold=st.sampled_from([0.0, 0.5, 0.85]),
)
def test_a_box_that_fits_better_never_earns_less(
    cuts: list[int], grown: int, by: int, ratio: dict[str, float], threshold: float
) -> None:
    truth = [box("cup", 30 * k, 0, 30 * k + 20, 20) for k in range(3)]
    what = task(*truth, iou=threshold, det_reward_ratio=ratio)

    def score(missing: list[int]) -> float:
        return judged(
            what, *(box("cup", 30 * k, 0, 30 * k + 20 - cut, 20) for k, cut in enumerate(missing))
        ).score

    better = list(cuts)
    better[grown] = max(cuts[grown] - by, 0)
    assert score(better) >= score(cuts) - 1e-12


@settings(max_examples=40, deadline=None)
@given(predicted=lists, truth=lists, low=st.floats(0, 1), high=st.floats(0, 1))
def test_a_tighter_threshold_never_pays_more(
    predicted: list[Any], truth: list[Any], low: float, high: float
) -> None:
    low, high = sorted((low, high))
    loose, tight = (judged(task(*truth, iou=level), *predicted).score for level in (low, high))
    assert tight <= loose + 1e-12
