"""Detection: are these the boxes, with these labels?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isfinite
from statistics import fmean
from typing import Any

from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import VERIFIERS
from vtune.verifiers.average_precision import average_precision, by_area
from vtune.verifiers.box_counts import off_by
from vtune.verifiers.boxes import (
    CUP_AND_PEN,
    ELSEWHERE,
    SQUARE,
    LabelledBox,
    boxes_form,
    boxes_in,
    right_boxes,
    truth_boxes,
    without_labels,
)
from vtune.verifiers.matching import iou_first, label_first
from vtune.verifiers.spaces import SPACE_OPTIONS, spaces_of, with_parm
from vtune.verifiers.verifier import (
    Case,
    Verifier,
    answered,
    given_answer,
    no_answer,
    one_of,
    options,
    unreadable,
    where,
    wrong_option,
)

NAME = "detection"

REPORTED = (50, 75, 95, 99)
"""IoU thresholds, in percent, at which the number of boxes found is reported (V-Triune §3.3)."""
SIZE_PENALTY = 0.6
"""V-Triune's published server multiplies the score by this for each surplus or missing box."""
AP_RANKINGS = ("area", "order")
CREDITS = ("overlap", "whole")

_AP = {"map": "ap", "map50": "ap50", "map75": "ap75"}
"""Published names of score terms -> what replaces them for a single reply: without a mean over the labels
of a data set it is not mAP."""
_RATIOS = ("iou_max_label_first", "iou_max_iou_first", *_AP)
_KNOWN = SPACE_OPTIONS | {
    "answer_in",
    "iou",
    "det_reward_ratio",
    "size_penalty",
    "ap_ranking",
    "credit",
    "may_be_empty",
}


@dataclass(frozen=True, slots=True)
class _Judging:
    """How a sample wants its boxes judged."""

    truth: list[LabelledBox]
    ratios: Mapping[str, float]
    completeness: float
    size_penalty: float
    ranking: str
    whole: bool
    """Whether there is no partial credit."""


def verify_detection(reply: str, sample: Sample) -> Verdict:
    """Score the boxes of the answer by their overlap with those of the ground truth.

    With one box on each side the score is the IoU if it reaches the threshold, else 0 (V-Triune eq. 3).
    The paper does not say how several boxes are scored; this follows its published server, with
    the paper's implied settings as the default. In full, for n boxes of the ground truth, k in the answer and
    m matched pairs:

    - at a threshold, *found* is the sum of the matched IoUs / n, *completeness* is 1 - (missed / n + false
      alarms / k) / 2, and the term is found · (1 - c) + completeness · c;
    - several thresholds give the mean of their terms (the server's `average`);
    - the score is that term, or a weighted mean of terms, times `size_penalty` to the power |k - n|, or
      a higher power if some of the k are copies, empty or outside the picture (`off_by`; ours).

    Options of `verifier_parm`, in addition to those of `spaces_of` and `answer_in`:

    - `iou`: threshold(s) in [0, 1]. If a sample has none, the run sets them for each step (`with_iou`).
    - `det_reward_ratio`: weights of the terms `iou_max_label_first` (labels must agree before overlap counts,
      see `label_first`), `iou_max_iou_first` (see `iou_first`), `map`, `map50`, `map75` (the average
      precision of this reply alone), and c above as `iou_completeness`. Default: only the first, and
      c = 0, as in eq. 3; the published data have 0.3.
    - `size_penalty`: in (0, 1]; default 0.6, the server's. With 1, surplus boxes are not penalised.
    - `ap_ranking`: what replaces confidences in average precision: `area` (the default; appendix E), or
      `order`, that of the list (appendix D, and the server, where all are equal).

    - `credit`: `overlap` (the default), as above, or `whole`: 1 if every box is found at every threshold
      and there is no other, else 0. With one box and threshold 0.5 that is RefCOCO's accuracy.
    - `may_be_empty`: true allows the ground truth to be `[]`: then no box at all scores 1, and any box 0
      (ours).

    The answer is the whole content of `<answer>`: see `boxes_in` for what can be read. The verdict's parts
    are, independently of the thresholds: `iou` (the sum of matched IoUs / n), `iou@50`, `iou@75`, `iou@95`,
    `iou@99` (shares of the ground truth's boxes that were found at that IoU), `completeness` (at IoU 0.5),
    `ap`, `ap50`, `ap75` (average precision of this reply at IoU 0.5 to 0.95, 0.5 and 0.75), and `boxes`, k.

    Raises:
        DataError: As for `check_detection`, or if there is no threshold.
    """
    return verify_boxes(reply, sample, labelled=True)


