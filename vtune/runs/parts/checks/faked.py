"""Looks that claim what they do not show: an evidence judge that believes the claim would reward them."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from PIL import Image

from vtune.errors import DataError, ServiceError
from vtune.runs.parts.checks.check import Broken
from vtune.schema.box import Box, area
from vtune.schema.decode import png_of
from vtune.schema.message import Picture
from vtune.schema.pixels import decode_picture
from vtune.schema.trajectory import Call, Trajectory
from vtune.tools.python import NAME as PYTHON

BELIEVED: tuple[tuple[str, Callable[[Call], Call]], ...] = (
    ("`Call.crops`", lambda call: replace(call, crops=())),
    ("`Call.arguments`", lambda call: replace(call, arguments="{}")),
    ("`Call.output`", lambda call: replace(call, output="")),
    ("`Call.images`", lambda call: replace(call, images=())),
)
"""What code may claim about what it has shown -> the call without that claim."""


LEAST = 8
"""Shorter side that another region must have, in pixels."""


def check_unpaid(done: Trajectory, paid: Callable[[Trajectory], str], *, regions: bool) -> str:
    """Test looks whose pictures show something other than the region that the call claims.

    Args:
        done: Its first call shows a region, and claims it.
        paid: What a judge gives for such a call, in words; empty if it gives nothing.
        regions: Whether the judge is known to judge regions. If not, it counts as believing the claim only
            if it stops paying once no region is claimed.

    Returns:
        What was tried, in words.

    Raises:
        Broken: If the judge pays for one; says what the judge believed.
    """
    if not any(crop.shown is not None for crop in done.calls[0].crops):
        return "not tested: the look of the example claims no region"
    tried = []
    for what, fake in fakes(done):
        tried.append(what)
        try:
            found = paid(fake)
        except (ServiceError, DataError) as error:
            raise Broken(
                f"{what} in place of the region that the call claims is not scored: {error.what}",
                "score such a look as a miss: otherwise a policy earns rewards with looks that show nothing",
            ) from error
        if not found:
            continue
        believed = next((name for name, less in BELIEVED if not _still(paid, _first(fake, less))), "")
        if not regions and believed != "`Call.crops`":
            return "the judge does not use the region that a call claims"
        raise Broken(
            f"{found} for {what} in place of the region that the call claims: the judge believes "
            f"{believed or 'any call'}, which code writes itself",
            'reward a look only where `crop.look` is "verified", or look at `trajectory.images[crop.shown]` '
            "itself",
        )
    return f"neither {', '.join(tried[:-1])} nor {tried[-1]}"


def _still(paid: Callable[[Trajectory], str], less: Trajectory) -> bool:
    """Whether a call that claims less is still paid for; one that cannot be judged is not."""
    try:
        return bool(paid(less))
    except (ServiceError, DataError):
        return False


def _first(done: Trajectory, less: Callable[[Call], Call]) -> Trajectory:
    call, *others = done.calls
    return replace(done, calls=(less(call), *others))


def fakes(done: Trajectory) -> Iterator[tuple[str, Trajectory]]:
    """(what is shown in place of the region, the trajectory whose first call still claims that region).

    Args:
        done: Its first call shows what it claims. If its region leaves no room next to it, no other region
            is shown: one that overlaps might show the target too.
    """
    rng = np.random.default_rng(1)
    claimed = {crop.shown: crop for crop in done.calls[0].crops if crop.shown is not None}
    for what in ("black", "noise", "another region"):
        pictures = dict[int, Picture]()
        for number, crop in claimed.items():
            shown = done.images[number]
            size = decode_picture(shown.data or b"").size
            if what == "another region":
                drawn = _elsewhere(decode_picture(done.images[crop.image].data or b""), crop.bbox)
                if drawn is None:
                    break
                drawn = drawn.resize(size)
            else:
                values = rng.integers(0, 256 if what == "noise" else 1, (*size[::-1], 3), dtype=np.uint8)
                drawn = Image.fromarray(values)
            pictures[number] = replace(shown, data=png_of(drawn))
        if len(pictures) < len(claimed):
            continue
        images = tuple(pictures.get(number, picture) for number, picture in enumerate(done.images))
        # As a call of code: our own tools are trusted about their pictures.
        yield what, _first(replace(done, images=images), lambda call: replace(call, tool=PYTHON))


def _elsewhere(picture: Image.Image, box: Box) -> Image.Image | None:
    """A region next to a box, no larger than it; None if there is no room."""
    x0, y0, x1, y1 = (round(side) for side in box)
    width, height = picture.size
    beside = [(0, 0, x0, height), (x1, 0, width, height), (0, 0, width, y0), (0, y1, width, height)]
    left, top, right, bottom = max(beside, key=area)
    right, bottom = min(right, left + x1 - x0), min(bottom, top + y1 - y0)
    return picture.crop((left, top, right, bottom)) if min(right - left, bottom - top) >= LEAST else None
