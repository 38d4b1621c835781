"""Did the looks behind the answers show the target? (CodeV, algorithm 1, lines 4-12)."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vtune.data.shortcut import named_by_cue
from vtune.errors import DataError, RunFailed, VtuneError
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
"""Red flags of calls that show what was shown before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """What the audit found for one trajectory."""

    sample_id: str
    source: str
    cluster: str
    """Rows of one cluster belong together (`vtune.schema.clusters`)."""
    correct: bool | None
    """Whether the answer is right (accuracy >= `RIGHT`); None where it is unscored."""
    calls: int
    any_faithful: bool | None
    """Whether a call shows a target; False without calls, None where the judge could not tell."""
    flagged: int
    """Calls with a red flag."""
    small: bool = False
    """No call shows a target, but one shows all of it, too small to count: by boxes alone."""
    helpful: int | None = None
    """Calls that show a target; None if the judge was not asked about each, or could not tell."""
    first: int | None = None
    """Number of the first call that shows a target, counted from 1; None where none does."""
    unused: int = 0
    """Calls that cut out a region but never show it."""
    repeated: int = 0
    """Calls that show what was already shown (red flags `REPEATS`)."""
    judged: bool = False
    """Whether its judge has said what is known of its looks. A model is not asked about calls that are no
    looks by the rules, as those without a picture, or with a whole one: of those all is known without it."""
    looked: bool = False
    """A call has given back a picture."""
    accepted: bool | None = None
    """Whether a picture shows a target and the conversation itself does not call it unhelpful; None if there
    is no such picture, or nobody could tell."""
    target: float | None = None
    """Share of its picture that the largest evidence box covers; None if there is no box."""
    whole: bool = False
    """A call shows (nearly) a whole picture."""
    by_cue: bool | None = None
    """Whether the answer is what a misleading cue in the picture suggests; None if there is no cue, or if the
    cue is right: then nobody knows what the answer follows."""
    by: str | None = None
    """The name of the judge of its looks; None where there was none."""
    rollout: int = 0
    """Number of the rollout."""
    silent: bool = False
    """Nobody could tell, because the judging model gave no reply: a retry may get one."""
    why: str = ""
    """Why something is None."""
    targets: tuple[Target, ...] = ()
    """Its evidence boxes."""
    looks: tuple[CallLooks, ...] | None = None
    """What its calls claim to show; None where boxes have not said what they do, and there are calls."""
    by_chance: float | None = None
    """Share of other questions whose targets the same looks would have shown (`with_chance`)."""
    no_chance: str = "not compared with others"
    """Why that is None."""


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
        samples: At least those that the trajectories answer.
        trajectories: Scored ones: correctness and red flags are read from what `Scorer.score` filled in.
        judges: The judges of the reward (`Scorer.judges`).
        at_once: Trajectories that are audited at the same time.
        every: Whether a model is asked of the calls after the first that shows a target, too; others are
            asked of each call anyway.

    Raises:
        DataError: If a trajectory answers none of the samples.
    """
    by_id = {sample.id: sample for sample in samples}
    if strangers := {t.sample_id for t in trajectories} - set(by_id):
        raise DataError(
            f"no sample has the id {min(strangers)!r}", fix="audit with the data that was rolled out"
        )
    room = asyncio.Semaphore(at_once)

    async def audit_in_turn(trajectory: Trajectory) -> AuditRow:
        async with room:
            return await _audit(by_id[trajectory.sample_id], trajectory, judges, every=every)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(audit_in_turn(trajectory))
                for trajectory in trajectories
                if needs_look(by_id[trajectory.sample_id], judges.levels)
            ]
    except ExceptionGroup as failures:
        first = failures.exceptions[0]
        raise first from first.__cause__  # what it says of its own cause is kept
    return [task.result() for task in tasks]


def with_chance(rows: Sequence[AuditRow], levels: EvidenceLevels) -> list[AuditRow]:
    """The rows with their chance level (`vtune.reward.chance`).

    Args:
        rows: Of the whole audit: others are drawn from them.
        levels: Of the recipe.
    """
    return [
        replace(row, by_chance=None, no_chance=one)
        if isinstance(one, str)
        else replace(row, by_chance=one, no_chance="")
        for row, one in zip(rows, chances(rows, levels), strict=True)
    ]


def judges_of(rows: Iterable[AuditRow]) -> dict[str, int]:
    """How many trajectories with calls each judge has judged: boxes and a model always, others if they judged
    any.

    A model is not asked about calls that are no looks by the rules (`AuditRow.judged`).
    """
    by = Counter(row.by for row in rows if row.judged)
    counted = {name: count for name, count in by.items() if name is not None}
    return dict.fromkeys((evidence_boxes.NAME, evidence_model.NAME), 0) | counted


def comparison(judged_by: Mapping[str, int], models: Sequence[str] = ()) -> str:
    """Who judged what calls show, and whether shares compare with CodeV's Table 5, where GPT-4o judges.

    Args:
        judged_by: See `judges_of`.
        models: Names of the models that were asked; several judge by majority.
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
    """Why rows are unscored, by answer or looks: each reason with its number of rows, most common first."""
    why = (row.why for row in rows if row.correct is None or row.any_faithful is None)
    return Counter(why).most_common()


