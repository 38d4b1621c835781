"""MMMU's evaluation rules for letters and open answers, on which MMMU-Pro and lmms-eval build.

Source: `eval_utils.py` of MMMU and `evaluate.py` of MMMU-Pro. Both pick a random option if none can be read;
here the expected score of that is reported next to the grade.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from vtune.verifiers.choice import lettered

_PUNCTUATION = ",.!?;:'"
_LEAST_WORDS = 5
"""An option's own text is looked for only in replies with more words than this."""
_CONCLUSIONS = ("could be ", "so ", "is ", "thus ", "therefore ", "final ", "answer ", "result ")
_BREAKS = re.compile(r"\.\s(?=[A-Z])|\n")
_NUMBERS = (
    re.compile(r"-?\b\d{1,3}(?:,\d{3})+\b"),
    re.compile(r"-?\d+(?:\.\d+)?[eE][+-]?\d+"),
    re.compile(r"-?(?:\d+\.\d+|\.\d+|\d+\b)(?![eE][+-]?\d+)(?![,\d])"),
)
"""Numbers with thousands separators, with an exponent, and plain."""


def parsed_letter(reply: str, choices: Sequence[str], *, forms: Sequence[str]) -> str | None:
    """The letter of the last option in a reply, in the first form in which any option occurs.

    Args:
        reply: Of any length; surrounding punctuation is removed.
        choices: The options in order.
        forms: Possible forms of a letter, in order: `({})`, ` {} `.
    """
    text = reply
    for mark in _PUNCTUATION:
        text = text.strip(mark)
    text = f" {text} "
    options = lettered(choices)
    for form in forms:
        found = [letter for letter in options if form.format(letter) in text]
        if found:
            place = "({})" if form == "({})" else " {} "
            return _last(found, text, {letter: place.format(letter) for letter in found})
    if len(text.split()) > _LEAST_WORDS:
        lower = text.lower()
        found = [letter for letter, choice in options.items() if choice.lower() in lower]
        if found:
            return _last(found, lower, {letter: options[letter].lower() for letter in found})
    return None


def _last(found: Sequence[str], text: str, forms: Mapping[str, str]) -> str:
    """The letter whose form occurs last; the first letter if none occurs in the text."""
    return max(found, key=lambda letter: text.rfind(forms[letter]))


def answered_after_mark(reply: str, choices: Sequence[str]) -> str | None:
    """MMMU-Pro: the only option letter (any capital, even in a word) after the last `Answer:`; else None."""
    _, mark, tail = reply.rpartition("Answer:")
    found = [letter for letter in lettered(choices) if letter in tail] if mark else []
    return found[0] if len(found) == 1 else None


def open_answers(reply: str) -> list[str | float]:
    """Possible answers in an open reply: its conclusions, in lower case, and the numbers in them."""
    keys = list(_conclusions(reply))
    numbers = [number for key in keys for pattern in _NUMBERS for number in pattern.findall(key)]
    return list(dict.fromkeys(value for text in (*keys, *numbers) for value in normal(text)))


def _conclusions(reply: str) -> Iterator[str]:
    """For each part, the shortest text after a word of conclusion; the whole reply if there is none."""
    whole = reply.strip().strip(".").lower()
    parts = _BREAKS.split(whole)
    found = []
    for number, part in enumerate(parts):
        words = (*_CONCLUSIONS, "=") if number == len(parts) - 1 else _CONCLUSIONS
        tails = [part.rpartition(word)[2].strip() for word in words if word in part]
        # As upstream: an empty text is replaced by any later one.
        key = ""
        for tail in tails:
            if not key or len(tail) < len(key):
                key = tail
        if key and key not in _PUNCTUATION:
            found.append(key)
    yield from found or [whole]


def normal(text: str) -> list[str | float]:
    """A number rounded to two decimals, or lower-case text; one character gets a space on either side."""
    text = text.strip()
    try:
        return [round(float(text.replace(",", "")), 2)]
    except ValueError:
        text = text.lower()
    return [f" {text}", f"{text} "] if len(text) == 1 else [text]


def open_is_right(answers: Sequence[str | float], truths: Sequence[str]) -> bool:
    """Whether a truth occurs in a textual answer, or equals a numerical one."""
    known = [value for truth in truths for value in normal(truth)]
    words = [value for value in known if isinstance(value, str)]
    return any(
        any(word in answer for word in words) if isinstance(answer, str) else answer in known
        for answer in answers
    )
