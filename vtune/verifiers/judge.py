"""Free-form answers: does a model say that they mean the same?"""

from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import VERIFIERS
from vtune.verifiers.exact import accepted, normalise
from vtune.verifiers.gradings import KEY, LONGEST, grading_of
from vtune.verifiers.verifier import (
    Case,
    Verifier,
    answered,
    no_answer,
    options,
    quote,
    undecided,
    unreadable,
    where,
)

NAME = "judge"

THREE_WAY = "attempted"
"""The grading whose judge may find that no answer was attempted."""
ATTEMPTED = "not_attempted"
"""Part of a verdict by that grading: 1 if the judge finds so, else 0. Its mean is a share."""


def judged(answer: str, sample: Sample, *, same: bool | None) -> Verdict:
    """The verdict, given a judge's finding whether an answer means the same; None: it attempts nothing."""
    if same is None:
        why = f"the judge finds that {quote(answer)} attempts no answer"
        return Verdict(0.0, why, {"unreadable": 0.0, ATTEMPTED: 1.0})
    compared = "the same as" if same else "other than"
    why = f"the judge finds {quote(answer)} {compared} {quote(sample.ground_truth)}"
    verdict = answered(float(same), why)
    if sample.verifier_parm.get(KEY) != THREE_WAY:
        return verdict
    return Verdict(verdict.score, verdict.why, {**verdict.parts, ATTEMPTED: 0.0})


def verify_judge(reply: str, sample: Sample) -> Verdict:
    """Score what a rule decides; what only a judge can decide is not scored here.

    An answer that equals the ground truth, or one of the `aliases` in `verifier_parm`, needs no judge, nor
    does a reply without an answer. `answer_in` says where the answer is. `grading` selects another rule by
    which it is read and compared (see `vtune.verifiers.gradings`).

    Source: CodeV's code asks a judge if math-verify finds no match; SenseNova-MARS's, if the text is not
    the same. The latter is done here.

    Raises:
        DataError: As for `check_judge`.
        Undecided: If only a judge can tell.
    """
    right = _accepted(sample)
    grading = grading_of(sample)
    given = grading.read(reply, sample)
    if given is None:
        return no_answer(sample)
    if not given or len(given) >= LONGEST:
        return unreadable(f"the answer has {len(given)} characters")
    if grading.plain is not None and grading.plain(given) in {grading.plain(truth) for truth in right}:
        return answered(1.0, f"{quote(given)} is the truth, word for word")
    raise undecided(given, sample)


def check_judge(sample: Sample) -> None:
    """Check that there is something to compare with.

    Raises:
        DataError: If the ground truth or an alias is empty, the ground truth is longer than an answer may
            be, or an option is unknown.
    """
    _accepted(sample)


def judge_form(sample: Sample) -> str:
    """What an answer looks like."""
    return "a short answer"


def _accepted(sample: Sample) -> frozenset[str]:
    """The ground truth and its aliases, unchanged."""
    options(sample, {"aliases", "answer_in", KEY})
    grading_of(sample)
    if len(sample.ground_truth) >= LONGEST:
        raise DataError(
            f"the ground truth has {len(sample.ground_truth)} characters",
            where=where(sample),
            fix=f"write a short answer, below {LONGEST}",
        )
    accepted(sample, normalise)  # raises if something is wrong
    return accepted(sample, str)


VERIFIERS.add(
    NAME,
    Verifier(
        verify_judge,
        check_judge,
        judge_form,
        Case(gold="a red cup", broken_gold="", wrong="a pen"),
        asks_judge=True,
    ),
)
