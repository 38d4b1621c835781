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
    """A protocol's reading and score of one reply."""

    score: float
    """In [0, 1]; an unreadable reply is wrong."""
    read: str | None
    """The answer as read; None if none could be read."""
    fallback: float
    """Expected score of the protocol's own fallback, e.g. 1/k if it picks one of k
    options at random; the score itself if an answer was read or there is no fallback."""

    @property
    def unreadable(self) -> bool:
        """Whether no answer could be read."""
        return self.read is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A question for a model that extracts or compares answers."""

    prompt: Prompt
    read: Callable[[str], Any]
    """Its reply -> the result; None if the reply cannot be read."""
    wanted: str
    """What a reply should be, e.g. "0 or 1"."""


Judging = Generator[Ask, Any, Grade]
"""Questions for a model, each answered with the result of its `read`, and finally the grade. A pure
function of the answers: it can be rerun from the start with the same ones."""

JudgingTogether = Generator[Ask, Any, Sequence[Grade]]
"""The same for several replies: one grade each, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """How a model grades several replies with one question."""

    most: int
    """Limit on the replies per question."""
    by: Callable[[Sample], str]
    """Replies may share a question if this value is the same."""
    judge: Callable[[Sequence[tuple[str, Sample]]], JudgingTogether]
    """((what `reads` selects, empty if there is nothing; sample), …) -> grades."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How a protocol asks and grades one kind of question: pure functions."""

    ask: Callable[[str, Sample], str] | None
    """(the question as in its data, including any `<image>` inside it, sample) -> the text that follows
    the pictures. None: worded according to the suite's own `choices`."""
    grade: Callable[[str, Sample], Grade]
    """(what `reads` selects, sample) -> grade. Never raises because of the text."""
    scorer: str | None
    """Name of the scorer that aggregates grades; None: the suite's own."""
    by: Literal["grade", "verifier"] = "grade"
    """What decides a reply's score: `grade`, or the verifier of the sample, which may ask a model."""
    prepared: Callable[[Sample], Sample] | None = None
    """The sample with the verifier and options that the rule needs; None: those of its data."""
    reads: Reads = "answer"
    """`answer`: the parser gets only the answer, as marked by the agent. `reply`: everything that the policy
    wrote, because the protocol looks for tags itself."""
    reply_space: Space | None = None
    """The space of coordinates that it reads, if the suite names none; None: that of the samples."""
    judge: Callable[[str, Sample], Judging] | None = None
    """Like `grade`, with a model where upstream asks one; None: upstream asks none."""
    together: Together | None = None
    """Replaces `judge` where upstream asks about several replies at once."""
    prompts: tuple[Prompt, ...] = ()
    """The model's prompts, with placeholders for what differs: a score includes their hash."""
    words: Literal["ours", "data"] | None = None
    """Who wrote them: we, following upstream's rules, or the authors of the data, verbatim; None: no
    model is asked."""
    needs_judge: bool = False
    """Whether upstream has no rule without a model: then an evaluation must name one."""
    example: Callable[[Sample], str] | None = None
    """(sample) -> a right reply, in the form that `grade` gets, e.g. `Answer: B`, if the ground truth itself
    is not one; None: it is. Tested by `vtune parts check`."""

    @property
    def asks_model(self) -> bool:
        """Whether a model gives the grades, once an evaluation names one."""
        return self.judge is not None or self.together is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """A named way to ask and to score."""

    about: str
    """One line: whose rules, in which version."""
    rules: Mapping[str, Rule] = field(default_factory=dict)
    """Kind of question -> rule."""
    other: Rule | None = None
    """Rule for all other kinds; None: the protocol does not cover them."""

    def rule(self, kind: str | None) -> Rule | None:
        """The rule for a kind of question; None if there is none."""
        return self.rules.get(kind or "", self.other)


class NoRule(RecipeError):
    """A protocol does not cover a kind of question."""


def wrong_kind(protocol: str, kind: str | None) -> NoRule:
    """The error for a suite that a protocol does not cover."""
    what = f"questions of the kind `{kind}`" if kind else "a suite that names no `kind` of question"
    own = "" if kind else "write `kind` into the suite, e.g. multiple_choice; "
    return NoRule(
        f"protocol `{protocol}` has no rule for {what}",
        fix=f"{own}`vtune eval --list` shows which suite has which protocols",
    )


def put(sample: Sample, rule: Rule) -> Sample:
    """The sample in the protocol's exact wording, pictures first, and with the protocol's way of judging."""
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
    # If pictures are inside a question, it may begin with one.
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
        letter: The letter that was read; None if none could be.
        sample: Its ground truth is a letter.
        at_random: Expected score of the protocol's fallback if none was read.
    """
    if letter is None:
        return Grade(score=0.0, read=None, fallback=at_random)
    score = float(letter == sample.ground_truth)
    return Grade(score=score, read=letter, fallback=score)


def said(read: str | None, right: bool) -> Grade:
    """The grade of an answer in words or numbers; None means unreadable."""
    score = float(right and read is not None)
    return Grade(score=score, read=read, fallback=score)
