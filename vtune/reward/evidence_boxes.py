"""The evidence judge `boxes`: geometry and pixels decide what a call shows."""

import asyncio

from vtune.judge.client import JudgeClient
from vtune.reward.evidence_judge import EVIDENCE, EvidencePart
from vtune.reward.flags import whole_images
from vtune.reward.glimpses import Glimpse, glimpses, legible
from vtune.reward.looks import seen, shows_everything
from vtune.reward.recipe import EvidenceLevels
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.schema.verdict import Verdict

NAME = "boxes"


class BoxJudge:
    """Judges by geometry and pixels, using a sample's evidence boxes as targets.

    One target is enough, and the best look counts (§4.3: isolating one correct region is rewarded). Only
    crops of input pictures that a returned picture shows are considered. A call without any, e.g. one that
    returned a picture made up by code, is no look and earns nothing, not even the level of a miss.
    """

    def __init__(self, levels: EvidenceLevels) -> None:
        self._levels = levels

    async def judge(self, sample: Sample, trajectory: Trajectory, k: int) -> Verdict:
        """The best level over the call's crops and the sample's boxes."""
        return await asyncio.to_thread(self._judge, sample, trajectory, k)

    def _judge(self, sample: Sample, trajectory: Trajectory, k: int) -> Verdict:
        levels = self._levels
        if all(crop.shown is None for crop in trajectory.calls[k].crops):
            return Verdict(0.0, "no look: no picture shows a part of an input")
        found = glimpses(sample, trajectory, k, levels)
        if not found:
            return Verdict(levels.miss, "miss: no crop shows any of the target")
        if shows_everything(trajectory, k, sample.evidence, levels):
            return Verdict(levels.miss, f"miss: everything: more than {levels.most_of_input:.0%} of an input")
        best = found[0]
        why = f"{best.share:.0%} of the target, {best.size:.0%} of the picture"
        problems: dict[Glimpse, str] = {}
        for name, score, share_at, size_at in (
            ("full", levels.full, levels.full_share, levels.full_size),
            ("partial", levels.partial, levels.partial_share, levels.partial_size),
        ):
            for glimpse in found:
                if glimpse.share < share_at or glimpse.size < size_at:
                    continue
                if glimpse not in problems:
                    problems[glimpse] = self._problem(trajectory, k, glimpse)
                if not problems[glimpse]:
                    what = f"{glimpse.share:.0%} of the target, {glimpse.size:.0%} of the picture"
                    return Verdict(score, f"{name}: {what}")
                why = problems[glimpse]
        return Verdict(levels.miss, f"miss: {why}")

    async def shows_target(self, sample: Sample, trajectory: Trajectory, k: int) -> bool:
        """Whether a look holds `target_share` of a box, at least `partial_size` large; whole images never."""
        return await asyncio.to_thread(self._shows_target, sample, trajectory, k)

    def _shows_target(self, sample: Sample, trajectory: Trajectory, k: int) -> bool:
        levels = self._levels
        return any(
            glimpse.share >= levels.target_share
            and glimpse.size >= levels.partial_size
            and not self._problem(trajectory, k, glimpse)
            for glimpse in self._pointed(sample, trajectory, k)
        )

    async def shows_small(self, sample: Sample, trajectory: Trajectory, k: int) -> bool:
        """Whether a look holds `full_share` of a box, but smaller than `partial_size`."""
        return await asyncio.to_thread(self._shows_small, sample, trajectory, k)

    def _shows_small(self, sample: Sample, trajectory: Trajectory, k: int) -> bool:
        levels = self._levels
        return any(
            glimpse.share >= levels.full_share
            and glimpse.size < levels.partial_size
            and not self._problem(trajectory, k, glimpse)
            for glimpse in self._pointed(sample, trajectory, k)
        )

    def _pointed(self, sample: Sample, trajectory: Trajectory, k: int) -> list[Glimpse]:
        """Targets in the regions of call `k`, if these point at something."""
        levels = self._levels
        if shows_everything(trajectory, k, sample.evidence, levels):
            return []
        whole = whole_images(trajectory, k, levels)
        return [
            glimpse for glimpse in glimpses(sample, trajectory, k, levels) if glimpse.crop.shown not in whole
        ]

    def _problem(self, trajectory: Trajectory, k: int, glimpse: Glimpse) -> str:
        """Why the policy does not see a target where a crop claims to show it; empty if it does."""
        if self._levels.looks == "claimed":
            return ""
        checked = seen(trajectory, trajectory.calls[k], glimpse.crop, glimpse.box)
        if checked.look != "verified":
            return f"{checked.look}: {checked.why}"
        if not legible(trajectory, glimpse, checked.side, self._levels):
            return f"illegible: {checked.side:.0f} pixels per side, no more than in the question's picture"
        return ""


def opened(levels: EvidenceLevels, client: JudgeClient | None) -> BoxJudge:
    """The judge, which asks no model."""
    return BoxJudge(levels)


EVIDENCE.add(
    NAME,
    EvidencePart(
        "The evidence boxes of the sample, and the pixels of what a call returned.",
        opened,
        judges=lambda sample: bool(sample.evidence),
        lacking="no evidence boxes",
    ),
)
