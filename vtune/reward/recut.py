"""What a model judge sees of a call: our own crops of the regions that its pictures verifiably show.

Never the pictures themselves: whoever writes the code could write messages to the judge in them. What the
code printed is such text: it is quoted, and a judge that reads it can only lower the level that our crops
earned (`vtune.reward.evidence`).
"""

import numpy as np

from vtune.judge.pictures import read_bytes
from vtune.judge.prompts import readable
from vtune.looks.geometry import onto
from vtune.looks.verify import Checked
from vtune.looks.view import sampled
from vtune.reward.looks import MOST_CLAIMS, pointing, seen
from vtune.reward.recipe import EvidenceLevels
from vtune.schema.box import Box, clamp
from vtune.schema.decode import png_of
from vtune.schema.decoded import Pixels, decoded
from vtune.schema.message import Picture
from vtune.schema.trajectory import Call, Trajectory
from vtune.tools.python import NAME as PYTHON

LONGEST = 1024
"""Limit on the pixels of a crop's longer side; ours."""
MOST = 16
"""Limit on the crops per call; ours."""
DISAGREES, MATTERS = 0.3, 0.3
"""A window is blanked, because something covers it, if its local correlation is below the first value and its
structure is more than the second value times an even share."""
BLANK = 127


def recut(
    trajectory: Trajectory, k: int, levels: EvidenceLevels, skipped: frozenset[int] = frozenset()
) -> list[Picture]:
    """The verified regions of call `k`, cut out of the inputs at the size at which the policy sees them.

    Parts of a region that its picture does not show are blank, so even a partly hidden region is cut.
    Pictures from tools other than code are our own work: those that are not crops (search results) are passed
    on unchanged.

    Args:
        trajectory: With its pictures.
        k: Index of the call.
        levels: Those of the recipe; they decide what is a mere overview beside a crop, which is dropped.
        skipped: Pictures to leave out, as indices.

    Raises:
        DataError: If a picture cannot be read.
    """
    call = trajectory.calls[k]
    placed = {crop.shown for crop in call.crops}
    found = [
        trajectory.images[index]
        for index in call.images
        if call.tool != PYTHON and index not in placed and index not in skipped
    ]
    claims = [crop for crop in pointing(trajectory, k, levels) if crop.shown not in skipped]
    for crop in claims if len(claims) <= MOST_CLAIMS else ():
        checked = seen(trajectory, call, crop, crop.bbox)
        if len(found) < MOST and (checked.look == "verified" or checked.partly):
            source = decoded(read_bytes(trajectory.images[crop.image]))
            cut = _cut(source, clamp(crop.bbox, source.shape[1], source.shape[0]), checked)
            found.append(Picture(data=png_of(cut), origin=f"call:{k}"))
    return found


def printed(call: Call) -> str:
    """What the policy's code printed, as far as a judge may read it; empty for other tools."""
    return readable(call.output) if call.tool == PYTHON else ""


def _cut(source: Pixels, box: Box, checked: Checked) -> Pixels:
    wide, high = box[2] - box[0], box[3] - box[1]
    scale = min(checked.side / (wide * high) ** 0.5, LONGEST / max(wide, high))
    size = (max(1, round(wide * scale)), max(1, round(high * scale)))
    cut = sampled(source, onto(box, size), size).copy()
    if checked.found is not None:
        hidden = (checked.found.windows < DISAGREES) & (
            checked.found.weights > MATTERS / checked.found.weights.size
        )
        rows = np.arange(size[1]) * hidden.shape[0] // size[1]
        columns = np.arange(size[0]) * hidden.shape[1] // size[0]
        cut[hidden[np.ix_(rows, columns)]] = BLANK
    return cut
