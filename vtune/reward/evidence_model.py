"""The evidence judge `model`: a vision-language model decides what a call shows."""

import asyncio
from collections.abc import Sequence

from vtune.judge.client import JudgeClient
from vtune.judge.completions import NoVerdict
from vtune.judge.pictures import picture_size
from vtune.judge.prompts import TARGET_SYSTEM, Prompt, evidence_prompt, target_prompt
from vtune.judge.replies import Level, read_level, read_target
from vtune.reward.evidence_judge import EVIDENCE, EvidencePart
from vtune.reward.flags import no_looks
from vtune.reward.looks import pointing, shows_everything
from vtune.reward.recipe import EvidenceLevels
from vtune.reward.recut import printed, recut
from vtune.schema.box import clamp
from vtune.schema.message import Picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, Trajectory
from vtune.schema.verdict import Verdict

NAME = "model"

ONE_LEVEL = "1, 0.5 or 0.25"
"""The expected form of a judge's reply about a call."""


class ModelJudge:
    """Asks a vision-language model, which sees the question and what the call verifiably showed."""

    def __init__(self, client: JudgeClient, levels: EvidenceLevels) -> None:
        self._client = client
        self._levels = levels

    async def judge(self, sample: Sample, trajectory: Trajectory, k: int) -> Verdict:
        """The level that the model gives to all pictures of the call together (template 13.2).

        With `judge_reads_output` the model is also told where the regions lie. If the pictures show
        something, it is asked again with what the call printed, and the lower of the two levels counts.
        Printed text is the policy's own writing, so it can lower the level (by contradicting the pictures)
        but never raise it: whatever it tells the judge, a call that printed nothing would have earned as
        much.
        """
        levels = self._levels
        if shows_everything(trajectory, k, (), levels):
            return Verdict(levels.miss, f"miss: everything: more than {levels.most_of_input:.0%} of an input")
        pictures = await self._pictures(trajectory, k, frozenset())
        if not pictures:
            return Verdict(levels.miss, f"miss: {_unseen(trajectory.calls[k])}")
        if not levels.judge_reads_output:
            level = await self._level(evidence_prompt(sample), pictures)
            return Verdict(getattr(levels, level), f"{level}: says the judge")
        places = _places(trajectory, k, levels)
        level = await self._level(evidence_prompt(sample, places), pictures)
        output = printed(trajectory.calls[k])
        if output and level != "miss":
            try:
                with_output = await self._level(evidence_prompt(sample, places, output), pictures)
            except NoVerdict:
                # The printed text has confused the judge; the pictures alone did not.
                return Verdict(getattr(levels, level), f"{level}: says the judge, by the pictures alone")
            level = max(level, with_output, key=_LOWER.index)
        return Verdict(getattr(levels, level), f"{level}: says the judge")

    async def _level(self, prompt: Prompt, pictures: Sequence[Picture]) -> Level:
        return await self._client.ask_for(prompt, pictures, read_level, ONE_LEVEL)

    async def shows_target(self, sample: Sample, trajectory: Trajectory, k: int) -> bool | None:
        """Whether the model finds a target in one of the pictures, asked about one by one (template 8.1).

        A whole picture, unchanged, or one seen before is skipped: it is not a look. None if no picture is
        left to ask about.
        """
        if shows_everything(trajectory, k, (), self._levels):
            return None
        pictures = await self._pictures(trajectory, k, no_looks(trajectory, k, self._levels))
        for picture in pictures:
            if await self._client.ask_for(target_prompt(sample), [picture], read_target, "1 or 0"):
                return True
        return False if pictures else None

    async def shows_small(self, sample: Sample, trajectory: Trajectory, k: int) -> bool:
        """Never: the model itself decides whether it sees a target, however small."""
        return False

    async def _pictures(self, trajectory: Trajectory, k: int, skipped: frozenset[int]) -> list[Picture]:
        if self._levels.looks == "claimed":
            return [trajectory.images[n] for n in trajectory.calls[k].images if n not in skipped]
        return await asyncio.to_thread(recut, trajectory, k, self._levels, skipped)


_LOWER: tuple[Level, ...] = ("full", "partial", "miss")


def _places(trajectory: Trajectory, k: int, levels: EvidenceLevels) -> list[str]:
    """Where the verified regions of call `k` lie (CodeV §4.3: metadata), in our own words."""
    found = []
    for crop in pointing(trajectory, k, levels):
        if crop.look == "verified":
            width, height = picture_size(trajectory.images[crop.image])
            x0, y0, x1, y1 = (round(side) for side in clamp(crop.bbox, width, height))
            found.append(f"[{x0}, {y0}, {x1}, {y1}] of {width} x {height} pixels")
    return found


def _unseen(call: Call) -> str:
    """Why a judge is shown nothing of this call."""
    looks = sorted({crop.look for crop in call.crops if crop.look is not None})
    return f"no region of an input is verified ({', '.join(looks)})" if looks else "no region of an input"


def opened(levels: EvidenceLevels, client: JudgeClient | None) -> ModelJudge:
    """The judge, with the recipe's model."""
    if client is None:
        raise ValueError("a judge that asks a model is opened where there is one")
    return ModelJudge(client, levels)


def _says(text: str, shows: bool) -> str:
    """The reply of a model that judges correctly."""
    if shows:
        return "1"
    return "0" if text.startswith(TARGET_SYSTEM) else "0.25"


EVIDENCE.add(
    NAME,
    EvidencePart(
        "The model of `reward.judge`, which sees the question and what the call verifiably showed.",
        opened,
        judges=lambda sample: True,
        lacking="no judge in the recipe",
        asks_model=True,
        says=_says,
    ),
)
