"""What a tool call showed, judged from the question and the output alone (CodeV §4.3)."""

import asyncio
from collections.abc import Sequence
from typing import Literal, Protocol

from vtune.errors import ServiceError
from vtune.judge.client import JudgeClient, NoVerdict
from vtune.judge.pictures import picture_size
from vtune.judge.prompts import Prompt, answer_prompt, conclusion_prompt, evidence_prompt, target_prompt
from vtune.judge.replies import Level, read_level, read_same, read_target
from vtune.reward.flags import no_looks, whole_images
from vtune.reward.looks import Glimpse, glimpses, legible, seen, shows_everything
from vtune.reward.recipe import EvidenceLevels
from vtune.reward.recut import printed, recut
from vtune.schema.box import clamp
from vtune.schema.message import Picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, Trajectory
from vtune.schema.verdict import Verdict

ONE_LEVEL = "1, 0.5 or 0.25"
"""What a judge's reply about a call should be."""


class EvidenceJudge(Protocol):
    """Looks at what a call gave back; the reward and the faithfulness audit share it."""

    async def judge(self, sample: Sample, trajectory: Trajectory, k: int) -> Verdict:
        """The level that the pictures of call `k` (at least one) reach. Red flags are not its business.

        Raises:
            ServiceError: If it cannot tell; the call is unscored.
        """
        ...

    async def shows_target(self, sample: Sample, trajectory: Trajectory, k: int) -> bool:
        """Whether a picture of call `k` clearly shows something that the question is about.

        Raises:
            ServiceError: If it cannot tell.
        """
        ...

    async def shows_small(self, sample: Sample, trajectory: Trajectory, k: int) -> bool:
        """Whether a picture of call `k` shows all of a target, legibly, but too small for `shows_target`."""
        ...


class BoxJudge:
    """Judges by geometry and pixels, where a sample's evidence boxes say where the targets are.

    One target is enough, and the best look counts (§4.3: isolating one correct region is rewarded). Only
    crops of input pictures that a returned picture shows are looked at. A picture without a crop behind it
    cannot be placed and counts as a miss.
    """

    def __init__(self, levels: EvidenceLevels) -> None:
        self._levels = levels

    async def judge(self, sample: Sample, trajectory: Trajectory, k: int) -> Verdict:
        """The best level over the call's crops and the sample's boxes."""
        return await asyncio.to_thread(self._judge, sample, trajectory, k)

    def _judge(self, sample: Sample, trajectory: Trajectory, k: int) -> Verdict:
        levels = self._levels
        found = glimpses(sample, trajectory, k, levels)
        if not found:
            return Verdict(levels.miss, "miss: no crop shown of a picture with a target")
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
        """Whether a look has `target_share` of a box, `partial_size` large; whole images never do."""
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
        """Whether a look has `full_share` of a box, less than `partial_size` large."""
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
        """Targets in the regions of call `k`, where these point at something."""
        levels = self._levels
        if shows_everything(trajectory, k, sample.evidence, levels):
            return []
        whole = whole_images(trajectory, k, levels)
        return [
            glimpse for glimpse in glimpses(sample, trajectory, k, levels) if glimpse.crop.shown not in whole
        ]

    def _problem(self, trajectory: Trajectory, k: int, glimpse: Glimpse) -> str:
        """Why the policy does not see a target where a crop claims to show it; empty where it does."""
        if self._levels.looks == "claimed":
            return ""
        checked = seen(trajectory, trajectory.calls[k], glimpse.crop, glimpse.box)
        if checked.look != "verified":
            return f"{checked.look}: {checked.why}"
        if not legible(trajectory, glimpse, checked.side, self._levels):
            return f"illegible: {checked.side:.0f} pixels a side, no more than in the question's picture"
        return ""


