"""What a tool call showed, judged from the question and the output alone (CodeV §4.3)."""

from typing import Literal, Protocol

from vtune.errors import ServiceError
from vtune.judge.client import JudgeClient
from vtune.judge.prompts import (
    answer_prompt,
    evidence_prompt,
    read_level,
    read_same,
    read_target,
    target_prompt,
)
from vtune.reward.flags import no_looks, whole_images
from vtune.reward.recipe import EvidenceLevels
from vtune.schema.box import area, intersection
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Crop, Trajectory
from vtune.schema.verdict import Verdict


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


class BoxJudge:
    """Judges by geometry, where a sample's evidence boxes say where the targets are.

    One target is enough, and the best crop counts (§4.3: isolating one correct region is rewarded). Only
    crops of input pictures that a returned picture shows are looked at. A picture without a crop behind it
    cannot be placed and counts as a miss.
    """

    def __init__(self, levels: EvidenceLevels) -> None:
        self._levels = levels

    async def judge(self, sample: Sample, trajectory: Trajectory, k: int) -> Verdict:
        """The best level over the call's crops and the sample's boxes."""
        levels = self._levels
        views = [
            view
            for crop in trajectory.calls[k].crops
            if crop.shown is not None
            for view in _views(sample, crop)
        ]
        if not views:
            return Verdict(levels.miss, "miss: no crop shown of a picture with a target")
        for name, score, share_at, size_at in (
            ("full", levels.full, levels.full_share, levels.full_size),
            ("partial", levels.partial, levels.partial_share, levels.partial_size),
        ):
            for share, size in views:
                if share >= share_at and size >= size_at:
                    return Verdict(score, f"{name}: {share:.0%} of the target, {size:.0%} of the crop")
        share, size = max(views)
        return Verdict(levels.miss, f"miss: {share:.0%} of the target, {size:.0%} of the crop")

    async def shows_target(self, sample: Sample, trajectory: Trajectory, k: int) -> bool:
        """Whether a crop has `target_share` of a box, `partial_size` large; whole images never do."""
        whole = whole_images(trajectory, k, self._levels)
        return any(
            share >= self._levels.target_share and size >= self._levels.partial_size
            for crop in trajectory.calls[k].crops
            if crop.shown is not None and crop.shown not in whole
            for share, size in _views(sample, crop)
        )


class ModelJudge:
    """Asks a vision-language model, which sees the question and the returned pictures and nothing else."""

    def __init__(self, client: JudgeClient, levels: EvidenceLevels) -> None:
        self._client = client
        self._levels = levels

    async def judge(self, sample: Sample, trajectory: Trajectory, k: int) -> Verdict:
        """The level that the model gives to all pictures of the call together (template 13.2)."""
        pictures = [trajectory.images[index] for index in trajectory.calls[k].images]
        reply = await self._client.ask(evidence_prompt(sample), pictures)
        level = read_level(reply)
        if level is None:
            raise ServiceError(f"the judge wrote {reply[:80]!r} instead of 1, 0.5 or 0.25")
        return Verdict(getattr(self._levels, level), f"{level}: says the judge")

    async def shows_target(self, sample: Sample, trajectory: Trajectory, k: int) -> bool:
        """Whether the model finds a target in one of the pictures, each asked alone (template 8.1).

        A whole picture, unchanged, or one that was there before is not asked about: it is no look.
        """
        skipped = no_looks(trajectory, k, self._levels)
        for index in trajectory.calls[k].images:
            if index in skipped:
                continue
            reply = await self._client.ask(target_prompt(sample), [trajectory.images[index]])
            label = read_target(reply)
            if label is None:
                raise ServiceError(f"the judge wrote {reply[:80]!r} instead of 1 or 0")
            if label:
                return True
        return False


By = Literal["boxes", "model"]


class Judges:
    """The judge for each sample's calls: boxes where it has evidence, else the model, if there is one.

    The model also compares answers, for verifier `judge`.

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

    def know(self, sample: Sample) -> bool:
        """Whether somebody can judge a sample's calls."""
        return self._judge(sample) is not None

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

    def _judge(self, sample: Sample) -> EvidenceJudge | None:
        if sample.evidence and self._only != "model":
            return self._boxes
        return self._model if self._only != "boxes" else None

    async def same_answer(self, answer: str, sample: Sample) -> bool:
        """Whether the model finds that an answer means the same as the ground truth.

        Raises:
            ServiceError: If it cannot tell, or there is no model to ask.
        """
        if self._client is None:
            raise ServiceError("only a judge can tell, and there is none in the recipe", fix="set `judge`")
        reply = await self._client.ask(answer_prompt(sample, answer), [])
        same = read_same(reply)
        if same is None:
            raise ServiceError(f"the judge wrote {reply[:80]!r} instead of TRUE or FALSE")
        return same


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


def _views(sample: Sample, crop: Crop) -> list[tuple[float, float]]:
    """(share, size) for each evidence box in the picture that a crop was taken from."""
    found = []
    for item in sample.evidence:
        if item.image == crop.image and area(crop.bbox) > 0:
            shared = intersection(item.bbox, crop.bbox)
            found.append((shared / area(item.bbox), shared / area(crop.bbox)))
    return found
