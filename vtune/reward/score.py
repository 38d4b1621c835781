"""From trajectories to rewards: the answer, the form, and what the tool calls showed."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from vtune.environments import DEFAULT, name_of
from vtune.errors import DataError, RecipeError, RunFailed, ServiceError, VtuneError
from vtune.judge.client import JudgeClient
from vtune.reward.client import RewardClient
from vtune.reward.consistency import score_consistency
from vtune.reward.evidence import Judges, needs_look, score_call
from vtune.reward.flags import call_flags
from vtune.reward.format import counted_tags, format_reward
from vtune.reward.looks import with_looks
from vtune.reward.recipe import RIGHT, EvidenceLevels, RewardRecipe
from vtune.reward.wire import settings_of
from vtune.schema.reward import Reward
from vtune.schema.sample import Evidence, Sample
from vtune.schema.trajectory import Trajectory
from vtune.schema.verdict import Verdict
from vtune.verifiers import check_ground_truth, verifier_of
from vtune.verifiers.detection import with_iou
from vtune.verifiers.environment_reward import with_outcome
from vtune.verifiers.spaces import answers_in_shown_pixels, with_shown_size
from vtune.verifiers.verifying import Verifying

AT_ONCE = 64
"""Trajectories that are scored at the same time, ours: enough to keep a judge busy, few enough that their
decoded pictures fit in memory."""


ShownSize = Callable[[bytes], tuple[int, int]]
"""An encoded picture -> (width, height) in which the policy sees it."""


@dataclass(frozen=True, slots=True)
class Weights:
    """λ of each part, in [0, 1]."""

    accuracy: float
    format: float
    tool: float
    consistency: float = 0.0


@dataclass(frozen=True, slots=True)
class Unscored:
    """A part that nobody could score, and why."""

    why: str
    again: bool = False
    """A worker or a judge failed: another attempt may score it. What was given is not at fault."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A trajectory with its scores."""

    trajectory: Trajectory
    again: bool
    """Its total is None, and another attempt may score it."""


class Scorer:
    """Scores trajectories; an async context manager that owns the verifiers' workers and the judge client.

    Where the recipe names reward services, they score instead, by the same `score_trajectory`.
    """

    def __init__(
        self, recipe: RewardRecipe, *, judge_cache: Path | None = None, shown: ShownSize | None = None
    ) -> None:
        """Prepare, without starting or connecting anything.

        Args:
            recipe: Weights, levels and judge.
            judge_cache: Where the judge's replies are kept between runs, as JSONL; one file a process.
            shown: Tells how large the policy sees a picture; needed only where replies are in such pixels.
        """
        self._shown = shown
        self._recipe = recipe
        self._client = JudgeClient(recipe.judge, cache=judge_cache) if recipe.judge is not None else None
        self._verifying = Verifying()
        self._remote = RewardClient(recipe.service, settings_of(recipe)) if recipe.service else None
        self._open = AsyncExitStack()
        self.judges = Judges(recipe.evidence, self._client)
        """Who judges calls: for `vtune.reward.audit`, so that metric and reward share one judge."""

    async def __aenter__(self) -> Self:
        await self._open.enter_async_context(self._verifying)
        if self._client is not None:
            await self._open.enter_async_context(self._client)
        if self._remote is not None:
            await self._open.enter_async_context(self._remote)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def score(
        self, samples: Iterable[Sample], trajectories: Sequence[Trajectory], *, iou: Sequence[float] = ()
    ) -> list[Trajectory]:
        """The trajectories, in order, with `reward`, `tool_scores` and the flags of their calls filled in.

        What cannot be scored (a judge, worker, sandbox or service failed) is None, with the reason in
        `reward.why`.

        Args:
            samples: At least those that the trajectories answer, in any order.
            trajectories: To score; scores that they carry are replaced.
            iou: Thresholds of this step (`vtune.reward.schedule`) for verifiers of boxes whose sample
            states none.

        Raises:
            DataError: If a trajectory answers none of the samples.
        """
        by_id = {sample.id: _at_threshold(sample, iou) for sample in samples}
        if strangers := {t.sample_id for t in trajectories} - set(by_id):
            raise DataError(
                f"no sample has the id {min(strangers)!r}", fix="score with the data that was rolled out"
            )
        room = asyncio.Semaphore(AT_ONCE)

        async def score_in_turn(trajectory: Trajectory) -> Trajectory:
            async with room:
                try:
                    sample = self._with_shown_size(by_id[trajectory.sample_id], trajectory)
                except DataError as error:
                    return _unscorable(trajectory, error.what)
                return await self._score(sample, trajectory)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(score_in_turn(trajectory)) for trajectory in trajectories]
        return [task.result() for task in tasks]

    def _with_shown_size(self, sample: Sample, trajectory: Trajectory) -> Sample:
        """The sample, told how large the policy saw its picture where its reply is in such pixels."""
        data = trajectory.images[0].data if trajectory.images else None
        if (
            trajectory.stop_reason == "error"
            or self._shown is None
            or data is None
            or not answers_in_shown_pixels(sample)
        ):
            return sample
        return with_shown_size(sample, self._shown(data))

    async def _score(self, sample: Sample, trajectory: Trajectory) -> Trajectory:
        if self._remote is not None and trajectory.stop_reason != "error":
            return await self._remote.score(sample, trajectory)
        scored = await score_trajectory(sample, trajectory, self._recipe, self._verifying, self.judges)
        return scored.trajectory


