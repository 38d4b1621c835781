"""Samples judged by their environment: its final reward is the verdict."""

from dataclasses import replace

from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Outcome
from vtune.schema.verdict import Verdict
from vtune.verifiers import VERIFIERS
from vtune.verifiers.verifier import Case, Verifier, answered, options, where, wrong_option

NAME = "environment_reward"
OUTCOME = "outcome"
"""Key of `verifier_parm`: [score, reason]. Scoring sets it from the trajectory (see `with_outcome`)."""


def verify_outcome(reply: str, sample: Sample) -> Verdict:
    """Score the reward that the environment gave at the end of the conversation; no reply is read.

    Raises:
        DataError: If there is no reward, or `verifier_parm` contains another key.
    """
    check_outcome(sample)
    given = sample.verifier_parm.get(OUTCOME)
    if given is None:
        raise DataError(
            "the environment has given no reward",
            where=where(sample),
            fix="set `environment` of the row to one that judges, and roll out again",
        )
    score, why = given
    return answered(float(score), why)


def check_outcome(sample: Sample) -> None:
    """Check that there are no unknown options.

    Raises:
        DataError: If `verifier_parm` contains a key other than `outcome`, or that is not [score, reason].
    """
    given = options(sample, {OUTCOME}).get(OUTCOME)
    if given is None:
        return
    pair = isinstance(given, list | tuple) and len(given) == 2
    if not pair or type(given[0]) not in (float, int) or not 0 <= given[0] <= 1 or type(given[1]) is not str:
        raise wrong_option(sample, OUTCOME, given, "[score from 0 to 1, reason]")


def with_outcome(sample: Sample, outcome: Outcome | None) -> Sample:
    """The sample with its environment's outcome for a trajectory, never with one from the data."""
    given = {} if outcome is None else {OUTCOME: [outcome.score, outcome.why]}
    others = {key: value for key, value in sample.verifier_parm.items() if key != OUTCOME}
    return replace(sample, verifier_parm=others | given)


def outcome_form(sample: Sample) -> str:
    """What an answer looks like."""
    return "what the environment asks for"


def no_reply(sample: Sample) -> str:
    """There is no answer that gives the ground truth.

    Raises:
        DataError: Always.
    """
    raise DataError(
        "the environment judges, so no reply is right by itself",
        where=where(sample),
        fix="roll the sample out",
    )


VERIFIERS.add(
    NAME,
    Verifier(
        verify_outcome,
        check_outcome,
        outcome_form,
        Case(gold="", broken_gold="", wrong="", parm={OUTCOME: [1.0, "the goal is reached"]}),
        right=no_reply,
        partial_credit=True,
        reads_outcome=True,
    ),
)
