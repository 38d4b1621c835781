"""Texts of a policy that keep a judge from its verdict: what to ask instead, and whose mistake it is."""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from vtune.judge.completions import Cut, NoVerdict, Refused
from vtune.judge.prompts import TAG

T = TypeVar("T")

HARMLESS = "no idea"
"""An answer that confuses nobody; ours."""


class Confused(NoVerdict):
    """The model gives a verdict on something harmless; what a policy wrote is why it gives none on that."""


def spelt(text: str, marks: re.Pattern[str]) -> str:
    """A text whose words that may pass for verdicts are spelt so that they cannot: `T-R-U-E`, `a` for `A`."""
    return marks.sub(lambda mark: "-".join(mark[0]) if len(mark[0]) > 1 else mark[0].lower(), text)


def is_marked(text: str, marks: re.Pattern[str] | None, truths: Sequence[str] = ()) -> bool:
    """Whether a reply that quotes a text may be unreadable for it.

    Args:
        text: What a policy wrote.
        marks: Words that pass for verdicts; None: only tags do.
        truths: Their words are no fault of the text: "False" may be the answer.
    """
    if TAG.search(text):
        return True
    if marks is None:
        return False
    words, right = ({mark[0].upper() for mark in marks.finditer(one)} for one in (text, "\n".join(truths)))
    return not words <= right


async def unconfused(
    asks: Sequence[Callable[[], Awaitable[T]]], *, control: Callable[[], Awaitable[object]], marked: bool
) -> T:
    """What the first question finds to which a model has a verdict.

    A policy that could keep the model from its verdict would have no score where it expects a low one. A
    judge that does not write its verdict as it should, an endpoint that refuses every question, and a limit
    that cuts replies are our mistakes, though.

    Args:
        asks: The same question, less confusing each time; each raises `NoVerdict` where there is none.
        control: The same about something harmless.
        marked: Whether a policy wrote what confuses a reply that quotes it: see `is_marked`.

    Raises:
        Confused: If only the control has a verdict, and the text is marked, or was refused each time.
        NoVerdict: If there is no verdict for another reason.
        ServiceError: As a question does.
    """
    why: list[NoVerdict] = []
    for ask in asks:
        try:
            return await ask()
        except Cut:
            raise
        except NoVerdict as error:
            why.append(error)
    if not marked and not all(isinstance(error, Refused) for error in why):
        raise why[0]
    try:
        await control()
    except NoVerdict:
        raise why[0] from None
    raise Confused(why[0].what, where=why[0].where, fix=why[0].fix)
