"""How VLMEvalKit matches answers to options without a model; other harnesses copied parts of it.

Source: VLMEvalKit e8e78f05 (2026-08-18), `utils/matching_util.py`.
"""

import re
from collections.abc import Mapping

REFUSALS = (
    "Sorry, I can't help with images of people yet.",
    "I can't process this file.",
    "I'm sorry, but without the image provided",
    "Cannot determine the answer",
)
"""Refusals: a reply that contains one of these is read as none of the options."""
NO_OPTION = "Z"
_FAILED = "Failed to obtain answer via API"
_MARKS = str.maketrans(dict.fromkeys(".()[],:;!*#{}", " "))
_LAST_WORDS = 4
_ANSWER_IS = re.compile(r"(?:correct\s+)?answer\s+is\s+\**([ABCD])\**", re.IGNORECASE)


def inferred(text: str, choices: Mapping[str, str]) -> str | None:
    """The letter found by VLMEvalKit's rules without a model, `Z` for none of the options, or None.

    A letter counts if it is the only one among the words and its first occurrence is among the last four;
    then one from A to D in "answer is B"; then the only option whose text is contained, in a text at most
    twice as long as all options together.

    Args:
        text: An answer.
        choices: Letter -> option.
    """
    if _FAILED not in text:
        if any(refusal in text for refusal in REFUSALS):
            return NO_OPTION
        words = text.translate(_MARKS).split()
        named = [letter for letter in choices if letter in words]
        if len(named) == 1 and words.index(named[0]) >= len(words) - _LAST_WORDS:
            return named[0]
        if not named and NO_OPTION in words:
            return NO_OPTION
        found = _ANSWER_IS.search(text)
        if found and found[1].upper() in choices:
            return found[1].upper()
    if len(text) > 2 * sum(map(len, choices.values())):
        return None
    inside = [letter for letter, choice in choices.items() if choice.lower() in text.lower()]
    return inside[0] if len(inside) == 1 else None
