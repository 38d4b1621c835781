"""What a question about a place knows: the correct box, and the size of its picture."""

from typing import Any

from vtune.schema.box import Box
from vtune.schema.sample import Sample
from vtune.verifiers.boxes import truth_boxes


def truth_of(sample: Sample) -> Box:
    """The box of the ground truth, in pixels of the stored picture."""
    return truth_boxes(sample, labelled=False)[0].box


def size_of(sample: Sample) -> tuple[float, float]:
    """Width and height of the stored picture."""
    parm: Any = sample.verifier_parm
    return float(parm["width"]), float(parm["height"])