def check_detection(sample: Sample) -> None:
    """Check that the ground truth holds labelled boxes that lie in the picture.

    Raises:
        DataError: If not, or if an option is unknown, of the wrong type or contradicts another.
    """
    check_boxes(sample, labelled=True)


def verify_boxes(reply: str, sample: Sample, *, labelled: bool) -> Verdict:
    """`verify_detection`, with or without labels."""
    judging = _judging(sample, labelled=labelled)
    thresholds = _thresholds(sample)
    if not thresholds:
        raise DataError(
            "no IoU threshold is set for boxes",
            where=where(sample),
            fix="set reward.iou in the recipe, or `iou` in verifier_parm",
        )
    spaces = spaces_of(sample)
    given = given_answer(reply, sample)
    found = boxes_in(given) if given is not None else None
    if found is not None and not judging.truth:
        verdict = answered(float(not found), f"{len(found)} boxes where there is nothing")
        return Verdict(verdict.score, verdict.why, {**verdict.parts, "boxes": float(len(found))})
    if found is None:
        verdict = no_answer(sample) if given is None else unreadable("the answer is not a list of boxes")
        return Verdict(0.0, verdict.why, {**_facts([], judging), **verdict.parts})
    predicted = [LabelledBox(e.label, spaces.to_truth(e.box)) for e in found]
    if not labelled:
        predicted = without_labels(predicted)
    facts = _facts(predicted, judging)
    off = off_by(predicted, judging.truth, spaces)
    if judging.whole:
        score = float(not off and _all_found(predicted, judging, thresholds))
    else:
        score = _score(predicted, judging, thresholds, facts) * judging.size_penalty**off
    tight = ", ".join(f"{threshold:.2f}" for threshold in thresholds)
    boxes = f"{len(predicted)} {'box' if len(predicted) == 1 else 'boxes'} for {len(judging.truth)}"
    why = f"{boxes}, mean IoU {facts['iou']:.3f}, each counts from {tight}"
    if off and not judging.whole and judging.size_penalty < 1:
        why += f"; times {judging.size_penalty**off:.3g}, for {off} too {_which(off, predicted, judging)}"
    return Verdict(min(score, 1.0), why, {**facts, "unreadable": 0.0})


def _which(off: int, predicted: list[LabelledBox], judging: _Judging) -> str:
    more = len(predicted) - len(judging.truth)
    if off > abs(more):
        return "many or few: copies and boxes that are empty or outside the picture do not count"
    return "many" if more > 0 else "few"


def check_boxes(sample: Sample, *, labelled: bool) -> None:
    """`check_detection`, with or without labels."""
    _judging(sample, labelled=labelled)
    _thresholds(sample)


def with_iou(sample: Sample, thresholds: Sequence[float]) -> Sample:
    """The sample with the thresholds of a step; the sample's own `iou`, if any, takes precedence."""
    return with_parm(sample, {"iou": list(thresholds)})


def _score(
    predicted: list[LabelledBox], judging: _Judging, thresholds: Sequence[float], facts: Mapping[str, float]
) -> float:
    """The weighted mean of the terms, before the penalty for surplus or missing boxes."""
    if not predicted:
        return 0.0
    terms = {name: weight for name, weight in judging.ratios.items() if weight}
    values = {name: facts[_AP[name]] for name in terms if name in _AP}
    for name in terms.keys() - values.keys():
        values[name] = fmean(_term(name, predicted, judging, threshold) for threshold in thresholds)
    return fsum(weight * values[name] for name, weight in terms.items()) / fsum(terms.values())


def _all_found(predicted: list[LabelledBox], judging: _Judging, thresholds: Sequence[float]) -> bool:
    """Whether every box is found at every threshold."""
    found = label_first(predicted, judging.truth, min_iou=max(thresholds), iou_weight=0.0, match_weight=1.0)
    return len(found) == len(judging.truth)


