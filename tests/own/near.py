"""A custom evidence judge: a call shows a target if the centre of its crop lies in it."""

from vtune.judge.client import JudgeClient
from vtune.judge.pictures import picture_size
from vtune.reward.evidence_judge import EVIDENCE, EvidencePart
from vtune.reward.recipe import EvidenceLevels
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.schema.verdict import Verdict


class Near:
    """Judges only by the centre of a crop, however large it is."""

    def __init__(self, levels: EvidenceLevels) -> None:
        self._levels = levels

    async def judge(self, sample: Sample, trajectory: Trajectory, k: int) -> Verdict:
        """The level `full` if a crop is on a target, else `miss`."""
        for picture in trajectory.calls[k].images:
            picture_size(trajectory.images[picture])  # raises if it cannot be read
        if await self.shows_target(sample, trajectory, k):
            return Verdict(self._levels.full, "near: on a target")
        return Verdict(self._levels.miss, "near: beside all targets")

    async def shows_target(self, sample: Sample, trajectory: Trajectory, k: int) -> bool:
        """Whether the centre of a crop lies in an evidence box."""
        for crop in trajectory.calls[k].crops:
            if crop.look != "verified":
                continue  # the returned picture does not show what the call claims
            x, y = (crop.bbox[0] + crop.bbox[2]) / 2, (crop.bbox[1] + crop.bbox[3]) / 2
            for one in sample.evidence:
                x0, y0, x1, y1 = one.bbox
                if one.image == crop.image and x0 <= x <= x1 and y0 <= y <= y1:
                    return True
        return False

    async def shows_small(self, sample: Sample, trajectory: Trajectory, k: int) -> bool:
        """Never: the size of a target is ignored."""
        return False


def opened(levels: EvidenceLevels, client: JudgeClient | None) -> Near:
    """A judge that asks no model."""
    return Near(levels)


EVIDENCE.add(
    "near",
    EvidencePart(
        "The middle of each crop.",
        opened,
        judges=lambda sample: bool(sample.evidence),
        lacking="no evidence boxes",
    ),
)
