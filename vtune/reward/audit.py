"""Did the looks behind the answers show the target? (CodeV, algorithm 1, lines 4-12)."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vtune.data.shortcut import named_by_cue
from vtune.errors import DataError, RunFailed, VtuneError, first_failure
from vtune.judge.feedback_texts import called_unhelpful
from vtune.judge.pictures import picture_size
from vtune.parts import OURS
from vtune.reward import evidence_boxes, evidence_model, evidence_passages
from vtune.reward.chance import CallLooks, Target, chances, looks_of, targets_of
from vtune.reward.evidence import Judges, needs_look
from vtune.reward.evidence_judge import EVIDENCE
from vtune.reward.flags import WHOLE_IMAGE
from vtune.reward.part import Unscored, unscored
from vtune.reward.recipe import RIGHT, EvidenceLevels
from vtune.reward.score import failure_of
from vtune.schema.box import area
from vtune.schema.clusters import cluster_of
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, Trajectory

REPEATS = frozenset({"repeated_crop", "repeated_search", "scratchpad"})
"""Red flags for calls that show something already shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """What the audit found for one trajectory."""

    sample_id: str
    source: str
    cluster: str
    """Rows with the same cluster are about the same pictures or problem (`vtune.schema.clusters`)."""
    correct: bool | None
    """Whether the answer is right (accuracy >= `RIGHT`); None if it is unscored."""
    calls: int
    any_faithful: bool | None
    """Whether a call shows a target; False without calls, None if the judge could not tell."""
    flagged: int
    """Calls with a red flag."""
    small: bool = False
    """No call shows a target, but one shows all of it too small to count; only boxes can tell."""
    helpful: int | None = None
    """Number of calls that show a target; None if the judge was not asked about all, or could not tell."""
    first: int | None = None
    """Number of the first call that shows a target, counted from 1; None if no call does."""
    unused: int = 0
    """Calls that cut out a region but never show it."""
    repeated: int = 0
    """Calls that show something already shown (red flags `REPEATS`)."""
    judged: bool = False
    """Whether its calls were judged. A model is not asked about calls that the rules already rule out as
    looks (no picture, or only a whole one), so a trajectory with only such calls was not judged."""
    looked: bool = False
    """Whether a call returned a picture."""
    accepted: bool | None = None
    """Whether a picture shows a target and the conversation itself does not call it unhelpful; None if there
    is no picture, or the judge could not tell."""
    target: float | None = None
    """Share of its picture that the largest evidence box covers; None if there is no box."""
    whole: bool = False
    """A call shows (nearly) a whole picture."""
    by_cue: bool | None = None
    """Whether the answer is the one that a misleading cue in the picture suggests; None if there is no cue,
    or if the cue is right, since then the answer reveals nothing."""
    by: str | None = None
    """Name of the judge of its calls; None if there was no judge."""
    rollout: int = 0
    """Number of the rollout."""
    silent: bool = False
    """Unscored because the judging model gave no reply: a retry may get one."""
    why: str = ""
    """Why the answer or the looks are unscored."""
    targets: tuple[Target, ...] = ()
    """Its evidence boxes."""
    looks: tuple[CallLooks, ...] | None = None
    """What its calls claim to show; None if it has calls and boxes did not judge them."""
    by_chance: float | None = None
    """Share of other questions whose targets the same looks would have shown (`with_chance`)."""
    no_chance: str = "not compared with others"
    """Why `by_chance` is None."""


async def audit(
    samples: Iterable[Sample],
    trajectories: Sequence[Trajectory],
    judges: Judges,
    *,
    at_once: int = 64,
    every: bool = False,
) -> list[AuditRow]:
    """One row, in order, for each trajectory whose question needs a look.

    Questions that need none are left out: no crop could show their target.

    Args:
        samples: Must include those that the trajectories answer.
        trajectories: Scored ones: correctness and red flags are read from what `Scorer.score` filled in.
        judges: The judges of the reward (`Scorer.judges`).
        at_once: Number of trajectories audited concurrently.
        every: Whether a model is also asked about the calls after the first that shows a target; other judges
            always judge every call.

    Raises:
        DataError: If a trajectory answers none of the samples.
    """
    by_id = {sample.id: sample for sample in samples}
    if strangers := {t.sample_id for t in trajectories} - set(by_id):
        raise DataError(
            f"no sample has the id {min(strangers)!r}", fix="audit with the data that the rollouts used"
        )
    room = asyncio.Semaphore(at_once)

    async def audit_in_turn(trajectory: Trajectory) -> AuditRow:
        async with room:
            return await _audit(by_id[trajectory.sample_id], trajectory, judges, every=every)

    with first_failure():
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(audit_in_turn(trajectory))
                for trajectory in trajectories
                if needs_look(by_id[trajectory.sample_id], judges.levels)
            ]
    return [task.result() for task in tasks]


