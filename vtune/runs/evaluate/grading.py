"""Grades of a protocol, in place of verifiers' verdicts."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from vtune.environments import DEFAULT, name_of
from vtune.errors import DataError, RecipeError
from vtune.judge.endpoint import BatchedEndpoint
from vtune.metrics.benchmarks import Mark, Scores
from vtune.metrics.scored import scored_by
from vtune.protocols import PROTOCOLS
from vtune.protocols.protocol import Grade, Rule, wrong_kind
from vtune.reward.combining import combine, weights_of
from vtune.reward.part import Unscored
from vtune.reward.recipe import RewardRecipe
from vtune.runs.evaluate.finished import Finished
from vtune.runs.evaluate.judged import (
    Graded,
    Grader,
    Reply,
    check_judged,
    grade_replies,
)
from vtune.runs.evaluate.questions import Source
from vtune.runs.evaluate.rejudged import judge_again
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.evaluate.unjudged import Key
from vtune.runs.evaluate.windows import is_left_out
from vtune.schema.annotated import KEY as ANNOTATED
from vtune.schema.clusters import cluster_of
from vtune.schema.reward import Reward
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.schema.verdict import Verdict
from vtune.verifiers import scored_elsewhere, verifier_of
from vtune.verifiers.boxes import answered_boxes
from vtune.verifiers.judge import ATTEMPTED
from vtune.verifiers.spaces import answers_in_shown_pixels, with_shown_size
from vtune.verifiers.verifier import given_answer, quote

FALLBACK = "fallback"
"""Key in a reward's `parts`: the expected score of the protocol's own fallback."""


def rule_of(source: Source) -> Rule:
    """The rule for asking and grading a suite's questions.

    Raises:
        RecipeError: If its protocol has none for them.
    """
    rule = PROTOCOLS[source.protocol].rule(source.kind)
    if rule is None:
        raise wrong_kind(source.protocol, source.kind)
    return rule


def thresholds_of(reward: RewardRecipe) -> tuple[float, ...]:
    """The IoU thresholds of a suite.

    Raises:
        RecipeError: If they would change during a run.
    """
    if reward.iou is None:
        return ()
    if reward.iou.schedule not in ("fixed", "average"):
        raise RecipeError(
            f"reward.iou.schedule is {reward.iou.schedule}, but an evaluation has no training steps "
            "to schedule it by",
            fix="set it to fixed, with one threshold, or to average",
        )
    return reward.iou.thresholds


def grade_of(reply: str, sample: Sample, rule: Rule) -> Grade:
    """The grade of a stored reply: a pure function of the reply and the question.

    Args:
        reply: All that the policy wrote.
        sample: As asked, with the place of its answer in `verifier_parm`.
        rule: The rule that grades.
    """
    answer = answer_for(reply, sample, rule)
    return nothing_read(sample, rule) if answer is None else rule.grade(answer, sample)


def answer_for(reply: str, sample: Sample, rule: Rule) -> str | None:
    """The part of a reply that a rule reads; None if the reply marks no answer."""
    return reply if rule.reads == "reply" else given_answer(reply, sample)


def nothing_read(sample: Sample, rule: Rule) -> Grade:
    """The grade of a reply without an answer.

    Upstream's rule always receives some text; its result for an empty one is the fallback.
    """
    return Grade(score=0.0, read=None, fallback=rule.grade("", sample).fallback)


async def graded_by_model(
    stored: Iterable[Trajectory],
    samples: Mapping[str, Sample],
    rule: Rule,
    grader: Grader,
    folder: Path,
    *,
    max_unscored: float,
) -> Graded:
    """The grades of stored replies by a rule that asks a model.

    Args:
        stored: All trajectories of an evaluation.
        samples: Id -> sample, as asked.
        rule: A rule that asks a model.
        grader: The model.
        folder: The evaluation's folder.
        max_unscored: See `check_judged`.

    Raises:
        RunFailed: As `check_judged`.
    """
    grades: dict[Key, Grade] = {}
    replies: list[Reply] = []
    for trajectory in stored:
        key = (trajectory.sample_id, trajectory.rollout)
        if trajectory.stop_reason == "error" or trajectory.reward is None:
            continue
        sample = as_shown(samples[trajectory.sample_id], trajectory)
        answer = answer_for(trajectory.reply, sample, rule)
        if answer is None:
            grades[key] = nothing_read(sample, rule)
        if answer is not None or rule.together is not None:  # keeps the grouping of questions unchanged
            replies.append(Reply(key=key, text=answer or "", sample=sample))
    found = await grade_replies(replies, rule, grader, folder)
    found = replace(found, grades={**found.grades, **grades})
    check_judged(found, max_unscored, folder)
    return found


def waits_for_model(suite: EvalSuite) -> bool:
    """Whether a model grades, once all rollouts are generated (`with_model`)."""
    return rule_of(suite).asks_model and suite.grader is not None


async def with_model(
    suite: EvalSuite, stored: Iterable[Trajectory], samples: Mapping[str, Sample], folder: Path
) -> Graded:
    """The same for an evaluation; empty if its protocol asks no model, or the suite names none."""
    if suite.grader is None or not waits_for_model(suite):
        return Graded()
    return await graded_by_model(
        stored, samples, rule_of(suite), suite.grader, folder, max_unscored=suite.reward.max_unscored
    )


def with_grade(trajectory: Trajectory, sample: Sample, found: Graded, recipe: RewardRecipe) -> Trajectory:
    """A trajectory with the grade from a model; unscored if the model's reply was unreadable."""
    key, reward = (trajectory.sample_id, trajectory.rollout), trajectory.reward
    grade = found.grades.get(key)
    if reward is None or (grade is None and key not in found.unreadable):
        return trajectory
    part = Unscored(found.unreadable[key]) if grade is None else verdict_of(grade)
    return replace(trajectory, reward=recombined(reward, part, sample, recipe))


