"""Texts of a policy that keep a judge from its verdict: what to ask instead, and whose mistake it is."""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from vtune.judge.completions import Cut, NoVerdict

T = TypeVar("T")

HARMLESS = "no idea"
"""An answer that confuses nobody; ours."""


class Confused(NoVerdict):
    """The model gives a verdict on something harmless, and none on what a policy wrote."""


def spelt(text: str, marks: re.Pattern[str]) -> str:
    """A text whose words that may pass for verdicts are spelt so that they cannot: `T-R-U-E`, `a` for `A`."""
    return marks.sub(lambda mark: "-".join(mark[0]) if len(mark[0]) > 1 else mark[0].lower(), text)


async def unconfused(
    asks: Sequence[Callable[[], Awaitable[T]]], *, control: Callable[[], Awaitable[object]]
) -> T:
    """What the first question finds to which a model has a verdict.

    A policy that could keep the model from its verdict would have no score where it expects a low one. An
    endpoint that refuses every question is our mistake, though, and so is a limit that cuts replies.

    Args:
        asks: The same question, less confusing each time; each raises `NoVerdict` where there is none.
        control: The same about something harmless.

    Raises:
        Confused: If only the control has a verdict.
        NoVerdict: If that has none either, or a reply was cut.
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
    try:
        await control()
    except NoVerdict:
        raise why[0] from None
    raise Confused(why[0].what, where=why[0].where, fix=why[0].fix)