async def score_trajectory(
    sample: Sample, trajectory: Trajectory, recipe: RewardRecipe, verifying: Verifying, judges: Judges
) -> Scored:
    """Score one trajectory, here or in a reward service.

    Args:
        sample: What was asked.
        trajectory: To score; of its turns only the policy's are read.
        recipe: Weights and levels.
        verifying: Judges the answer.
        judges: Judge the calls, and the answers that no rule decides.
    """
    if trajectory.stop_reason == "error":
        return Scored(_unscorable(trajectory, "the rollout failed"), again=False)
    weights = weights_of(sample, recipe)
    accuracy: Verdict | Unscored
    try:
        asked = with_outcome(sample, trajectory.outcome) if verifier_of(sample).reads_outcome else sample
        accuracy = await verifying.verify(trajectory.reply, asked, judge=judges.same_answer)
    except VtuneError as error:
        accuracy = Unscored(error.what, again=isinstance(error, ServiceError))
    trajectory, calls = await _score_calls(sample, trajectory, recipe, judges)
    tool = tool_part(calls)
    agrees = await _consistency(trajectory.reply, accuracy, recipe, judges)
    reward = combine(accuracy, form_of(trajectory, recipe), tool, weights, recipe, consistency=agrees)
    failed = any(isinstance(part, Unscored) and part.again for part in (accuracy, tool, agrees))
    scores = tuple(call.score if isinstance(call, Verdict) else None for call in calls)
    return Scored(
        replace(trajectory, reward=reward, tool_scores=scores), again=reward.total is None and failed
    )


async def _score_calls(
    sample: Sample, trajectory: Trajectory, recipe: RewardRecipe, judges: Judges
) -> tuple[Trajectory, list[Verdict | Unscored]]:
    """The trajectory with its flags, and what each of its calls showed."""
    count = len(trajectory.calls)
    if name_of(sample) != DEFAULT:
        return trajectory, [Verdict(0.0, "not a look: an act in an environment")] * count
    weights = weights_of(sample, recipe)
    try:
        if trajectory.calls:
            trajectory = await asyncio.to_thread(with_flags, trajectory, recipe.evidence, sample.evidence)
        return trajectory, [await _score_call(sample, trajectory, k, weights, judges) for k in range(count)]
    except DataError as error:
        return trajectory, [Unscored(error.what)] * count


async def _consistency(
    reply: str, accuracy: Verdict | Unscored, recipe: RewardRecipe, judges: Judges
) -> Verdict | Unscored | None:
    """Whether thoughts and answer agree; None where the recipe does not ask."""
    if recipe.consistency is None:
        return None
    if isinstance(accuracy, Unscored):
        return Unscored("the answer is unscored")
    try:
        return await score_consistency(reply, accuracy.score, recipe.consistency, judges)
    except ServiceError as error:
        return Unscored(error.what, again=True)


def _unscorable(trajectory: Trajectory, why: str) -> Trajectory:
    """A trajectory of which no part can be scored."""
    nothing = Reward(total=None, accuracy=None, format=None, tool=None, why=why)
    return replace(trajectory, reward=nothing, tool_scores=(None,) * len(trajectory.calls))


async def _score_call(
    sample: Sample, trajectory: Trajectory, k: int, weights: Weights, judges: Judges
) -> Verdict | Unscored:
    call = trajectory.calls[k]
    asks_model = needs_look(sample, judges.levels) and not sample.evidence
    if asks_model and weights.tool == 0 and not call.flags:
        return Unscored("not asked: the tool part has no weight")
    try:
        return await score_call(sample, trajectory, k, judges)
    except ServiceError as error:
        return Unscored(error.what, again=call.status != "infra")