def graded(trajectory: Trajectory, sample: Sample, rule: Rule, recipe: RewardRecipe) -> Trajectory:
    """A scored trajectory with a protocol's grade as its accuracy.

    A failed rollout stays unscored, and a verdict that the rule leaves to the verifier is kept.
    """
    reward = trajectory.reward
    if (
        rule.by == "verifier"
        or reward is None
        or trajectory.stop_reason == "error"
        or name_of(sample) != DEFAULT
    ):
        return trajectory
    grade = grade_of(trajectory.reply, sample, rule)
    return replace(trajectory, reward=recombined(reward, verdict_of(grade), sample, recipe))


def verdict_of(grade: Grade) -> Verdict:
    """The grade as a verdict on the answer."""
    facts = {"unreadable": float(grade.unreadable), FALLBACK: grade.fallback}
    return Verdict(
        grade.score, "nothing was read" if grade.read is None else f"read {quote(grade.read)}", facts
    )


def recombined(reward: Reward, accuracy: Verdict | Unscored, sample: Sample, recipe: RewardRecipe) -> Reward:
    """A reward with a new verdict on the answer; its other parts are kept."""
    parts: dict[str, Verdict | Unscored] = {"accuracy": accuracy}
    others = {"format": reward.format, "tool": reward.tool}
    if recipe.consistency is not None:
        others["consistency"] = reward.consistency
    for name, value in (others | dict(reward.own)).items():
        parts[name] = Unscored(reward.why) if value is None else Verdict(value, "as scored")
    return combine(parts, weights_of(sample, recipe), recipe)


def as_shown(sample: Sample, trajectory: Trajectory) -> Sample:
    """The sample with the size at which its picture was shown, if replies are in pixels of that size.

    Raises:
        DataError: If the trajectory does not have it.
    """
    if trajectory.stop_reason == "error" or not answers_in_shown_pixels(sample):
        return sample
    size = trajectory.images[0].seen if trajectory.images else None
    if size is None:
        raise DataError(
            "replies are in pixels of the picture as it was shown, but its size was not kept",
            where=f"trajectory of sample {sample.id!r}, rollout {trajectory.rollout}",
            fix="evaluate again",
        )
    return with_shown_size(sample, size)


