"""Texts of a policy that keep a judge from its verdict: what to ask instead, and whose mistake it is."""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from vtune.judge.completions import Cut, NoVerdict, Refused
from vtune.judge.prompts import TAG

T = TypeVar("T")

HARMLESS = "no idea"
"""An answer that confuses no judge; ours."""


class Confused(NoVerdict):
    """The model gives a verdict on something harmless, so the policy's text is what prevents one."""


def spelt(text: str, marks: re.Pattern[str]) -> str:
    """The text with words that could pass for verdicts spelt so that they cannot: `T-R-U-E`, `a` for `A`."""
    return marks.sub(lambda mark: "-".join(mark[0]) if len(mark[0]) > 1 else mark[0].lower(), text)


def is_marked(text: str, marks: re.Pattern[str] | None, truths: Sequence[str] = ()) -> bool:
    """Whether quoting this text may make a reply unreadable.

    Args:
        text: What a policy wrote.
        marks: Words that can pass for verdicts; None: only tags can.
        truths: Words that also occur in these do not count: "False" may be the answer.
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
    """The result of the first of these questions on which the model gives a verdict.

    Otherwise a policy that can prevent a verdict would stay unscored whenever it expects a low score. But a
    judge that does not write its verdict as asked, an endpoint that refuses every question, and a token limit
    that cuts replies are our mistakes.

    Args:
        asks: The same question, less confusing each time; each raises `NoVerdict` if there is none.
        control: The same question about something harmless.
        marked: Whether the policy's text may make a reply that quotes it unreadable: see `is_marked`.

    Raises:
        Confused: If only the control gets a verdict, and the text is marked or was refused each time.
        NoVerdict: If there is no verdict for another reason.
        ServiceError: Like the questions.
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
