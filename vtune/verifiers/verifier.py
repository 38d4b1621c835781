"""What a verifier is, and what all verifiers read in the same way."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from vtune.errors import DataError, ServiceError
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import tags

LONGEST_QUOTE = 60
"""Limit on the characters of a quotation; ours."""

ELSEWHERE = "scored elsewhere"
"""How the reason begins if a reply waits for the scores of an official scorer."""

ANSWER_IN: Mapping[str, Callable[[str], str | None]] = MappingProxyType(
    {"tag": tags.answer, "boxed": tags.boxed, "reply": tags.said}
)
"""`answer_in` of verifier_parm -> where the answer is read: the only `<answer>` (the default; CodeV), the
reply's `\\boxed{}` (V-Triune, eq. 1), or everything after the thoughts (benchmarks that ask for no tag).

A box around the whole `<answer>` is removed, and so is, for `reply`, an `<answer>` tag pair that ends the
reply: a question and a prompt style may each ask for one of them."""


@dataclass(frozen=True, slots=True)
class Case:
    """An example of what a verifier judges: enough to test what every verifier promises."""

    gold: str
    """A correct answer, as it would be between its tags."""
    broken_gold: str
    """A ground truth that this kind of verifier cannot read."""
    wrong: str
    """An answer that earns nothing."""
    truth: str | None = None
    """The ground truth, if it differs from the correct answer."""
    choices: tuple[str, ...] = ()
    parm: Mapping[str, Any] = field(default_factory=dict)
    """Options: the sample's `verifier_parm`."""


def own_words(sample: Sample) -> str:
    """The correct answer if the ground truth is one."""
    return sample.ground_truth


@dataclass(frozen=True, slots=True)
class Verifier:
    """A judge of answers: pure functions of the reply and the sample's judging options."""

    verify: Callable[[str, Sample], Verdict]
    """(reply, sample) -> a score in [0, 1], with `unreadable` (1 or 0) among the parts. Never raises
    because of the reply, except `undecided` if it `asks_judge`."""
    check_ground_truth: Callable[[Sample], None]
    """Raises DataError if no reply could earn 1: that is our mistake, and must not count against replies."""
    form: Callable[[Sample], str]
    """What an answer looks like, as a noun phrase for the end of a question (see `asking`)."""
    case: Case
    """What its promises are tested with."""
    right: Callable[[Sample], str] = own_words
    """The answer that gives the ground truth, without tags (see `perfect`). Raises like the check."""
    partial_credit: bool = False
    """Whether it gives scores between 0 and 1."""
    answers_in_boxes: bool = False
    """Whether its ground truth is boxes."""
    self_contained: bool = False
    """Whether its questions must state the form of an answer (V-Triune, figure 8), which nobody could
    guess."""
    in_worker: bool = False
    """Whether it may run long or crash, so that `Verifying` runs it in a separate process; our own verifiers
    then do not get the row's pictures, evidence and `extra`."""
    looks_slow: Callable[[str, Sample], bool] | None = None
    """Estimates quickly whether (reply, sample) may take long; None: unknown. It affects where
    a reply is verified, never its verdict."""
    reads_iou: bool = False
    """Whether it needs IoU thresholds, which tighten in training: `iou` in verifier_parm (see `with_iou`)."""
    asks_judge: bool = False
    """Whether some answers are left to a model: `verify` raises `undecided`, and `Verifying` asks it."""
    reads_outcome: bool = False
    """Whether it reads the environment's outcome (`outcome` in verifier_parm) instead of the reply."""
    elsewhere: Callable[[Sample], bool] | None = None
    """Whether only the official scorer of a benchmark can judge a sample, so that replies to it stay unscored
    here until its scores are imported. None: never."""


class Undecided(ServiceError):
    """An answer that only a model can judge (see `undecided`)."""

    answer: str = ""
    """The text for the model to compare with the ground truth."""

    def __reduce__(self) -> tuple[object, ...]:
        return *super().__reduce__(), {"answer": self.answer}


def undecided(answer: str, sample: Sample) -> Undecided:
    """The error by which a verifier leaves an answer to a model; without a model, it is unscored."""
    error = Undecided(
        f"only a judge can tell whether {quote(answer)} is right, and there is none",
        where=where(sample),
        fix="set reward.judge in the recipe",
    )
    error.answer = answer
    return error


def where(sample: Sample) -> str:
    """The place named by an error about a sample."""
    return f"sample {sample.id!r}, source {sample.source!r}"


def quote(text: str) -> str:
    """A text as quoted in a verdict: short enough to read in a report."""
    return repr(text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…")


def answered(score: float, why: str) -> Verdict:
    """The verdict on a readable answer."""
    return Verdict(score, why, {"unreadable": 0.0})


def unreadable(why: str) -> Verdict:
    """The verdict on a reply without a readable answer: the model's mistake, counted separately."""
    return Verdict(0.0, why, {"unreadable": 1.0})


def no_answer(sample: Sample) -> Verdict:
    """The verdict on a reply without exactly one answer."""
    missing = {
        "tag": "no single <answer> at the end",
        "boxed": "no single \\boxed{} in the reply",
        "reply": "no reply",
    }
    return unreadable(missing[sample.verifier_parm.get("answer_in") or "tag"])


def given_answer(reply: str, sample: Sample) -> str | None:
    """The answer, read where the sample's `answer_in` says; None if there is not exactly one.

    Raises:
        DataError: If `answer_in` is not one of `ANSWER_IN`.
    """
    place = one_of(sample, "answer_in", ANSWER_IN, default="tag")
    return ANSWER_IN[place](reply)


def options(sample: Sample, known: Collection[str]) -> dict[str, Any]:
    """The `verifier_parm` of a sample; a key whose value is null counts as absent (Parquet fills structs).

    Raises:
        DataError: If there is a key that the verifier does not know, or an unknown `answer_in`.
    """
    given = {key: value for key, value in sample.verifier_parm.items() if value is not None}
    if unknown := sorted(set(given) - set(known)):
        raise DataError(
            f"verifier `{sample.verifier}` has no option {', '.join(f'`{key}`' for key in unknown)}",
            where=where(sample),
            fix=f"known in verifier_parm: {', '.join(sorted(known)) or 'none'}",
        )
    if "answer_in" in given:
        one_of(sample, "answer_in", ANSWER_IN, default="tag")
    return given


def one_of(sample: Sample, key: str, known: Collection[str], *, default: str) -> str:
    """The value of an option that must be one of a few names.

    Raises:
        DataError: If it is not one of them.
    """
    value = sample.verifier_parm.get(key)
    if value is None:
        return default
    if not isinstance(value, str) or value not in known:
        raise wrong_option(sample, key, value, f"one of {', '.join(known)}")
    return value


def wrong_option(sample: Sample, key: str, value: object, wanted: str) -> DataError:
    """The error for an option with an invalid value."""
    return DataError(
        f"verifier `{sample.verifier}`: `{key}` is {value!r:.60}",
        where=where(sample),
        fix=f"write {wanted} into verifier_parm",
    )