class ModelJudge:
    """Asks a vision-language model, which sees the question and what the call verifiably showed."""

    def __init__(self, client: JudgeClient, levels: EvidenceLevels) -> None:
        self._client = client
        self._levels = levels

    async def judge(self, sample: Sample, trajectory: Trajectory, k: int) -> Verdict:
        """The level that the model gives to all pictures of the call together (template 13.2).

        With `judge_reads_output` it is told where they lie, too, and is asked again, with what the call
        printed, where the pictures show something: the lower of the two levels counts. A print is the
        policy's own writing, so it can take away (it contradicts the pictures), and never give: whatever it
        says to the judge, a call that printed nothing would have earned as much.
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
        places = _places(trajectory, k)
        level = await self._level(evidence_prompt(sample, places), pictures)
        output = printed(trajectory.calls[k])
        if output and level != "miss":
            try:
                told = await self._level(evidence_prompt(sample, places, output), pictures)
            except NoVerdict:
                # What was printed has confused the judge, and the pictures alone had not.
                return Verdict(getattr(levels, level), f"{level}: says the judge, by the pictures alone")
            level = max(level, told, key=_LOWER.index)
        return Verdict(getattr(levels, level), f"{level}: says the judge")

    async def _level(self, prompt: Prompt, pictures: Sequence[Picture]) -> Level:
        return await self._client.ask_for(prompt, pictures, read_level, ONE_LEVEL)

    async def shows_target(self, sample: Sample, trajectory: Trajectory, k: int) -> bool:
        """Whether the model finds a target in one of the pictures, each asked alone (template 8.1).

        A whole picture, unchanged, or one that was there before is not asked about: it is no look.
        """
        if shows_everything(trajectory, k, (), self._levels):
            return False
        for picture in await self._pictures(trajectory, k, no_looks(trajectory, k, self._levels)):
            if await self._client.ask_for(target_prompt(sample), [picture], read_target, "1 or 0"):
                return True
        return False

    async def shows_small(self, sample: Sample, trajectory: Trajectory, k: int) -> bool:
        """Never: the model says itself whether it sees a target, however small."""
        return False

    async def _pictures(self, trajectory: Trajectory, k: int, skipped: frozenset[int]) -> list[Picture]:
        if self._levels.looks == "claimed":
            return [trajectory.images[n] for n in trajectory.calls[k].images if n not in skipped]
        return await asyncio.to_thread(recut, trajectory, k, skipped)


_LOWER: tuple[Level, ...] = ("full", "partial", "miss")


def _places(trajectory: Trajectory, k: int) -> list[str]:
    """Where the verified regions of call `k` lie (CodeV §4.3: metadata), in our own words."""
    found = []
    for crop in trajectory.calls[k].crops:
        if crop.look == "verified":
            width, height = picture_size(trajectory.images[crop.image])
            x0, y0, x1, y1 = (round(side) for side in clamp(crop.bbox, width, height))
            found.append(f"[{x0}, {y0}, {x1}, {y1}] of {width} x {height} pixels")
    return found


def _unseen(call: Call) -> str:
    """Why nothing of a call is shown to a judge."""
    looks = sorted({crop.look for crop in call.crops if crop.look is not None})
    return f"no region of an input is verified ({', '.join(looks)})" if looks else "no region of an input"


By = Literal["boxes", "model"]


class Judges:
    """The judge for each sample's calls: boxes where it has evidence, else the model, if there is one.

    The model also compares answers, for verifier `judge`, and holds them against their thoughts.

    Args:
        levels: Of the recipe.
        client: Asks the model; None where there is none.
        only: Boxes alone, or the model alone, to hold one against the other; None takes what suits.
    """

    def __init__(self, levels: EvidenceLevels, client: JudgeClient | None, only: By | None = None) -> None:
        self.levels = levels
        self._client = client
        self._only = only
        self._boxes = BoxJudge(levels)
        self._model = ModelJudge(client, levels) if client is not None else None

    def by(self, only: By | None) -> "Judges":
        """The same, with another choice among them."""
        return Judges(self.levels, self._client, only)

    def of(self, sample: Sample) -> EvidenceJudge:
        """The judge of a sample's calls.

        Raises:
            ServiceError: If nobody can judge them.
        """
        judge = self._judge(sample)
        if judge is None:
            lacking = {
                None: ("no evidence boxes, and no judge in the recipe", "set `judge`"),
                "boxes": ("no evidence boxes", "let a model judge"),
                "model": ("no judge in the recipe", "set `judge`"),
            }
            what, fix = lacking[self._only]
            raise ServiceError(what, fix=fix)
        return judge

    def who(self, sample: Sample) -> By | None:
        """Who judges a sample's calls; None where nobody can."""
        if sample.evidence and self._only != "model":
            return "boxes"
        return "model" if self._model is not None and self._only != "boxes" else None

    def _judge(self, sample: Sample) -> EvidenceJudge | None:
        judges: dict[By | None, EvidenceJudge | None] = {"boxes": self._boxes, "model": self._model}
        return judges.get(self.who(sample))

    async def same_answer(self, answer: str, sample: Sample) -> bool:
        """Whether the model finds that an answer means the same as the ground truth.

        Raises:
            ServiceError: If it cannot tell, or there is no model to ask.
        """
        return await self._says(answer_prompt(sample, answer))

    async def same_conclusion(self, thoughts: str, answer: str) -> bool:
        """Whether the model finds that thoughts draw the conclusion that the answer gives.

        Raises:
            ServiceError: If it cannot tell, or there is no model to ask.
        """
        return await self._says(conclusion_prompt(thoughts, answer))

    async def _says(self, prompt: Prompt) -> bool:
        if self._client is None:
            raise ServiceError("only a judge can tell, and there is none in the recipe", fix="set `judge`")
        return await self._client.ask_for(prompt, [], read_same, "TRUE or FALSE")


def needs_look(sample: Sample, levels: EvidenceLevels) -> bool:
    """Whether the question asks for a look at a part of a picture.

    True where the sample carries evidence boxes, its ability is one of `search_abilities`, or its source one
    of `search_sources` (CodeV's code goes by the source). For all others the best policy is to skip tools
    (§4.3), so their calls earn nothing.
    """
    return (
        bool(sample.evidence)
        or sample.ability in levels.search_abilities
        or sample.source in levels.search_sources
    )


async def score_call(sample: Sample, trajectory: Trajectory, k: int, judges: Judges) -> Verdict:
    """What call number `k` earns: the red-flag level, 0 without look or need, else its judge's level.

    Args:
        sample: What was asked.
        trajectory: With the flags of its calls filled in.
        k: Number of the call.
        judges: Who judges.

    Raises:
        ServiceError: If nobody can tell; the call is unscored.
    """
    call = trajectory.calls[k]
    if call.status == "infra":
        raise ServiceError(f"the sandbox failed: {call.error or 'no reason given'}")
    if call.flags:
        return Verdict(judges.levels.red_flag, f"red flag: {', '.join(call.flags)}")
    if not needs_look(sample, judges.levels):
        return Verdict(0.0, "no look needed")
    if not call.images:
        return Verdict(0.0, "no picture")
    return await judges.of(sample).judge(sample, trajectory, k)
