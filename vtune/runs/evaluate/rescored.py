"""Stored replies of an evaluation, read by another one's parser and judge."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeVar

from vtune.differences import differing_keys
from vtune.errors import DataError, RecipeError, RunFailed
from vtune.judge.budget import Budget
from vtune.judge.endpoint import BatchedEndpoint
from vtune.runs.evaluate.finished import Finished
from vtune.runs.evaluate.grading import graded_again, rule_of, thresholds_of
from vtune.runs.evaluate.judged import CACHE, check_grader, prompts_hash
from vtune.runs.evaluate.questions import read_records
from vtune.runs.evaluate.rejudged import CACHE as JUDGE_CACHE
from vtune.runs.evaluate.rejudged import answer_prompts
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.evaluate.unjudged import Key
from vtune.schema.sample import Sample
from vtune.verifiers import verifier_of
from vtune.verifiers.detection import with_iou

E = TypeVar("E", bound=BatchedEndpoint)

Reread = Literal["parser", "judge"]

PARSER = (
    *("protocol", "scorer", "answer_in", "answer_default", "reply_space", "choices.letter_rule"),
    "reward.iou",
)
"""Keys of a suite that decide how replies are read and scores combined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The effect of reading the replies with another parser or judge."""

    score: float | None = None
    points: float | None = None
    """The score before this reading, minus the score with it."""
    items: int | None = None
    """Number of questions with a reply whose grade changed."""
    why: str = ""
    """Why there is no score."""


@dataclass(slots=True)
class _Known:
    """The results of the readings so far."""

    score: float | None
    grades: Mapping[Key, float | None]
    readings: dict[Reread, Reading] = field(default_factory=dict)


def parser_keys(ours: EvalSuite, theirs: EvalSuite) -> list[str]:
    """Keys in which two suites read replies differently, with `protocol` only if its rules differ."""
    mine, other = rule_of(ours), rule_of(theirs)
    parts = ("grade", "reads", "by", "prepared", "reply_space")
    same = all(getattr(mine, part) == getattr(other, part) for part in parts)
    changed = differing_keys(ours.model_dump(mode="json"), theirs.model_dump(mode="json"))
    return [
        key
        for key in changed
        if any(f"{key}.".startswith(f"{one}.") for one in PARSER) and not (same and key == "protocol")
    ]


def judging(
    suite: EvalSuite, samples: Iterable[Sample], results: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Which models grade answers; None if none is asked.

    A model's URL, key and price are left out, as they change no grade.

    Args:
        suite: The suite.
        samples: Its questions.
        results: Results of the evaluation, which name the prompts used then.
    """
    rule, grader, verifiers = rule_of(suite), None, None
    if rule.asks_model and suite.grader is not None:
        before = (results or {}).get("grader", {})
        grader = _model(suite.grader) | {"prompts": before.get("prompts", prompts_hash(rule))}
    answers = answer_prompts(samples)
    if suite.reward.judge is not None and answers is not None:
        before = (results or {}).get("reward.judge", {}).get("prompts", {})
        verifiers = _model(suite.reward.judge) | {"answers": before.get("answers", answers)}
    return {"grader": grader, "reward.judge": verifiers}


def _model(endpoint: Any) -> dict[str, Any]:
    return {key: getattr(endpoint, key) for key in ("model", "temperature", "max_tokens")}


def readings(
    ours: Finished, theirs: EvalSuite, causes: Sequence[Reread], kept: Sequence[Path]
) -> dict[Reread, Reading]:
    """The scores of an evaluation's replies by another's parser and judge.

    First with their parser and our judge, then with their parser and judge. If the first is impossible, the
    result of the second is for both changes.

    Args:
        ours: The evaluation whose replies are read.
        theirs: The other's suite.
        causes: Which of the two differ, the parser first.
        kept: Folders of evaluations whose judges' replies may be used; no model is asked.
    """
    stored = {
        (t.sample_id, t.rollout): None if t.reward is None else t.reward.accuracy for t in ours.trajectories()
    }
    known = _Known(ours.results["score"].get("score"), stored)
    for number, cause in enumerate(causes, start=1):
        suite = read_by(ours.suite, theirs, causes[:number])
        try:
            score, grades = _again(ours, suite, kept)
        except (DataError, RecipeError, RunFailed) as error:  # reported in the result; the others continue
            known.readings[cause] = Reading(why=error.what)
            continue
        changed = {key[0] for key, value in known.grades.items() if grades.get(key) != value}
        both = known.score is not None and score is not None
        known.readings[cause] = Reading(
            score=score,
            points=known.score - score if both else None,  # type: ignore[operator]
            items=len(changed),
            why="" if both else "the scorer gives no single score",
        )
        known.score, known.grades = score, grades
    return known.readings


def read_by(ours: EvalSuite, theirs: EvalSuite, causes: Sequence[Reread]) -> EvalSuite:
    """Our suite with another's parser, judge or both; the order of options and everything else stay."""
    changes: dict[str, Any] = {}
    reward: dict[str, Any] = {}
    if "parser" in causes:
        differing = parser_keys(ours, theirs)
        changes = {key: getattr(theirs, key) for key in PARSER if "." not in key and key in differing}
        reward["iou"] = theirs.reward.iou
        if ours.choices is not None and theirs.choices is not None:
            changes["choices"] = theirs.choices.model_copy(update={"order": ours.choices.order})
    if "judge" in causes:
        changes["grader"] = theirs.grader
        changes["protocol"] = theirs.protocol  # decides what the model is asked
        reward["judge"] = theirs.reward.judge
    return ours.model_copy(update=changes | {"reward": ours.reward.model_copy(update=reward)})


def _again(
    ours: Finished, suite: EvalSuite, kept: Sequence[Path]
) -> tuple[float | None, Mapping[Key, float | None]]:
    """The score of stored replies by a suite, and their grades, without asking any model."""
    rule, iou = rule_of(suite), thresholds_of(suite.reward)
    check_grader(rule, suite.grader, suite.protocol)
    samples = {}
    for sample in read_records(suite):
        if iou and verifier_of(sample).reads_iou:
            sample = with_iou(sample, iou)
        samples[sample.id] = sample
    with TemporaryDirectory() as name:
        folder = Path(name)
        for cache in (CACHE, JUDGE_CACHE):
            replies = [(one / cache).read_bytes() for one in kept if (one / cache).is_file()]
            (folder / cache).write_bytes(b"".join(replies))
        models = (_silent(suite.grader), _silent(suite.reward.judge))
        scores, grades = graded_again(ours, samples, rule, suite.scorer, models, folder)
    found: Any = scores.get("score")
    return found, grades


def _silent(model: E | None) -> E | None:
    """A model of which only stored replies are used: its budget is too small for any question."""
    if model is None:
        return None
    changes = {"budget": Budget(tokens=1), "api_key_env": None, "batch": False}
    return model.model_copy(update=changes)
