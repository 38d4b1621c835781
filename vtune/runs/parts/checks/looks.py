"""Whether pictures show the regions that a call claims, as scoring will find."""

import io
import random
from collections.abc import Sequence

from PIL import Image

from vtune.looks.geometry import map_of, onto
from vtune.looks.pictures import viewed
from vtune.looks.verify import check
from vtune.runs.parts.checks.check import Broken
from vtune.sandbox import ShownCrop
from vtune.schema.box import area, clamp
from vtune.schema.decoded import decoded
from vtune.tools.observation import Observation

TEXTURED = (256, 192)
"""Width and height of a picture with detail everywhere, so that its pixels identify every place in it."""


def textured() -> bytes:
    """That picture, encoded."""
    out, small = io.BytesIO(), (TEXTURED[0] // 8, TEXTURED[1] // 8)
    noise = random.Random(0).randbytes(3 * small[0] * small[1])
    Image.frombytes("RGB", small, noise).resize(TEXTURED, Image.Resampling.BICUBIC).save(out, "PNG")
    return out.getvalue()


def shown_crops(seen: Observation) -> list[tuple[ShownCrop, int]]:
    """The regions that a call says it shows, each with the number of the picture among those it returned."""
    return [(crop, crop.shown) for crop in seen.crops if crop.shown is not None]


def check_shown(pictures: Sequence[bytes], seen: Observation) -> str:
    """Compare every picture with the region that the call says it shows, as the red flag `faked` does.

    Args:
        pictures: Pictures of the conversation so far, encoded.
        seen: What the call returned.

    Returns:
        In words, the first look that earns no more than a miss; empty if there is none.

    Raises:
        Broken: If a picture shows nothing of its region, or the region's place cannot be determined.
    """
    unpaid = ""
    for crop, number in shown_crops(seen):
        view, source = viewed(seen.images[number], None), decoded(pictures[crop.image])
        size = (view.pixels.shape[1], view.pixels.shape[0])
        claim = onto(crop.bbox, size) if crop.matrix is None else map_of(crop.matrix)
        if claim is None:
            raise Broken(
                "the `matrix` of a crop has no way back", "correct it: see `vtune.schema.trajectory.Crop`"
            )
        box = clamp(crop.bbox, source.shape[1], source.shape[0])
        if area(box) == 0:
            raise Broken(f"the `bbox` {crop.bbox} lies outside of the picture", "give pixels of that picture")
        checked = check(source, view, claim, box)
        if checked.look == "faked":
            raise Broken(
                f"picture {number} shows nothing of {crop.bbox}: such a look is a red flag (`faked`)",
                "say in `matrix` of ShownCrop where each pixel was; give no crop for what is not a look",
            )
        if checked.look != "verified":
            unpaid = unpaid or f"one {checked.look} ({checked.why}), which earns no more than a miss"
    return unpaid


def counted(looks: int, unpaid: str) -> str:
    """How many looks there were, and the outcome of checking them."""
    return f"{looks or 'no'} look{'' if looks == 1 else 's'}" + (f", {unpaid or 'verified'}" if looks else "")
