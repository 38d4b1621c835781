"""MEGA-Bench's metrics by name, including those of lists, sets, objects and places.

Source: TIGER-AI-Lab/MEGA-Bench ee324ab, `megabench/metrics`; each names its class there.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Number
from types import MappingProxyType
from typing import Any

import numpy as np

from vtune.verifiers import mega_texts
from vtune.verifiers.mega_parsing import literal
from vtune.verifiers.mega_values import (
    boxes_of,
    items_of,
    object_of,
    overlaps,
    points_of,
    set_of,
    set_of_text,
    share,
    tagged_boxes,
    tagged_point,
)

Metric = Callable[[Any, Any], float]
"""(answer of a field, truth) -> score; below 0 if the field does not count."""
FAILURES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Exceptions raised for an answer of another form; upstream gives it 0."""
WIDEST = 10.0
"""Mean error from which `angle_seq_float_rmse` is 0."""
DECAY = 10.0
"""How fast a point's score decreases with its distance in picture diagonals."""
_JOINTS = str.maketrans("", "", " -\n\t_.")


def score(metric: str, answer: Any, truth: Any) -> float:
    """The score of a natively implemented metric: in [0, 1], or -1 if the field does not count.

    A value that is not finite counts as 0, ours; upstream leaves such a field out of the mean.
    """
    try:
        value = float(METRICS[metric](answer, truth))
    except FAILURES:
        return 0.0
    return -1.0 if value < 0 else min(value, 1.0) if math.isfinite(value) else 0.0


def same_set(answer: Any, truth: Any) -> float:
    """The same items (`SetEquality`)."""
    return float(set_of(answer) == set_of(truth))


def same_set_uncased(answer: Any, truth: Any) -> float:
    """The same texts, ignoring case (`SetEqualityCaseInsensitive`)."""
    return float({one.upper() for one in set_of(answer)} == {one.upper() for one in set_of(truth)})


def same_lines(answer: Any, truth: Any) -> float:
    r"""The same lines in any order, ignoring case; `\n` also separates (`StringSetEqualityLineSplit`)."""
    one, other = (text.replace("\\n", "\n").lower().split("\n") for text in (answer, truth))
    return float(set(one) == set(other))


def same_parts(answer: Any, truth: Any) -> float:
    """The same comma-separated parts in any order, ignoring case (`StringSetEqualityCommaSplit`)."""
    one, other = ({_lower(item) for item in set_of_text(text)} for text in (answer, truth))
    return float(one == other)


def _lower(item: Any) -> Any:
    return item.lower() if isinstance(item, str) else item


def jaccard(answer: Any, truth: Any) -> float:
    """Size of the intersection / size of the union (`Jaccard`)."""
    if answer is None:
        return 0.0
    found, wanted = set_of(answer), set_of(truth)
    return share(found, wanted, set(found) | set(wanted))


def jaccard_uncased(answer: Any, truth: Any) -> float:
    """The same, ignoring case; in tuples of texts also spaces and punctuation (`JaccardCaseInsensitive`)."""
    if answer is None:
        return 0.0
    found, wanted = set_of(answer), set_of(truth)
    if wanted and all(isinstance(item, str) for item in wanted):
        found, wanted = {str(item).lower() for item in found}, {item.lower() for item in wanted}
    elif wanted and all(isinstance(item, tuple) for item in wanted):
        found, wanted = ({tuple(map(_bare, item)) for item in items} for items in (found, wanted))
    else:
        return 0.0
    return share(found, wanted, found | wanted)


def _bare(text: Any) -> str:
    return str(text.lower().translate(_JOINTS))


def precision(answer: Any, truth: Any) -> float:
    """Share of the answer's items that are in the truth; 1 if the answer has none (`SetPrecision`)."""
    if answer is None:
        return 0.0
    found = set_of(answer)
    return share(found, set_of(truth), set(found))


def chess_moves(answer: Any, truth: Any) -> float:
    """Jaccard index of moves, without the marks at their ends (`ChessMoveJaccard`)."""
    if answer is None:
        return 0.0
    one, other = (
        {move.removesuffix("!").removesuffix("#") for move in set_of_text(moves)} for moves in (answer, truth)
    )
    return share(one, other, one | other)


