"""What a protocol is: for each kind of question its prompt, its parser and its aggregation."""

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from vtune.data.options import bare, listing
from vtune.errors import DataError, RecipeError
from vtune.judge.prompts import Prompt
from vtune.schema.message import IMAGE, Message
from vtune.schema.sample import Sample
from vtune.verifiers.choice import lettered
from vtune.verifiers.spaces import Space
from vtune.verifiers.verifier import where

Reads = Literal["answer", "reply"]

_MARKS = re.compile(rf"(?:\s*{re.escape(IMAGE)}\s*)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What a protocol makes of one reply."""

    score: float
    """In [0, 1]; an unreadable reply is wrong."""
    read: str | None
    """The answer that was read; None: none could be read."""
    fallback: float
    """What the protocol's own fallback would have given in expectation, e.g. 1/k where it picks one of k
    options at random; the score itself where an answer was read or there is no fallback."""

    @property
    def unreadable(self) -> bool:
        """Whether no answer could be read."""
        return self.read is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A question to a model that reads or compares answers."""

    prompt: Prompt
    read: Callable[[str], Any]
    """Its reply -> what was wanted; None where the reply cannot be read."""
    wanted: str
    """What a reply should be, e.g. "0 or 1"."""


Judging = Generator[Ask, Any, Grade]
"""Questions to a model, each answered with what its `read` has found, and the grade in the end. A pure
function of the answers: it can be run again from the start with the same ones."""

JudgingTogether = Generator[Ask, Any, Sequence[Grade]]
"""The same for several replies: a grade for each, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """How a model grades several replies in one question."""

    most: int
    """Replies in a question."""
    by: Callable[[Sample], str]
    """What questions have in common whose replies may stand in one."""
    judge: Callable[[Sequence[tuple[str, Sample]]], JudgingTogether]
    """((what `reads` says, empty where it is nothing; sample), …) -> grades."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How a protocol asks and grades one kind of question: pure functions."""

    ask: Callable[[str, Sample], str] | None
    """(the question as its data have it, with any `<image>` inside of it, sample) -> the text that follows
    the pictures. None: the suite's own `choices` say how it is put."""
    grade: Callable[[str, Sample], Grade]
    """(what `reads` says, sample) -> grade. Never raises because of the text."""
    scorer: str | None
    """The name of the scorer that puts grades together; None: the suite's own."""
    by: Literal["grade", "verifier"] = "grade"
    """Who says what a reply is worth: `grade`, or the verifier of the sample, which may ask a model."""
    prepared: Callable[[Sample], Sample] | None = None
    """The sample with the verifier and its options that the rule needs; None: those of its data."""
    reads: Reads = "answer"
    """`answer`: its parser is handed the answer alone, as the agent marks it. `reply`: all that the policy
    wrote, because the protocol looks for tags itself."""
    reply_space: Space | None = None
    """In which it reads coordinates, where the suite names no space; None: as the samples say."""
    judge: Callable[[str, Sample], Judging] | None = None
    """The same as `grade` with a model, which is asked where upstream asks one; None: upstream asks none."""
    together: Together | None = None
    """In place of `judge` where upstream asks about several replies at once."""
    prompts: tuple[Prompt, ...] = ()
    """What the model is asked, with places for what differs: a score names their hash."""
    words: Literal["ours", "data"] | None = None
    """Who has written them: we, after upstream's rules, or whoever made the data, byte by byte; None: no
    model is asked."""
    needs_judge: bool = False
    """Whether upstream has no rule without a model: then an evaluation has to name one."""
    example: Callable[[Sample], str] | None = None
    """(sample) -> a right reply, as `grade` is handed it, e.g. `Answer: B`, where the ground truth alone is
    not a right reply; None: it is. `vtune parts check` tries it."""

    @property
    def asks_model(self) -> bool:
        """Whether a model gives the grades, once an evaluation names one."""
        return self.judge is not None or self.together is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """A named way to ask and to score."""

    about: str
    """One line: whose rules, of which version."""
    rules: Mapping[str, Rule] = field(default_factory=dict)
    """Kind of question -> rule."""
    other: Rule | None = None
    """For kinds that have none; None: the protocol has nothing to say about them."""

    def rule(self, kind: str | None) -> Rule | None:
        """The rule for a kind of question; None where there is none."""
        return self.rules.get(kind or "", self.other)


class NoRule(RecipeError):
    """A protocol does not know a kind of question."""


def wrong_kind(protocol: str, kind: str | None) -> NoRule:
    """The error for a suite that a protocol does not know."""
    what = f"questions of the kind `{kind}`" if kind else "a suite that names no `kind` of question"
    own = "" if kind else "write `kind` into the suite, e.g. multiple_choice; "
    return NoRule(
        f"protocol `{protocol}` has no rule for {what}",
        fix=f"{own}`vtune eval --list` shows which suite has which protocols",
    )


def put(sample: Sample, rule: Rule) -> Sample:
    """The sample as a protocol asks it, pictures, then its text, byte by byte; and as it has it judged."""
    if rule.prepared is not None:
        sample = rule.prepared(sample)
    if rule.ask is None:
        return sample
    marks, text = question_of(sample)
    last = sample.prompt[-1]
    content = IMAGE * marks.count(IMAGE) + rule.ask(text, sample)
    if content.count(IMAGE) != len(last.images):
        raise DataError(
            f"the prompt has {content.count(IMAGE)} {IMAGE} mark(s) for {len(last.images)} picture(s)",
            where=where(sample),
            fix="a protocol keeps the marks that stand inside of a question",
        )
    return replace(sample, prompt=(*sample.prompt[:-1], Message(last.role, content, last.images)))


def question_of(sample: Sample) -> tuple[str, str]:
    """(the marks before the question, the question without its options) of the last turn."""
    text = sample.prompt[-1].content.rstrip()
    # Where pictures stand inside of a question, one may be what it begins with.
    marks = "" if sample.extra.get("inline") else (_MARKS.match(text) or [""])[0]
    text = text[len(marks) :]
    if not sample.choices:
        return marks, text
    return marks, bare(text.removesuffix(listing(sample.choices)))


def letters(sample: Sample) -> str:
    """The letters of its options, without those that are missing."""
    return "".join(lettered(sample.choices))


def chose(letter: str | None, sample: Sample, *, at_random: float = 0.0) -> Grade:
    """The grade of a letter.

    Args:
        letter: That was read; None: none.
        sample: Its ground truth is a letter.
        at_random: What the protocol's fallback gives in expectation where none was read.
    """
    if letter is None:
        return Grade(score=0.0, read=None, fallback=at_random)
    score = float(letter == sample.ground_truth)
    return Grade(score=score, read=letter, fallback=score)


def said(read: str | None, right: bool) -> Grade:
    """The grade of an answer in words or numbers; None is unreadable."""
    score = float(right and read is not None)
    return Grade(score=score, read=read, fallback=score)