def with_chance(rows: Sequence[AuditRow], levels: EvidenceLevels) -> list[AuditRow]:
    """The rows with their chance level (`vtune.reward.chance`).

    Args:
        rows: All rows of the audit: other questions are sampled from them.
        levels: Those of the recipe.
    """
    return [
        replace(row, by_chance=None, no_chance=one)
        if isinstance(one, str)
        else replace(row, by_chance=one, no_chance="")
        for row, one in zip(rows, chances(rows, levels), strict=True)
    ]


def judges_of(rows: Iterable[AuditRow]) -> dict[str, int]:
    """Number of trajectories with calls that each judge has judged: always for boxes and a model, for other
    judges only if they judged any.

    A model is not asked about calls that are no looks by the rules (`AuditRow.judged`).
    """
    by = Counter(row.by for row in rows if row.judged)
    counted = {name: count for name, count in by.items() if name is not None}
    return dict.fromkeys((evidence_boxes.NAME, evidence_model.NAME), 0) | counted


def comparison(judged_by: Mapping[str, int], models: Sequence[str] = ()) -> str:
    """Who judged what calls show, and whether shares compare with CodeV's Table 5, judged by GPT-4o.

    Args:
        judged_by: See `judges_of`.
        models: Names of the models that were asked; several models decide by majority.
    """
    boxes, together = judged_by[evidence_boxes.NAME], sum(judged_by.values())
    if own := sorted(set(judged_by) - set(OURS["evidence"])):
        return f"by {', '.join(own)} (the user's own): not comparable with CodeV's Table 5"
    if searched := judged_by.get(evidence_passages.NAME, 0):
        return f"{searched} of {together} by returned passages (ours): not comparable with CodeV's Table 5"
    if not together:
        return "nothing was judged"
    asked = " and ".join(models) or "a model"
    if not boxes:
        return f"by {'the majority of ' * (len(models) > 1)}{asked}; CodeV's Table 5 is by GPT-4o"
    others = f", the others by {asked}" if boxes < together else ""
    return (
        f"{boxes} of {together} by boxes (ours){others}: not comparable with CodeV's Table 5, where a model "
        "judges"
    )


def unscored_reasons(rows: Iterable[AuditRow]) -> list[tuple[str, int]]:
    """Reasons why rows are unscored (answer or looks), each with its number of rows, most common first."""
    why = (row.why for row in rows if row.correct is None or row.any_faithful is None)
    return Counter(why).most_common()


def check_audited(rows: Sequence[AuditRow], max_unscored: float) -> None:
    """Refuse an audit that left out too many trajectories: its shares would describe only the rest.

    Args:
        rows: What `audit` returned.
        max_unscored: `max_unscored` of the reward recipe, a share in [0, 1].

    Raises:
        RunFailed: If the share of unscored rows is larger, with the most common reason.
    """
    _check(unscored_reasons(rows), len(rows), max_unscored)


def check_scored(rows: Sequence[AuditRow], max_unscored: float) -> None:
    """Like `check_audited`, but for the answers alone.

    Raises:
        RunFailed: If the share of unscored answers is larger, with the most common reason.
    """
    _check(unscored_reasons([row for row in rows if row.correct is None]), len(rows), max_unscored)


def _check(reasons: list[tuple[str, int]], count: int, max_unscored: float) -> None:
    unscored = sum(times for _, times in reasons)
    if unscored > max_unscored * count:
        why, times = reasons[0]
        raise RunFailed(
            f"{unscored / count:.1%} of the audited trajectories are unscored, the limit is "
            f"{max_unscored:.1%}",
            where=f"{times} of {count}: {why}",
            fix="fix the judge, the sandbox or the data, then audit again",
        )


def nobody_audited(rows: Sequence[AuditRow]) -> RunFailed | None:
    """The error for an audit that could judge no call; None if some call was judged, or none needed judging.

    Trajectories with an unscored answer do not count (`check_scored` limits those), nor do trajectories that
    the rules settle without a judge.
    """
    users = [row for row in rows if row.calls and row.correct is not None]
    if any(row.judged for row in users):
        return None
    users = [row for row in users if row.any_faithful is None]
    if not users:
        return None
    (why, times), *_ = Counter(row.why for row in users).most_common(1)
    return RunFailed(
        f"none of the {len(users)} trajectories with tool calls could be audited",
        where=f"{times} of {len(users)}: {why}",
        fix="name a judge with --judge-url and --judge-model, or fix the configured one",
    )


