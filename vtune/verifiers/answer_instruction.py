"""The end of a question: where its answer goes, and what it should look like.

A reply is read in one place and in one form (`answer_in`, and the form that its verifier states); a policy
must be told both to be right. So anything that asks a question takes its ending from here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from vtune.schema.message import Message
from vtune.schema.sample import Sample
from vtune.verifiers import VERIFIERS, verifier_of
from vtune.verifiers.verifier import one_of

Mark = Literal["<think>", "<answer>", "\\boxed"]

MARKS: Mapping[str, tuple[Mark, ...]] = MappingProxyType(
    {"tag": ("<think>", "<answer>"), "boxed": ("\\boxed",), "reply": ()}
)
"""`answer_in` -> what a question must name: where the answer is read, and the thoughts before it."""
SENTENCES: Mapping[Mark, str] = MappingProxyType(
    {
        "<think>": "Think step by step between <think> and </think>.",
        "<answer>": "Give the final answer between <answer> and </answer>.",
        "\\boxed": "Put the final answer in \\boxed{}.",
    }
)


def missing_marks(sample: Sample) -> tuple[Mark, ...]:
    """The places read by its verifier and format reward that the question does not name yet.

    If the format reward counts tags (`format_ratio`), the answer is also asked for between tags even if it is
    read elsewhere, as in V-Triune's published loader.

    Raises:
        DataError: If `answer_in` is not one of `MARKS`.
    """
    text, wanted = asked(sample), _read_in(sample)
    if sample.format_ratio > 0:
        wanted = (*MARKS["tag"], *wanted)
    return tuple(mark for mark in dict.fromkeys(wanted) if mark not in text)


def unnamed_place(sample: Sample) -> Mark | None:
    """The place in which the answer is read, if the question does not name it; thoughts are not required.

    Raises:
        DataError: As `missing_marks` does.
    """
    return next((mark for mark in _read_in(sample)[-1:] if mark not in asked(sample)), None)


def _read_in(sample: Sample) -> tuple[Mark, ...]:
    """The marks of the place in which the answer is read; that of the answer comes last."""
    place = one_of(sample, "answer_in", MARKS, default="tag")
    # If the environment judges, no answer is read.
    verifier = VERIFIERS.get(sample.verifier)
    return () if verifier is not None and verifier.reads_outcome else MARKS[place]


def placed(sample: Sample) -> Sample:
    """The sample with a question that names all places that are read (see `missing_marks`).

    Raises:
        DataError: As `missing_marks` does.
    """
    sentences = [SENTENCES[mark] for mark in missing_marks(sample)]
    return with_ending(sample, f"\n{' '.join(sentences)}") if sentences else sample


def self_contained(sample: Sample) -> Sample:
    """The sample with a question that asks for its answer in the place and the form in which it is read.

    What the question already says is not repeated, so a second pass changes nothing. V-Triune's
    figure 8 asks for boxes in this way; what it leaves open (the tags of the thoughts, which equation 2
    counts, and the meaning of coordinates) is ours.

    Raises:
        DataError: If its verifier or an option in `verifier_parm` is unknown.
    """
    sample = placed(sample)
    form = f"The answer is {verifier_of(sample).form(sample)}."
    return sample if form in asked(sample) else with_ending(sample, f"\n{form}")


def asked(sample: Sample) -> str:
    """Everything in a sample before the policy's first turn."""
    return "\n".join(turn.content for turn in sample.prompt)


def with_ending(sample: Sample, ending: str) -> Sample:
    """The sample with a text added after its last question."""
    return replace(sample, prompt=ended(sample.prompt, ending))


def ended(prompt: Sequence[Message], ending: str) -> tuple[Message, ...]:
    """Turns with a text added after the user's last one."""
    last = max(number for number, turn in enumerate(prompt) if turn.role == "user")
    turns = list(prompt)
    turns[last] = replace(turns[last], content=turns[last].content + ending)
    return tuple(turns)