def _term(name: str, predicted: list[LabelledBox], judging: _Judging, threshold: float) -> float:
    """Found and completeness at one threshold, in [0, 1]."""
    truth, share = judging.truth, judging.completeness
    if name == "iou_max_iou_first":
        matched = iou_first(predicted, truth, min_iou=threshold)
    else:
        matched = label_first(
            predicted,
            truth,
            min_iou=threshold,
            iou_weight=(1 - share) / len(truth),
            match_weight=share * (1 / len(truth) + 1 / len(predicted)) / 2,
        )
    complete = _completeness(len(matched), len(truth), len(predicted))
    return fsum(matched) / len(truth) * (1 - share) + complete * share


def _completeness(matched: int, truth: int, predicted: int) -> float:
    """1 - (share missed + share of false alarms) / 2, in [0, 1]."""
    return (matched / truth + matched / predicted) / 2 if predicted else 0.0


def _facts(predicted: list[LabelledBox], judging: _Judging) -> dict[str, float]:
    """The facts reported about a reply, independent of the thresholds."""
    truth = judging.truth
    if not truth:
        return {"boxes": float(len(predicted))}
    matched = label_first(predicted, truth, min_iou=0.0)
    ranked = by_area(predicted) if judging.ranking == "area" else predicted
    precisions = average_precision(ranked, truth)
    facts = {"iou": fsum(matched) / len(truth), "boxes": float(len(predicted))}
    facts["completeness"] = _completeness(sum(v >= 0.5 for v in matched), len(truth), len(predicted))
    facts |= {f"iou@{at}": sum(value >= at / 100 for value in matched) / len(truth) for at in REPORTED}
    return facts | {"ap": fmean(precisions), "ap50": precisions[0], "ap75": precisions[5]}


def _judging(sample: Sample, *, labelled: bool) -> _Judging:
    given = options(sample, _KNOWN)
    ratios = given.get("det_reward_ratio", {})
    if not isinstance(ratios, dict) or set(ratios) - {*_RATIOS, "iou_completeness"}:
        known = ", ".join((*_RATIOS, "iou_completeness"))
        raise wrong_option(sample, "det_reward_ratio", ratios, f"an object with keys of {known}")
    numbers = {
        key: _share(sample, f"det_reward_ratio.{key}", value)
        for key, value in ratios.items()
        if value is not None
    }
    completeness = numbers.pop("iou_completeness", 0.0)
    weights = numbers if any(name in numbers for name in _RATIOS) else {"iou_max_label_first": 1.0}
    if not any(weights.values()):
        raise wrong_option(sample, "det_reward_ratio", ratios, "a weight above 0 for one term at least")
    penalty = _share(sample, "size_penalty", given.get("size_penalty", SIZE_PENALTY))
    if penalty == 0:
        raise wrong_option(sample, "size_penalty", penalty, "a number above 0, 1 at most,")
    return _Judging(
        truth=truth_boxes(sample, labelled=labelled),
        ratios=weights,
        completeness=completeness,
        size_penalty=penalty,
        ranking=one_of(sample, "ap_ranking", AP_RANKINGS, default="area"),
        whole=one_of(sample, "credit", CREDITS, default="overlap") == "whole",
    )


def _thresholds(sample: Sample) -> list[float]:
    """The IoU thresholds; empty where none are set."""
    value = sample.verifier_parm.get("iou")
    if value is None:
        return []
    if value == []:
        raise wrong_option(sample, "iou", value, "one number in [0, 1] at least")
    return [_share(sample, "iou", one) for one in (value if isinstance(value, list) else [value])]


def _share(sample: Sample, key: str, value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not isfinite(value)
        or not 0 <= value <= 1
    ):
        raise wrong_option(sample, key, value, "a number in [0, 1]")
    return float(value)


VERIFIERS.add(
    NAME,
    Verifier(
        verify_detection,
        check_detection,
        boxes_form,
        Case(gold=CUP_AND_PEN, broken_gold="[]", wrong=ELSEWHERE, parm=SQUARE),
        right=right_boxes,
        partial_credit=True,
        answers_in_boxes=True,
        self_contained=True,
        in_worker=True,  # matching hundreds of boxes takes seconds
        reads_iou=True,
    ),
)
