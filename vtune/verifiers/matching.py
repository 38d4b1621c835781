"""Which predicted box matches which ground-truth box."""

from collections import defaultdict
from collections.abc import Sequence

from vtune.schema.box import iou
from vtune.verifiers.boxes import LabelledBox


def label_first(
    predicted: Sequence[LabelledBox],
    truth: Sequence[LabelledBox],
    *,
    min_iou: float,
    iou_weight: float = 1.0,
    match_weight: float = 0.0,
) -> list[float]:
    """IoU of each matched pair, where only boxes with the same label may be matched.

    Each box is matched at most once, only at `min_iou` or more, and so as to maximise the sum of `iou_weight`
    · IoU + `match_weight` over the pairs. V-Triune's server lets each box of the
    ground truth in turn take the best one left; then the order of a list matters, and a box that gets
    better can take a partner away from another and lower the sum.

    Args:
        predicted: Boxes of the reply.
        truth: Boxes of the ground truth, in the same space.
        min_iou: In [0, 1]; 0 matches anything that overlaps.
        iou_weight: Weight of a match's IoU.
        match_weight: Value of a match in addition to its IoU.
    """
    ours, theirs = _by_label(truth), _by_label(predicted)
    found: list[float] = []
    for label, boxes in ours.items():
        overlaps = [[iou(one.box, other.box) for other in theirs.get(label, ())] for one in boxes]
        worth = [
            [iou_weight * value + match_weight if _meet(value, min_iou) else 0.0 for value in row]
            for row in overlaps
        ]
        found += [overlaps[i][j] for i, j in best_assignment(worth) if _meet(overlaps[i][j], min_iou)]
    return sorted(found, reverse=True)


def iou_first(
    predicted: Sequence[LabelledBox], truth: Sequence[LabelledBox], *, min_iou: float
) -> list[float]:
    """IoU of each matched pair, where overlap decides the pairs and labels are compared
    afterwards.

    The pair with the largest overlap is taken first, whatever its labels; of the resulting pairs, those with
    the same label count. (V-Triune's server has this variant with a bug that makes it take the last pair
    instead; its published data give it no weight.)
    """
    ours, theirs = sorted(truth), sorted(predicted)
    pairs = [
        (overlap, i, j)
        for i, one in enumerate(ours)
        for j, other in enumerate(theirs)
        if _meet(overlap := iou(one.box, other.box), min_iou)
    ]
    # Ties go to the pair whose labels agree.
    pairs.sort(key=lambda pair: (-pair[0], ours[pair[1]].label != theirs[pair[2]].label, pair[1:]))
    taken_ours: set[int] = set()
    taken_theirs: set[int] = set()
    found = []
    for overlap, i, j in pairs:
        if i in taken_ours or j in taken_theirs:
            continue
        taken_ours.add(i)
        taken_theirs.add(j)
        if ours[i].label == theirs[j].label:
            found.append(overlap)
    return found


def best_assignment(worth: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Pairs (row, column), each row and column used at most once, with the largest sum of `worth` >= 0.

    All of the shorter side is used. Shortest augmenting paths (Jonker and Volgenant 1987), in O(n² m).
    """
    if not worth or not worth[0]:
        return []
    if len(worth) > len(worth[0]):
        return [(i, j) for j, i in best_assignment([list(column) for column in zip(*worth, strict=True)])]
    rows, columns = len(worth), len(worth[0])
    row_price = [0.0] * (rows + 1)
    column_price = [0.0] * (columns + 1)
    owner = [0] * (columns + 1)  # 1-based row of each column; column 0 holds the row being assigned
    for row in range(1, rows + 1):
        owner[0] = row
        column = 0
        slack = [float("inf")] * (columns + 1)
        came_from = [0] * (columns + 1)
        seen = [False] * (columns + 1)
        while owner[column]:
            seen[column] = True
            i, step, following = owner[column], float("inf"), 0
            for j in range(1, columns + 1):
                if seen[j]:
                    continue
                reduced = -worth[i - 1][j - 1] - row_price[i] - column_price[j]
                if reduced < slack[j]:
                    slack[j], came_from[j] = reduced, column
                if slack[j] < step:
                    step, following = slack[j], j
            for j in range(columns + 1):
                if seen[j]:
                    row_price[owner[j]] += step
                    column_price[j] -= step
                else:
                    slack[j] -= step
            column = following
        while column:
            owner[column] = owner[came_from[column]]
            column = came_from[column]
    return [(owner[j] - 1, j - 1) for j in range(1, columns + 1) if owner[j]]


def _meet(overlap: float, min_iou: float) -> bool:
    return overlap > 0 and overlap >= min_iou


def _by_label(boxes: Sequence[LabelledBox]) -> dict[str, list[LabelledBox]]:
    """By label, in a canonical order: the order of a list must not affect a score."""
    found: dict[str, list[LabelledBox]] = defaultdict(list)
    for entry in sorted(boxes):
        found[entry.label].append(entry)
    return dict(found)