def prefix(answer: Any, truth: Any) -> float:
    """Length of the common prefix / length of the truth (`LongestCommonListPrefixRatio`)."""
    found, wanted = items_of(answer), items_of(truth)
    right = [bool(one == other) for one, other in zip(found, wanted, strict=False)]
    return ([*right, False].index(False)) / len(wanted)


def same_list(answer: Any, truth: Any) -> float:
    """The same items in the same order (`SequenceEquality`)."""
    return float(items_of(str(answer)) == items_of(truth))


def same_list_uncased(answer: Any, truth: Any) -> float:
    """The same, ignoring case; the truth contains texts (`SequenceEqualityCaseInsensitive`)."""
    found = [item.lower() if isinstance(item, str) else str(item) for item in items_of(str(answer))]
    return float(found == [item.lower() for item in items_of(truth)])


def places_right(answer: Any, truth: Any) -> float:
    """Share of items right in their places, if the lengths agree (`SequenceAccuracyCaseInsensitive`)."""
    found, wanted = items_of(answer), items_of(truth)
    if len(found) != len(wanted):
        return 0.0
    right = [
        one.lower() == other.lower()
        if isinstance(other, str)
        else isinstance(one, Number) and isinstance(other, Number) and one == other
        for one, other in zip(found, wanted, strict=True)
    ]
    return float(sum(right) / len(wanted))


def same_object(answer: Any, truth: Any) -> float:
    """The same object (`DictEquality`)."""
    found = object_of(answer)
    return float(isinstance(found, dict) and found == object_of(truth))


def object_precision(answer: Any, truth: Any) -> float:
    """Share of the answer's keys whose values are the truth's (`DictPrecision`)."""
    found, wanted = _objects(answer, truth)
    right = [mega_texts.exact(value, wanted[key]) for key, value in found.items() if key in wanted]
    return sum(right) / len(found)


def object_recall(answer: Any, truth: Any) -> float:
    """Share of the truth's keys whose values the answer has (`DictExactStrMatchAggRecall`)."""
    found, wanted = _objects(answer, truth)
    return sum(mega_texts.exact(found.get(key), value) for key, value in wanted.items()) / len(wanted)


def _over_keys(metric: Metric) -> Metric:
    """The mean of a metric over the union of the keys; a missing value is an empty list.

    `DictSetEqualityAggJaccard`, `DictJaccardAggJaccard`, `DictNbboxIouTupleAggJaccard`.
    """

    def mean(answer: Any, truth: Any) -> float:
        found, wanted = _objects(answer, truth)
        keys = found.keys() | wanted.keys()
        return math.fsum(metric(found.get(key, []), wanted.get(key, [])) for key in keys) / len(keys)

    return mean