def mark_of(trajectory: Trajectory, sample: Sample) -> Mark:
    """The scorer's input for one rollout; the sample has the size at which its picture was shown."""
    reward, cluster = trajectory.reward, cluster_of(trajectory, sample)
    score = None if reward is None else reward.accuracy
    unreadable = reward is not None and reward.parts.get("unreadable", 0.0) > 0
    in_a_set = score is not None and ANNOTATED in sample.extra
    boxes = answered_boxes(trajectory.reply, sample) if in_a_set else None
    attempted = reward is None or not reward.parts.get(ATTEMPTED)
    return Mark(
        sample.id,
        sample.extra,
        score,
        unreadable,
        sample.source,
        cluster,
        boxes,
        attempted=attempted,
        waits=score is None
        and trajectory.stop_reason != "error"
        and scored_elsewhere(sample)
        and not is_left_out(trajectory),
    )


def with_fallback(mark: Mark, trajectory: Trajectory) -> Mark:
    """The mark with the result of the protocol's own fallback if nothing was read."""
    parts = trajectory.reward.parts if trajectory.reward is not None else {}
    return replace(mark, score=parts.get(FALLBACK, mark.score))


def scores_of(scorer: str, marks: list[Mark], fallbacks: list[Mark]) -> Scores:
    """A scorer's result, plus `with_fallback`: the score with the protocol's own fallback.

    The second is left out if it is the same. Its interval is given beside that of the score.

    Raises:
        BrokenPart: If a custom scorer returned something that cannot be a score.
    """
    found = scored_by(scorer, marks)
    if fallbacks == marks:
        return found
    other = scored_by(scorer, fallbacks)
    if "score" not in other:
        return found
    intervals = dict(found.get("intervals", {}))
    if "score" in other.get("intervals", {}):
        intervals["with_fallback"] = other["intervals"]["score"]
    return found | {"with_fallback": other["score"]} | ({"intervals": intervals} if intervals else {})


def graded_again(
    finished: Finished,
    samples: Mapping[str, Sample],
    rule: Rule,
    scorer: str,
    models: tuple[Grader | None, BatchedEndpoint | None],
    folder: Path,
) -> tuple[Scores, dict[Key, float]]:
    """The scores of stored replies by a rule, and the score of each that was graded.

    Args:
        finished: The evaluation.
        samples: Id -> question, in the form in which the rule reads its replies.
        rule: The rule that grades.
        scorer: Name of the scorer that combines grades.
        models: Models to ask if the rule asks one, and if a question's verifier does.
        folder: Where their replies are stored.

    Raises:
        RunFailed: If the model did not grade everything.
        DataError: If replies are in pixels of pictures whose shown sizes were not stored.
    """
    found: Graded | None = None
    grader, judge = models
    most = finished.suite.reward.max_unscored
    if rule.asks_model and grader is not None:
        stored = finished.trajectories()
        found = asyncio.run(graded_by_model(stored, samples, rule, grader, folder, max_unscored=most))
    elif (
        rule.by == "verifier"
        and judge is not None
        and any(verifier_of(sample).asks_judge for sample in samples.values())
    ):
        found = asyncio.run(judge_again(finished.trajectories, samples, judge, folder, max_unscored=most))
    grades: dict[Key, float] = {}
    marks, fallbacks = [], []
    for trajectory in finished.trajectories():
        sample = as_shown(samples[trajectory.sample_id], trajectory)
        mark = mark_of(trajectory, sample)
        other = mark
        if not scored_elsewhere(sample):
            grade = _again(trajectory, sample, rule, found)
            mark = replace(mark, score=None, unreadable=False, attempted=_attempted(mark, trajectory, found))
            if grade is not None:
                mark = replace(mark, score=grade.score, unreadable=grade.unreadable)
                grades[sample.id, trajectory.rollout] = grade.score
            other = mark if grade is None else replace(mark, score=grade.fallback)
        marks.append(mark)
        fallbacks.append(other)
    return scores_of(scorer, marks, fallbacks), grades


def _again(trajectory: Trajectory, sample: Sample, rule: Rule, found: Graded | None) -> Grade | None:
    """The grade of a stored reply by another rule; None if the rollout or the grading model failed."""
    if trajectory.stop_reason == "error":
        return None
    if found is not None and (rule.asks_model or verifier_of(sample).asks_judge):
        return found.grades.get((sample.id, trajectory.rollout))
    return grade_of(trajectory.reply, sample, rule)


def _attempted(mark: Mark, trajectory: Trajectory, found: Graded | None) -> bool:
    """Whether a stored reply attempts an answer, according to its latest judge."""
    return (
        mark.attempted if found is None else (mark.sample_id, trajectory.rollout) not in found.not_attempted
    )
