"""Multiple-choice questions: how their options are listed, shuffled and asked for."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
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
"""Sentences that public files and harnesses append to a question to ask for a letter."""

_ABOVE = re.compile(
    r"\b(?:all|any|both|either|neither|none)\s+(?:of\s+)?(?:the\s+|these\s+)?(?:above|below|previous|preceding)\b",
    re.IGNORECASE,
)
_LETTERS = re.compile(
    r"(?<![\w'])\(?([A-Z])\)?(?:\s*[,&/+]\s*|\s*,?\s+(?:and|or|nor)\s+)\(?([A-Z])\)?(?![\w'])"
)
"""Two letters, as in "Both A and B" and "neither (A) nor (C)"."""

_MARKS = re.compile(rf"(?:\s*{re.escape(IMAGE)}\s*)*")
_PLACE = re.compile(r"\{(question|options)\}")


def listing(choices: Sequence[str]) -> str:
    """The options as listed in a prompt: `A. red`, one per line; a missing option has no line."""
    return "\n".join(f"{mark}. {choice}" for mark, choice in lettered(choices).items())


def bare(question: str) -> str:
    """A question without the sentence that asks for a letter; callers add their own."""
    return _ASKED.sub("", question).strip()


def multiple_choice(question: str, choices: Sequence[str]) -> tuple[Message, ...]:
    """The user's turn of a question about one picture, its options listed."""
    return (Message("user", f"{IMAGE}\n{bare(question)}\n{listing(choices)}", (0,)),)


def presented(
    sample: Sample, *, template: str, shuffle: int | None, parm: Mapping[str, Any] | None = None
) -> Sample:
    """A multiple-choice sample in a benchmark's wording; one without options is returned unchanged.

    Pictures inside a question or an option move with it.

    Args:
        sample: Its last message ends with its options as `listing` writes them.
        template: The text after the pictures; `{question}` and `{options}` are filled in.
        shuffle: Seed of the options' order, which depends only on it and the sample's id; None keeps the
            order, and so does an option that refers to others ("None of the above", "Both A and B").
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
    if shuffle is not None and not any(_refers(choice, sample.choices) for choice in sample.choices):
        random.Random(f"options {shuffle} {sample.id}").shuffle(order)
    for index, choice in enumerate(sample.choices):
        if not choice:
            order.insert(index, index)  # a missing option keeps its letter free
    choices = tuple(sample.choices[index] for index in order)
    found = _MARKS.match(text)
    marks = found[0] if found else ""
    question = bare(text[len(marks) : -len(listed)])
    # Not str.format: questions may contain braces.
    asked = _PLACE.sub(
        lambda place: question if place[1] == "question" else listing(choices),
        template,
    )
    moved = _moved(last.images, marks, question, sample.choices, order, _PLACE.findall(template))
    return replace(
        _with_pictures(sample, moved),
        prompt=(*sample.prompt[:-1], replace(last, content=marks + asked)),
        choices=choices,
        ground_truth=ascii_uppercase[order.index(_truth(sample, where))],
        verifier_parm={**sample.verifier_parm, **(parm or {})},
    )


def _refers(choice: str, choices: Sequence[str]) -> bool:
    """Whether an option refers to others by their place or their letters: moved, it would mean others."""
    letters = lettered(choices)
    pairs = _LETTERS.findall(choice)
    return bool(_ABOVE.search(choice)) or any(one in letters and other in letters for one, other in pairs)


def _moved(
    pictures: Sequence[int],
    marks: str,
    question: str,
    choices: Sequence[str],
    order: Sequence[int],
    places: Sequence[str],
) -> tuple[int, ...]:
    """The picture of each mark in a prompt as `presented` puts it.

    Args:
        pictures: The picture of each mark as published: first those of `marks`, then of the question, then
            of the options.
        marks: The marks before the question, which stay in front.
        question: The question.
        choices: The options as published.
        order: Their positions, in the new order.
        places: `question` and `options`, in the template's order.
    """
    held = iter(pictures)
    front, asked, *listed = [tuple(islice(held, text.count(IMAGE))) for text in (marks, question, *choices)]
    moved = {"question": asked, "options": tuple(chain(*(listed[index] for index in order)))}
    return tuple(chain(front, *(moved[place] for place in places)))


def _with_pictures(sample: Sample, moved: Sequence[int]) -> Sample:
    """The sample with its pictures in another order, that of the marks, and evidence that follows them.

    Args:
        sample: The question.
        moved: For each mark of the last turn, the number of its picture.
    """
    now = dict(zip(moved, sample.prompt[-1].images, strict=True))
    images = list(sample.images)
    for old, new in now.items():
        images[new] = sample.images[old]
    evidence = tuple(replace(item, image=now.get(item.image, item.image)) for item in sample.evidence)
    return replace(sample, images=tuple(images), evidence=evidence)


def _truth(sample: Sample, where: str) -> int:
    """Position of the right option; as in the verifier `choice`, a letter is first tried as a position."""
    if sample.ground_truth in lettered(sample.choices):
        return ascii_uppercase.index(sample.ground_truth)
    if sample.ground_truth in sample.choices:
        return sample.choices.index(sample.ground_truth)
    raise DataError(
        f"the ground truth {sample.ground_truth!r} is not one of {', '.join(sample.choices)}",
        where=where,
        fix="write the letter of the right option",
    )
