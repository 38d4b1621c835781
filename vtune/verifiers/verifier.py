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
"""Characters, ours."""

ELSEWHERE = "scored elsewhere"
"""How the reason begins where a reply waits for the scores of an official scorer."""

ANSWER_IN: Mapping[str, Callable[[str], str | None]] = MappingProxyType(
    {"tag": tags.answer, "boxed": tags.boxed, "reply": tags.said}
)
"""`answer_in` of verifier_parm -> where the answer is read: the only `<answer>` (the default; CodeV), the
reply's `\\boxed{}` (V-Triune, eq. 1), or all that follows the thoughts (benchmarks that ask for no tag).

A box around the whole of an `<answer>` is taken off, and in `reply` the `<answer>` that a reply ends with:
a question and a prompt style may each ask for one of them."""


@dataclass(frozen=True, slots=True)
class Case:
    """One example of what a verifier judges: enough to check the promises that all of them make."""

    gold: str
    """What a right reply has between its tags."""
    broken_gold: str
    """A ground truth that no verifier of this kind can read."""
    wrong: str
    """An answer that earns nothing."""
    truth: str | None = None
    """The ground truth where it is not the right answer itself."""
    choices: tuple[str, ...] = ()
    parm: Mapping[str, Any] = field(default_factory=dict)
    """Options, the sample's `verifier_parm`."""


def own_words(sample: Sample) -> str:
    """The right answer where the ground truth is one."""
    return sample.ground_truth


@dataclass(frozen=True, slots=True)
class Verifier:
    """A judge of answers: pure functions of the reply and of what the sample says about judging."""

    verify: Callable[[str, Sample], Verdict]
    """(reply, sample) -> a score in [0, 1], with `unreadable` (1 or 0) among the parts. Never raises
    because of the reply, but `undecided` where it `asks_judge`."""
    check_ground_truth: Callable[[Sample], None]
    """Raises DataError where no reply could earn 1: that is our mistake, and no reply pays for it."""
    form: Callable[[Sample], str]
    """What an answer looks like, as a noun phrase for the end of a question (see `asking`)."""
    case: Case
    """What its promises are checked by."""
    right: Callable[[Sample], str] = own_words
    """The answer that says the ground truth, without tags (see `perfect`). Raises DataError as the check."""
    partial_credit: bool = False
    """It gives scores between 0 and 1."""
    answers_in_boxes: bool = False
    """Its ground truth is boxes."""
    self_contained: bool = False
    """Its questions say themselves what form an answer has (V-Triune, figure 8): nobody could guess it."""
    in_worker: bool = False
    """It may run long or crash, so `Verifying` runs it in a process of its own; to one of ours, the row's
    pictures, evidence and `extra` are not sent."""
    looks_slow: Callable[[str, Sample], bool] | None = None
    """Tells at a glance whether (reply, sample) may take long; None: unknown. It changes where
    a reply is verified, never its verdict."""
    reads_iou: bool = False
    """It needs IoU thresholds, which tighten during training: `iou` in verifier_parm (see `with_iou`)."""
    asks_judge: bool = False
    """Some answers are left to a model: `verify` raises `undecided`, and `Verifying` asks it."""
    reads_outcome: bool = False
    """It reads no reply, but what the sample's environment gave: `outcome` in verifier_parm."""
    elsewhere: Callable[[Sample], bool] | None = None
    """Whether only the official scorer of a benchmark can tell, so that replies to the sample stay unscored
    here until its scores are imported. None: never."""


class Undecided(ServiceError):
    """An answer of which only a model can tell whether it is right (see `undecided`)."""

    answer: str = ""
    """What the model compares with the ground truth."""

    def __reduce__(self) -> tuple[object, ...]:
        return *super().__reduce__(), {"answer": self.answer}


def undecided(answer: str, sample: Sample) -> Undecided:
    """The error by which a verifier leaves an answer to a model; where there is none, it is unscored."""
    error = Undecided(
        f"only a judge can tell whether {quote(answer)} is right, and there is none",
        where=where(sample),
        fix="set reward.judge in the recipe",
    )
    error.answer = answer
    return error


def where(sample: Sample) -> str:
    """The place that an error about a sample names."""
    return f"sample {sample.id!r}, source {sample.source!r}"


def quote(text: str) -> str:
    """A text as a verdict quotes it: short enough to read in a report."""
    return repr(text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…")


def answered(score: float, why: str) -> Verdict:
    """The verdict on an answer that could be read."""
    return Verdict(score, why, {"unreadable": 0.0})


def unreadable(why: str) -> Verdict:
    """The verdict on a reply without a readable answer: the model's mistake, counted apart."""
    return Verdict(0.0, why, {"unreadable": 1.0})


def no_answer(sample: Sample) -> Verdict:
    """The verdict on a reply in which no single answer was found."""
    missing = {
        "tag": "no single <answer> at the end",
        "boxed": "no single \\boxed{} in the reply",
        "reply": "no reply",
    }
    return unreadable(missing[sample.verifier_parm.get("answer_in") or "tag"])


def given_answer(reply: str, sample: Sample) -> str | None:
    """The answer, read where the sample's `answer_in` says; None where there is no single one.

    Raises:
        DataError: If `answer_in` is not one of `ANSWER_IN`.
    """
    place = one_of(sample, "answer_in", ANSWER_IN, default="tag")
    return ANSWER_IN[place](reply)


def options(sample: Sample, known: Collection[str]) -> dict[str, Any]:
    """The `verifier_parm` of a sample; a key whose value is null counts as absent (Parquet fills structs).

    Raises:
        DataError: On a key that the verifier does not know, or an unknown `answer_in`.
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
    """The value of an option that has a few names for values.

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
    """The error for an option whose value is not what it has to be."""
    return DataError(
        f"verifier `{sample.verifier}`: `{key}` is {value!r:.60}",
        where=where(sample),
        fix=f"write {wanted} into verifier_parm",
    )