def with_flags(
    trajectory: Trajectory, levels: EvidenceLevels, targets: Sequence[Evidence] = ()
) -> Trajectory:
    """The trajectory with the looks of every crop and the red flags of every call filled in.

    Raises:
        DataError: If one of its pictures cannot be read.
    """
    trajectory = with_looks(trajectory, levels)
    flags = [call_flags(trajectory, k, levels, targets) for k in range(len(trajectory.calls))]
    calls = tuple(replace(call, flags=found) for call, found in zip(trajectory.calls, flags, strict=True))
    return replace(trajectory, calls=calls)


def weights_of(sample: Sample, recipe: RewardRecipe) -> Weights:
    """The weights that hold for a sample, from the recipe or from the sample, as `weighting` says."""
    if recipe.weighting == "recipe":
        consistency = 0.0 if recipe.consistency is None else recipe.consistency.weight
        return Weights(recipe.accuracy, recipe.format, recipe.tool, consistency)
    ratios = (sample.accuracy_ratio, sample.format_ratio, sample.tool_ratio)
    whole = sum(ratios) if recipe.weighting == "sample_normalised" else 1.0
    return Weights(*(ratio / whole for ratio in ratios)) if whole else Weights(0.0, 0.0, 0.0)


def form_of(trajectory: Trajectory, recipe: RewardRecipe) -> Verdict:
    """The format part, by the recipe's rule."""
    if recipe.format_rule == "counted":
        return counted_tags(trajectory.reply)
    return format_reward(trajectory.messages, trajectory.calls)


def tool_part(calls: Sequence[Verdict | Unscored]) -> Verdict | Unscored:
    """The mean over the calls (CodeV eq. 6); 0 without a call, unscored where one call is."""
    if not calls:
        return Verdict(0.0, "no tool call")
    scores = []
    for k, call in enumerate(calls):
        if isinstance(call, Unscored):
            return Unscored(f"call {k}: {call.why}", call.again)
        scores.append(call.score)
    return Verdict(sum(scores) / len(scores), "; ".join(call.why for call in calls))


def combine(
    accuracy: Verdict | Unscored,
    form: Verdict | Unscored,
    tool: Verdict | Unscored,
    weights: Weights,
    recipe: RewardRecipe,
    *,
    consistency: Verdict | Unscored | None = None,
) -> Reward:
    """One reward from its parts; the total is None where a part that has weight is unscored.

    The parts in the reward are what was scored; only the total knows weights and gate. The reason names all
    parts or, where the total is None, those that keep it so.

    Args:
        accuracy: Of the answer.
        form: Of the tags.
        tool: Of what calls showed.
        weights: Of the parts.
        recipe: Whether the tool part is gated.
        consistency: Of thoughts and answer; None where the recipe has no such part.

    Source: CodeV eq. 5, with the format part of its figure 9, and the consistency of its table 2.
    """
    parts = {"accuracy": accuracy, "format": form, "tool": tool}
    if consistency is not None:
        parts["consistency"] = consistency
    scores = {name: part.score if isinstance(part, Verdict) else None for name, part in parts.items()}
    paid = dict(scores)
    if recipe.tool_gated and scores["accuracy"] is not None and scores["tool"] is not None:
        paid["tool"] = scores["tool"] if scores["accuracy"] >= RIGHT else min(scores["tool"], 0.0)
    weight: dict[str, float] = {name: getattr(weights, name) for name in parts}
    missing = [name for name in parts if weight[name] and scores[name] is None]
    total = (
        None if missing else sum(weight[name] * score for name, score in paid.items() if score is not None)
    )
    why = " | ".join(f"{name}: {parts[name].why}" for name in missing or parts)
    facts = accuracy.parts if isinstance(accuracy, Verdict) else {}
    return Reward(total=total, **scores, why=why, parts=facts)


@dataclass(frozen=True, slots=True)
class ToolSamples:
    """How many samples the tool part of the reward is about."""

    paid: int
    """Samples that offer a tool and give weight to what its calls show."""
    looks: int
    """Those of them whose questions need a look; calls of the others earn 0, or a red flag."""
    judged_looks: int = 0
    """Those of them whose calls a model judges, for they have no boxes."""
    judged_answers: int = 0
    """Samples whose answers a model compares, where no rule decides, or holds against their thoughts."""


