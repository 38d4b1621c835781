"""Grades of a protocol in place of what verifiers say."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from vtune.config import load_recipe
from vtune.environments import DEFAULT, name_of
from vtune.errors import DataError, RecipeError, nearest
from vtune.files.json_text import read_record
from vtune.metrics.benchmarks import SCORERS, Mark, Scores
from vtune.protocols import PROTOCOLS
from vtune.protocols.protocol import Grade, Rule, wrong_kind
from vtune.reward.combining import combine, weights_of
from vtune.reward.part import Unscored
from vtune.reward.recipe import RewardRecipe
from vtune.runs.evaluate.questions import Source, fingerprints, read_records
from vtune.runs.evaluate.suite import EvalSuite
from vtune.schema.clusters import cluster_of
from vtune.schema.parquet import read_trajectories
from vtune.schema.reward import Reward
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.schema.verdict import Verdict
from vtune.verifiers.verifier import given_answer, quote

FALLBACK = "fallback"
"""In `parts` of a reward: what the protocol's own fallback would have given in expectation."""


def rule_of(source: Source) -> Rule:
    """The rule by which a suite is asked and graded.

    Raises:
        RecipeError: If its protocol has none.
    """
    rule = PROTOCOLS[source.protocol].rule(source.kind)
    if rule is None:
        raise wrong_kind(source.protocol, source.kind)
    return rule


def grade_of(reply: str, sample: Sample, rule: Rule) -> Grade:
    """The grade of a stored reply: a pure function of it and of the question.

    Args:
        reply: All that the policy wrote.
        sample: As it was asked, with the place of its answer in `verifier_parm`.
        rule: That grades.
    """
    if rule.reads == "reply":
        return rule.grade(reply, sample)
    answer = given_answer(reply, sample)
    if answer is None:
        # Upstream would have been handed something; what its rule makes of nothing is its fallback.
        return Grade(score=0.0, read=None, fallback=rule.grade("", sample).fallback)
    return rule.grade(answer, sample)


def graded(trajectory: Trajectory, sample: Sample, rule: Rule, recipe: RewardRecipe) -> Trajectory:
    """A scored trajectory with the grade of a protocol as its accuracy.

    What the rollout itself failed at stays unscored. A rule that leaves the question to the suite leaves the
    verdict to the verifier, too.
    """
    reward = trajectory.reward
    if rule.ask is None or reward is None or trajectory.stop_reason == "error" or name_of(sample) != DEFAULT:
        return trajectory
    grade = grade_of(trajectory.reply, sample, rule)
    return replace(trajectory, reward=_recombined(reward, grade, sample, recipe))


def _recombined(reward: Reward, grade: Grade, sample: Sample, recipe: RewardRecipe) -> Reward:
    facts = {"unreadable": float(grade.unreadable), FALLBACK: grade.fallback}
    why = "nothing was read" if grade.read is None else f"read {quote(grade.read)}"
    parts: dict[str, Verdict | Unscored] = {"accuracy": Verdict(grade.score, why, facts)}
    others = {"format": reward.format, "tool": reward.tool}
    if recipe.consistency is not None:
        others["consistency"] = reward.consistency
    for name, value in (others | dict(reward.own)).items():
        parts[name] = Unscored(reward.why) if value is None else Verdict(value, "as scored")
    return combine(parts, weights_of(sample, recipe), recipe)


def mark_of(trajectory: Trajectory, sample: Sample) -> Mark:
    """What a scorer is given of one rollout."""
    reward, cluster = trajectory.reward, cluster_of(trajectory)
    score = None if reward is None else reward.accuracy
    unreadable = reward is not None and reward.parts.get("unreadable", 0.0) > 0
    return Mark(sample.id, sample.extra, score, unreadable, source=sample.source, cluster=cluster)


def with_fallback(mark: Mark, trajectory: Trajectory) -> Mark:
    """The mark with what the protocol's own fallback would have given where nothing was read."""
    parts = trajectory.reward.parts if trajectory.reward is not None else {}
    return replace(mark, score=parts.get(FALLBACK, mark.score))


def scores_of(scorer: str, marks: list[Mark], fallbacks: list[Mark]) -> Scores:
    """What a scorer makes of grades, with `with_fallback`: the score by the protocol's own fallback.

    The second is left out where it is the same.
    """
    found = SCORERS[scorer](marks)
    if fallbacks == marks:
        return found
    other = SCORERS[scorer](fallbacks).get("score")
    return found | ({} if other is None else {"with_fallback": other})


def regrade(folder: Path, protocol: str) -> dict[str, Any]:
    """The scores of a finished evaluation by another protocol, from its stored replies: nothing is drawn.

    The questions were asked as the evaluation asked them: what the other protocol's prompt would have
    changed, this does not tell.

    Args:
        folder: That `vtune eval` has written; its data are where they were.
        protocol: Name of a protocol with a rule for the suite, `vtune` for the verifiers of the samples.

    Returns:
        `protocol`; `score`, what its scorer makes of the grades; `grades`, one per trajectory in order:
        `sample_id`, `rollout`, `score`, `read` (null: unreadable) and `fallback`.

    Raises:
        RecipeError: If the protocol is unknown, or has no rule for the suite.
        DataError: If the folder holds no evaluation, its data have changed, or a verifier reads more than
        replies.
    """
    if protocol not in PROTOCOLS:
        raise RecipeError(f"there is no protocol {protocol!r}", fix=nearest(protocol, PROTOCOLS))
    result = read_record(folder / "results.json", "suite", "environment", fix="finish the evaluation first")
    suite = load_recipe(folder / "suite.yaml", EvalSuite)
    if result["environment"]["data"] != fingerprints(suite):
        raise DataError(f"the data of {folder} have changed", fix="put the old files back")
    rule = PROTOCOLS[protocol].rule(suite.kind)
    if rule is None:
        raise wrong_kind(protocol, suite.kind)
    samples = {sample.id: sample for sample in read_records(suite)}
    grades, marks, fallbacks = [], [], []
    for trajectory in read_trajectories(folder / "trajectories.parquet"):
        sample = samples[trajectory.sample_id]
        mark = Mark(sample.id, sample.extra, None, unreadable=False, source=sample.source)
        grade = None if trajectory.stop_reason == "error" else grade_of(trajectory.reply, sample, rule)
        if grade is not None:
            mark = replace(mark, score=grade.score, unreadable=grade.unreadable)
            grades.append(
                {"sample_id": sample.id, "rollout": trajectory.rollout, **asdict(grade)},
            )
        marks.append(mark)
        fallbacks.append(mark if grade is None else replace(mark, score=grade.fallback))
    scorer = rule.scorer or suite.scorer
    return {"protocol": protocol, "score": scores_of(scorer, marks, fallbacks), "grades": grades}