def check_audited(rows: Sequence[AuditRow], max_unscored: float) -> None:
    """Refuse an audit that left out too many trajectories: its shares would describe only the rest.

    Args:
        rows: What `audit` returned.
        max_unscored: `max_unscored` of the reward recipe, a share in [0, 1].

    Raises:
        RunFailed: If a larger share of the rows is unscored, with the commonest reason.
    """
    _check(unscored_reasons(rows), len(rows), max_unscored)


def check_scored(rows: Sequence[AuditRow], max_unscored: float) -> None:
    """The same for the answers alone.

    Raises:
        RunFailed: If a larger share of the answers is unscored, with the commonest reason.
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
    """The failure of an audit that could judge no call; None if it could, or if there was none to judge.

    Trajectories whose answer is unscored do not count: `check_scored` says how many may be. Nor do those
    of which all is known without a judge.
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
        fix="name a judge with --judge-url and --judge-model, or fix the one there is",
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
    """Whether call `k` shows a target, or why nobody could tell; None: no, and no model was asked."""
    call = trajectory.calls[k]
    try:
        shows = None if call.unseen else await judges.of(sample).shows_target(sample, trajectory, k)
    except RunFailed:
        raise  # a judge of the user's is broken
    except VtuneError as error:
        return unscored(error)
    if not shows and call.status == "infra":
        if trajectory.stop_reason == "error":  # also where its model gave no reply: that is noted as a call
            return Unscored(failure_of(trajectory))
        return Unscored(f"the sandbox failed: {call.error or 'no reason given'}")
    return shows if shows is None else bool(shows)


def _accepted(trajectory: Trajectory, shows: Sequence[bool | None]) -> bool | None:
    """See `AuditRow.accepted`; `shows` are the calls that were judged, in order."""
    dropped = called_unhelpful(trajectory)
    counted = [k for k, call in enumerate(trajectory.calls) if call.images and k not in dropped]
    known = [shows[k] if k < len(shows) else None for k in counted]
    if True in known:
        return True
    return None if not known or None in known else False


def _unused(call: Call) -> bool:
    """Whether a call cuts out a region and shows none."""
    return bool(call.crops) and not call.images


async def _looks(
    trajectory: Trajectory, levels: EvidenceLevels, *, by_boxes: bool
) -> tuple[CallLooks, ...] | None:
    if not trajectory.calls:
        return ()
    return await asyncio.to_thread(looks_of, trajectory, levels) if by_boxes else None


async def _any_small(sample: Sample, trajectory: Trajectory, judges: Judges) -> bool:
    """Whether a call shows all of a target, too small to count."""
    judge = judges.of(sample)
    for k in range(len(trajectory.calls)):
        if await judge.shows_small(sample, trajectory, k):
            return True
    return False


def _any_whole(trajectory: Trajectory, least: float) -> bool:
    """Whether the regions of a call, or what its red flags say, are (nearly) a whole picture."""
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
