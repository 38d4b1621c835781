"""How many boxes a list has too many or too few, where padding must not make up for missing ones."""

from collections.abc import Sequence

from vtune.schema.box import proper
from vtune.verifiers.boxes import LabelledBox
from vtune.verifiers.spaces import Spaces


def off_by(predicted: Sequence[LabelledBox], truth: Sequence[LabelledBox], spaces: Spaces) -> int:
    """Number of missing or surplus boxes.

    A box that is empty, outside the picture or a copy does not count as one that was asked for, but still
    counts against the list: otherwise junk could pad a list to the right number. A copy has the same label
    and the same rounded coordinates; as many copies as in the ground truth itself are allowed.
    """
    real = [entry for entry in predicted if proper(entry.box) and spaces.shows(entry.box)]
    distinct = len(real) - max(0, _copies(real) - _copies(truth))
    return max(len(predicted), len(truth)) - min(distinct, len(truth))


def _copies(boxes: Sequence[LabelledBox]) -> int:
    return len(boxes) - len({(entry.label, tuple(map(round, entry.box))) for entry in boxes})
