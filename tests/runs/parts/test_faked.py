"""What an evidence judge is shown in place of the region that a call claims."""

import io
from dataclasses import replace

import pytest
from PIL import Image

from vtune.runs.parts.checks.evidence import SIDE, standard
from vtune.runs.parts.checks.faked import fakes
from vtune.schema.box import Box
from vtune.schema.trajectory import Crop


@pytest.mark.parametrize(
    ("claimed", "shown"),
    [
        ((56, 56, 84, 84), (0, 0, 28, 28)),
        ((40, 40, 100, 100), (0, 0, 40, 60)),
        ((10, 0, 70, 100), (70, 0, 100, 100)),
        ((4, 0, 96, 97), None),
        ((0, 0, 100, 100), None),
    ],
)
def test_the_substitute_region_does_not_overlap_the_claimed_one(claimed: Box, shown: Box | None) -> None:
    """A judge that honestly looks at the picture would find the target in one that overlaps."""
    gold = standard().gold
    call = replace(gold.calls[0], crops=(Crop(0, claimed, 1),))
    found = dict(fakes(replace(gold, calls=(call,))))
    assert list(found) == ["black", "noise", *(["another region"] if shown else [])]
    for done in found.values():
        assert done.calls[0].crops == call.crops
        assert done.images[0] == gold.images[0]
    if shown is not None:
        whole, drawn = (
            Image.open(io.BytesIO(picture.data or b"")) for picture in found["another region"].images
        )
        assert whole.size == (SIDE, SIDE)
        assert drawn.tobytes() == whole.crop(shown).resize(drawn.size).tobytes()