def _objects(answer: Any, truth: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
    found, wanted = object_of(answer), object_of(truth)
    if not isinstance(found, dict) or not isinstance(wanted, dict):
        raise TypeError("no objects")
    return found, wanted


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def box_sets(answer: Any, truth: Any) -> float:
    """The mean, over predicted boxes, of the best IoU with a true one (`NbboxIouTuple`)."""
    found, wanted = (
        value if isinstance(value, list | tuple) else boxes_of(value) for value in (answer, truth)
    )
    try:
        return _mean(overlaps(found, wanted))
    except FAILURES:
        return 0.0  # for this key; the other keys of its object still count


def one_box(answer: Any, truth: Any) -> float:
    """The IoU of two boxes (`NbboxIouSingle`)."""
    return overlaps([literal(answer)], [literal(truth)])[0]


def boxes_in_order(answer: Any, truth: Any) -> float:
    """The mean IoU of boxes in order, if the lengths agree (`NbboxIouSequence`)."""
    found = answer if isinstance(answer, list | tuple) else boxes_of(str(answer))
    wanted = truth if isinstance(truth, list | tuple) else boxes_of(truth)
    if len(found) != len(wanted):
        return 0.0
    return _mean([overlaps([one], [other])[0] for one, other in zip(found, wanted, strict=True)])


def tagged_box(answer: Any, truth: Any) -> float:
    """The mean, over boxes in tags, of the best IoU with a true one (`XmlNbboxIouSingle`)."""
    found, wanted = (
        value if isinstance(value, list | tuple) else tagged_boxes(value) for value in (answer, truth)
    )
    if len(found) == 4 and isinstance(found[0], Number):
        found = [found]
    return _mean(overlaps(found, wanted))


def point_in_boxes(answer: Any, boxes: Any) -> float:
    """Whether the point is in a box, edges included (`XmlNormPointInBbox`); `boxes` are texts."""
    point = answer if isinstance(answer, list | tuple) else tagged_point(answer)
    if point is None or len(point) != 2:
        return 0.0
    x, y = point
    return float(
        any(x0 <= x <= x1 and y0 <= y <= y1 for x0, y0, x1, y1 in (boxes_of(one)[0] for one in boxes))
    )


def point_distance(answer: Any, truth: Any) -> float:
    """1 - the distance of two points in fractions of the sides, at least 0 (`XmlNormPointDistance`)."""
    return max(0.0, 1 - math.dist(_share_point(answer), _share_point(truth)))


def _share_point(value: Any) -> tuple[float, float]:
    point = value if isinstance(value, list | tuple) else tagged_point(value)
    if point is None or len(point) != 2 or not all(0 <= side <= 1 for side in point):
        raise ValueError("no point in shares of the sides")
    return point[0], point[1]


def points_in_order(answer: Any, truth: Any) -> float:
    """The mean of exp(-10 distance / diagonal) over points in order (`CoordsSequenceSimilarity`)."""
    found, wanted = (
        np.array(value if isinstance(value, list | tuple) else points_of(value)) for value in (answer, truth)
    )
    if found.shape != wanted.shape:
        return 0.0
    distances = np.linalg.norm(found - wanted, axis=1) / math.sqrt(2)
    return float(np.mean(np.exp(-DECAY * distances)))


def angles(answer: Any, truth: Any) -> float:
    """1 - the mean error of numbers in order / 10, at least 0 (`AngleSeqFloatRMSE`)."""
    found, wanted = np.array(items_of(answer)), np.array(items_of(truth))
    if len(found) != len(wanted):
        return 0.0
    with np.errstate(all="ignore"):
        error = float(np.sqrt((found - wanted) ** 2).sum()) / len(wanted)
    return 1 - min(error, WIDEST) / WIDEST


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "exact_str_match": mega_texts.exact,
        "exact_str_match_case_insensitive": mega_texts.exact_uncased,
        "code_result_exact_str_match": mega_texts.exact_of_code,
        "simple_str_match": mega_texts.simple,
        "multi_ref_phrase": mega_texts.any_reference,
        "normalized_similarity_damerau_levenshtein": mega_texts.similar,
        "near_str_match": mega_texts.near,
        "number_rel_diff_ratio": mega_texts.relative,
        "positive_int_match": mega_texts.positive,
        "normalized_rmse": mega_texts.near_number,
        "general_single_numerical_match": mega_texts.numerical,
        "boxed_single_numerical_match": mega_texts.boxed_numerical,
        "set_equality": same_set,
        "set_equality_case_insensitive": same_set_uncased,
        "str_set_equality_line_break": same_lines,
        "str_set_equality_comma": same_parts,
        "jaccard_index": jaccard,
        "jaccard_index_case_insensitive": jaccard_uncased,
        "set_precision": precision,
        "chess_move_list_jaccard_index": chess_moves,
        "longest_common_list_prefix_ratio": prefix,
        "sequence_equality": same_list,
        "sequence_equality_case_insensitive": same_list_uncased,
        "sequence_accuracy_case_insensitive": places_right,
        "angle_seq_float_rmse": angles,
        "dict_equality": same_object,
        "dict_precision": object_precision,
        "dict_exact_str_match_agg_recall": object_recall,
        "dict_set_equality_agg_jaccard": _over_keys(same_set),
        "dict_jaccard_agg_jaccard": _over_keys(jaccard),
        "dict_nbbox_iou_tuple_agg_jaccard": _over_keys(box_sets),
        "nbbox_iou_tuple": box_sets,
        "nbbox_iou_single": one_box,
        "nbbox_iou_sequence": boxes_in_order,
        "xml_nbbox_iou_single": tagged_box,
        "xml_norm_point_in_bbox": point_in_boxes,
        "xml_norm_point_distance": point_distance,
        "sequence_coords_similarity": points_in_order,
    }
)
"""Name in the data -> metric."""