def check_samples(samples: Iterable[Sample], recipe: RewardRecipe) -> ToolSamples:
    """See, before a run, that every sample can be scored. Main thread only (see `check_ground_truth`).

    Returns:
        What `check_evidence` asks for, counted on the way.

    Raises:
        DataError: If a sample names no verifier, or one that rejects its ground truth.
        RecipeError: If a sample's calls or answers need a judge, or its boxes a threshold, and the recipe
        has none.
    """
    paid = looks = judged_looks = judged_answers = 0
    by_model = recipe.consistency is not None and recipe.consistency.by == "model"
    for sample in samples:
        check_ground_truth(sample)
        _check_verifier(sample, recipe)
        judged_answers += by_model or verifier_of(sample).asks_judge
        if not sample.tools or not weights_of(sample, recipe).tool:
            continue
        paid += 1
        if not needs_look(sample, recipe.evidence):
            continue
        looks += 1
        if recipe.judge is None and not sample.evidence:
            raise RecipeError(
                f"sample {sample.id!r} has no evidence boxes, and the recipe has no judge",
                where=f"source {sample.source!r}, ability {sample.ability!r}",
                fix="set reward.judge, or take it out of search_abilities and search_sources in "
                "reward.evidence",
            )
        judged_looks += not sample.evidence
    return ToolSamples(paid, looks, judged_looks, judged_answers)


def _check_verifier(sample: Sample, recipe: RewardRecipe) -> None:
    """See that the recipe has what the sample's verifier needs beside the sample."""
    verifier = verifier_of(sample)
    place = f"sample {sample.id!r}, source {sample.source!r}"
    if verifier.asks_judge and recipe.judge is None:
        raise RecipeError(
            f"verifier `{sample.verifier}` has answers compared by a model, and the recipe names none",
            where=place,
            fix="set reward.judge",
        )
    if verifier.reads_iou and recipe.iou is None and sample.verifier_parm.get("iou") is None:
        raise RecipeError(
            f"verifier `{sample.verifier}` needs to know how tight a box has to be",
            where=place,
            fix="set reward.iou, e.g. {schedule: fixed, thresholds: [0.5], until: [], target: null}",
        )


def _at_threshold(sample: Sample, iou: Sequence[float]) -> Sample:
    return with_iou(sample, iou) if iou and verifier_of(sample).reads_iou else sample


def check_keys(recipe: RewardRecipe) -> None:
    """See, before a run, that what its judge and its services want to be shown is there.

    Raises:
        RecipeError: If an environment variable is not set.
    """
    wanted = {
        "the judge's key": recipe.judge.api_key_env if recipe.judge is not None else None,
        "the token of the reward service": recipe.service.token_env if recipe.service is not None else None,
    }
    for what, name in wanted.items():
        if name is not None and name not in os.environ:
            raise RecipeError(f"{what} is not set: no environment variable {name}", fix=f"export {name}=…")


def check_evidence(samples: ToolSamples) -> None:
    """See, before training, that some call can earn something. An evaluation may do without.

    Raises:
        RecipeError: If the tool part has weight and tools are offered, but no question needs a look: then
            calls could only lose, by red flags.
    """
    if samples.paid and not samples.looks:
        raise RecipeError(
            "the tool part of the reward has weight, but no tool call can earn anything",
            where=f"none of {samples.paid} samples with tools has evidence boxes or is named as a search",
            fix="name abilities or sources of the data in reward.evidence.search_abilities or "
            "reward.evidence.search_sources, or set reward.tool to 0 (or the samples' tool_ratio)",
        )


def unscored_share(trajectories: Sequence[Trajectory]) -> float:
    """Share of the trajectories whose total is None, in [0, 1]; 0 where there are none."""
    return len(_unscored(trajectories)) / len(trajectories) if trajectories else 0.0


def check_unscored(trajectories: Sequence[Trajectory], max_unscored: float) -> None:
    """Stop the run where too many trajectories of a step are unscored.

    Raises:
        RunFailed: If their share exceeds `max_unscored`, with the commonest reason.
    """
    share = unscored_share(trajectories)
    if share > max_unscored:
        (why, times), *_ = Counter(_unscored(trajectories)).most_common(1)
        raise RunFailed(
            f"{share:.1%} of the trajectories are unscored, the limit is {max_unscored:.1%}",
            where=f"{times} of {len(trajectories)}: {why}",
            fix="fix the judge, the reward service, the sandbox or the data, then continue with --resume",
        )


def _unscored(trajectories: Sequence[Trajectory]) -> list[str]:
    """The reason of each unscored trajectory."""
    rewards = (trajectory.reward for trajectory in trajectories)
    return ["never scored" if r is None else r.why for r in rewards if r is None or r.total is None]
