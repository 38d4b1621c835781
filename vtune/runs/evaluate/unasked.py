"""Warns of questions that do not say where their answer is looked for, or do not show a picture."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from vtune.models.served import is_scripted
from vtune.models.source import resolved
from vtune.report.progress import say
from vtune.rollout.prompts import PLAIN
from vtune.runs.agent.prompt_lengths import MEASURED
from vtune.runs.evaluate.grading import rule_of
from vtune.runs.evaluate.questions import read_records
from vtune.runs.evaluate.suite import EvalSuite
from vtune.verifiers.answer_instruction import unnamed_place


def warn_of_unasked(suite: EvalSuite, model: str, *, count: int) -> None:
    """Warn if a model is never told where its answer is looked for, and so would score 0.

    Every prompt style except `plain` says it. A run's checkpoint may have learnt it from traces, and a
    script's replies are fixed.

    Args:
        suite: The suite whose first questions are checked.
        model: The model that answers.
        count: Number of questions to be asked.
    """
    rule = rule_of(suite)
    looks_itself = rule.by == "grade" and rule.reads == "reply"
    trained = Path(resolved(model)).parent.name == "checkpoints"
    if suite.rollout.prompt != PLAIN or looks_itself or trained or is_scripted(model):
        return
    first = list(islice(read_records(suite), min(count, MEASURED)))
    places = [place for sample in first if (place := unnamed_place(sample))]
    if places:
        say(
            f"{len(places)} of the first {len(first)} questions never tell the model to answer in "
            f"{places[0]}, the only place that answers are read from, and `rollout.prompt: plain` adds no "
            "instructions: an untrained model scores 0; --set answer_in=reply reads the whole reply, --set "
            "rollout.prompt=tools asks for it"
        )


def warn_of_unshown(questions: Sequence[str]) -> None:
    """Warn if a picture of a question is not shown, most likely because its mark is misspelt.

    Args:
        questions: Ids of such questions.
    """
    if questions:
        say(
            f"{len(questions)} question(s) have a picture that neither text nor options refer to, and which "
            f"is not shown, the first {questions[0]!r}: a picture is referred to as `<image 1>`"
        )


def warn_of_repeats(suite: EvalSuite) -> None:
    """Warn if each question is asked several times, but always answered by the likeliest tokens."""
    if suite.rollouts > 1 and suite.rollout.temperature == 0:
        say(
            f"rollouts is {suite.rollouts} and rollout.temperature is 0: each question is asked "
            f"{suite.rollouts} times, but all its replies are most likely the same; --set "
            "rollout.temperature=1.0 varies them"
        )