async def _audit(sample: Sample, trajectory: Trajectory, judges: Judges, *, every: bool) -> AuditRow:
    who = judges.who(sample)
    every = every or who is None or not EVIDENCE[who].asks_model
    found: list[bool | Unscored | None] = []
    for k in range(len(trajectory.calls)):
        found.append(await _shows(sample, trajectory, k, judges))
        if found[-1] is True and not every:
            break
    shows = [None if isinstance(one, Unscored) else bool(one) for one in found]
    first = shows.index(True) + 1 if True in shows else None
    unknown = [one for one in found if isinstance(one, Unscored)]
    faithful: bool | None = True if first else None if unknown else False
    why = unknown[-1].why if faithful is None else ""
    complete = len(shows) == len(trajectory.calls) and not unknown
    small = False
    if faithful is False and trajectory.calls:
        small = await _any_small(sample, trajectory, judges)
    accuracy = trajectory.reward.accuracy if trajectory.reward is not None else None
    targets = targets_of(sample, trajectory)
    by_boxes = who == evidence_boxes.NAME and faithful is not None
    return AuditRow(
        sample_id=trajectory.sample_id,
        source=trajectory.source,
        cluster=cluster_of(trajectory, sample),
        correct=None if accuracy is None else accuracy >= RIGHT,
        calls=len(trajectory.calls),
        any_faithful=faithful,
        flagged=sum(bool(call.flags) for call in trajectory.calls),
        small=small,
        helpful=sum(map(bool, shows)) if complete else None,
        first=first,
        unused=sum(_unused(call) for call in trajectory.calls),
        repeated=sum(not REPEATS.isdisjoint(call.flags) for call in trajectory.calls),
        judged=who is not None
        and faithful is not None
        and any(one is not None or not EVIDENCE[who].asks_model for one in found),
        looked=any(call.images for call in trajectory.calls),
        accepted=_accepted(trajectory, shows),
        target=max((area(one.box) for one in targets), default=None),
        whole=_any_whole(trajectory, judges.levels.whole_image_share),
        by_cue=_by_cue(sample, trajectory),
        by=who,
        rollout=trajectory.rollout,
        silent=faithful is None and any(one.silent for one in unknown),
        why=why or ("the answer is unscored" if accuracy is None else ""),
        targets=targets,
        looks=await _looks(trajectory, judges.levels, by_boxes=by_boxes),
    )


async def _shows(sample: Sample, trajectory: Trajectory, k: int, judges: Judges) -> bool | Unscored | None:
    """Whether call `k` shows a target, or why the judge could not tell; None: no, without asking a model."""
    call = trajectory.calls[k]
    try:
        shows = None if call.unseen else await judges.of(sample).shows_target(sample, trajectory, k)
    except RunFailed:
        raise  # the user's own judge is broken
    except VtuneError as error:
        return unscored(error)
    if not shows and call.status == "infra":
        if trajectory.stop_reason == "error":  # also if its model gave no reply: that is recorded as a call
            return Unscored(failure_of(trajectory))
        return Unscored(f"the sandbox failed: {call.error or 'no reason given'}")
    return shows if shows is None else bool(shows)


def _accepted(trajectory: Trajectory, shows: Sequence[bool | None]) -> bool | None:
    """See `AuditRow.accepted`; `shows` covers the judged calls, in order."""
    dropped = called_unhelpful(trajectory)
    counted = [k for k, call in enumerate(trajectory.calls) if call.images and k not in dropped]
    known = [shows[k] if k < len(shows) else None for k in counted]
    if True in known:
        return True
    return None if not known or None in known else False


def _unused(call: Call) -> bool:
    """Whether a call cuts out a region but returns no picture."""
    return bool(call.crops) and not call.images


async def _looks(
    trajectory: Trajectory, levels: EvidenceLevels, *, by_boxes: bool
) -> tuple[CallLooks, ...] | None:
    if not trajectory.calls:
        return ()
    return await asyncio.to_thread(looks_of, trajectory, levels) if by_boxes else None


async def _any_small(sample: Sample, trajectory: Trajectory, judges: Judges) -> bool:
    """Whether a call shows all of a target, but too small to count."""
    judge = judges.of(sample)
    for k in range(len(trajectory.calls)):
        if await judge.shows_small(sample, trajectory, k):
            return True
    return False


def _any_whole(trajectory: Trajectory, least: float) -> bool:
    """Whether a call's region, or its red flags, amount to (nearly) a whole picture."""
    for call in trajectory.calls:
        if WHOLE_IMAGE in call.flags:
            return True
        for crop in call.crops:
            width, height = picture_size(trajectory.images[crop.image])
            if crop.shown is not None and area(crop.bbox) >= least * width * height:
                return True
    return False


def _by_cue(sample: Sample, trajectory: Trajectory) -> bool | None:
    named = named_by_cue(sample)
    if named is None or named == sample.ground_truth:
        return None
    return (trajectory.answer or "").strip() == named
