"""Gradings: how the verifier `judge` reads and compares an answer before a model is asked.

A sample selects one with `grading` in its `verifier_parm`; by default ours. What the model is asked is in
`vtune.judge.graders`, under the same names.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from vtune.schema.sample import Sample
from vtune.verifiers.exact import normalise, squad
from vtune.verifiers.verifier import given_answer, one_of

KEY, OURS = "grading", "vtune"

LONGEST = 1000
"""Length in characters from which an answer is not shown to a judge: it is not short (DeepEyes refuses from
1000 on), and might exceed the judge's context."""

_THOUGHT = re.compile(r"</think(?:ing)?>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grading:
    """The rules applied before a model is asked."""

    about: str
    """One line: whose rule it is."""
    read: Callable[[str, Sample], str | None]
    """(reply, sample) -> the answer; None or empty if there is nothing to judge."""
    plain: Callable[[str], str] | None
    """The form in which an answer that equals a truth is right without a model; None: a model always decides.
    """


def conclusion(reply: str) -> str:
    """What follows the last thought of a reply, cut as in SenseNova-MARS's code."""
    return _THOUGHT.split(reply.rpartition("<|im_start|>assistant")[2])[-1]


def answers(text: str) -> Iterator[str]:
    """The content of each `<answer>`; takes linear time."""
    begin = 0
    while (start := text.find("<answer>", begin)) >= 0:
        end = text.find("</answer>", start)
        if end < 0:
            return
        yield text[start + len("<answer>") : end]
        begin = end + len("</answer>")


def last_answer(reply: str) -> str:
    """The last `<answer>` after the thoughts; without one, everything after them."""
    text = conclusion(reply)
    tagged = list(answers(text))
    return tagged[-1].strip() if tagged else text.partition("<|im_end|>")[0].strip()


GRADINGS: Mapping[str, Grading] = MappingProxyType(
    {
        OURS: Grading(
            about="ours: the only answer, the same word for word, else a model",
            read=given_answer,
            plain=normalise,
        ),
        "mars": Grading(
            about="SenseNova-MARS, inference/eval.py: SQuAD's exact match with any truth, else a model",
            read=lambda reply, _: last_answer(reply),
            plain=squad,
        ),
        "attempted": Grading(
            about="SimpleQA's: a model says right, wrong, or not attempted (SimpleVQA, LiveVQA)",
            read=given_answer,
            plain=None,
        ),
        "extracted": Grading(
            about="that of Humanity's Last Exam: a model extracts and compares (WebWatcher)",
            read=given_answer,
            plain=None,
        ),
    }
)
"""Name -> grading."""


def grading_of(sample: Sample) -> Grading:
    """The grading that a sample selects.

    Raises:
        DataError: If no grading has that name.
    """
    return GRADINGS[one_of(sample, KEY, GRADINGS, default=OURS)]
