"""What a model judge sees of a call: our own crops of the regions that its pictures verifiably show.

Never the pictures themselves: whoever writes the code could write to the judge in them. What the code printed
is text of that kind: it is quoted, and the judge that reads it can only lower what the cuts have earned
(`vtune.reward.evidence`).
"""

import io

import numpy as np
from PIL import Image

from vtune.judge.pictures import read_bytes
from vtune.judge.prompts import readable
from vtune.looks.geometry import onto
from vtune.looks.verify import Checked
from vtune.looks.view import sampled
from vtune.reward.looks import MOST_CLAIMS, pointing, seen
from vtune.reward.recipe import EvidenceLevels
from vtune.schema.box import Box, clamp
from vtune.schema.decoded import Pixels, decoded
from vtune.schema.message import Picture
from vtune.schema.trajectory import Call, Trajectory
from vtune.tools.python import NAME as PYTHON

LONGEST = 1024
"""Pixels of the longer side of a cut, at most; ours."""
MOST = 16
"""Cuts of one call, at most; ours."""
DISAGREES, MATTERS = 0.3, 0.3
"""A window is blanked whose local correlation is below the first, where its structure is more than the second
times its even share: something covers it."""
BLANK = 127


def recut(
    trajectory: Trajectory, k: int, levels: EvidenceLevels, skipped: frozenset[int] = frozenset()
) -> list[Picture]:
    """The verified regions of call `k`, cut out of the inputs as large as the policy sees them.

    What in a region its picture does not show is blank, so that one hidden in places is cut all the same.
    Pictures of tools other than code are our own work, and those that are not crops (search results) stay as
    they are.

    Args:
        trajectory: With its pictures.
        k: Number of the call.
        levels: Of the recipe: what is an overview beside a crop, which counts for nothing.
        skipped: Pictures, as indices, that count for nothing.

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
            found.append(Picture(data=_png(cut), origin=f"call:{k}"))
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


def _png(pixels: Pixels) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG", compress_level=1)
    return out.getvalue()
