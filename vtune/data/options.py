"""Multiple-choice questions: how their options are listed, shuffled and asked for."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import ascii_uppercase
from typing import Any

from vtune.errors import DataError
from vtune.schema.message import IMAGE, Message
from vtune.schema.sample import Sample
from vtune.verifiers.choice import lettered

_ASKED = re.compile(
    r"\s*(?:answer with the option['’]s letter from the given choices directly"
    r"|answer the option letter directly"
    r"|please select the correct answer from the options above)\s*\.?\s*\Z",
    re.IGNORECASE,
)
"""What public files and harnesses write behind a question to ask for a letter."""

_MARKS = re.compile(rf"(?:\s*{re.escape(IMAGE)}\s*)*")


def listing(choices: Sequence[str]) -> str:
    """The options as they stand in a prompt: `A. red`, one per line; one that is missing has none."""
    return "\n".join(f"{mark}. {choice}" for mark, choice in lettered(choices).items())


def bare(question: str) -> str:
    """A question without the sentence that asks for a letter: whoever puts it adds one of their own."""
    return _ASKED.sub("", question).strip()


def multiple_choice(question: str, choices: Sequence[str]) -> tuple[Message, ...]:
    """The user's turn of a question about one picture, its options listed."""
    return (Message("user", f"{IMAGE}\n{bare(question)}\n{listing(choices)}", (0,)),)


def presented(
    sample: Sample, *, template: str, shuffle: int | None, parm: Mapping[str, Any] | None = None
) -> Sample:
    """A multiple-choice sample as a benchmark puts it; one without options is returned as it is.

    Args:
        sample: Its last message lists its options as `listing` does, and ends there.
        template: What the policy reads behind the pictures; `{question}` and `{options}` are filled in.
        shuffle: Seed of the options' order, which depends on it and on the sample's id alone; None keeps the
            order.
        parm: Further options of its verifier.

    Raises:
        DataError: If its message does not end with its options, or its ground truth is not one of them.
    """
    if not sample.choices:
        return sample
    where = f"sample {sample.id!r}"
    last = sample.prompt[-1]
    text = last.content.rstrip()
    listed = listing(sample.choices)
    if not text.endswith(listed):
        raise DataError(
            "the question does not end with its options",
            where=where,
            fix="list them as `A. text`, one per line",
        )
    order = [index for index, choice in enumerate(sample.choices) if choice]
    if shuffle is not None:
        random.Random(f"options {shuffle} {sample.id}").shuffle(order)
    for index, choice in enumerate(sample.choices):
        if not choice:
            order.insert(index, index)  # a missing option leaves the same letter free
    choices = tuple(sample.choices[index] for index in order)
    found = _MARKS.match(text)
    marks = found[0] if found else ""
    question = bare(text[len(marks) : -len(listed)])
    # Not str.format: questions hold braces.
    asked = re.sub(
        r"\{(question|options)\}",
        lambda place: question if place[1] == "question" else listing(choices),
        template,
    )
    return replace(
        sample,
        prompt=(*sample.prompt[:-1], replace(last, content=marks + asked)),
        choices=choices,
        ground_truth=ascii_uppercase[order.index(_truth(sample, where))],
        verifier_parm={**sample.verifier_parm, **(parm or {})},
    )


def _truth(sample: Sample, where: str) -> int:
    """Position of the right option; as for verifier `choice`, a letter is a place before it is a text."""
    if sample.ground_truth in lettered(sample.choices):
        return ascii_uppercase.index(sample.ground_truth)
    if sample.ground_truth in sample.choices:
        return sample.choices.index(sample.ground_truth)
    raise DataError(
        f"the ground truth {sample.ground_truth!r} is not one of {', '.join(sample.choices)}",
        where=where,
        fix="write the letter of the right option",
    )
