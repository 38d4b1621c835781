"""EvalScope: multiple choice with a last line `ANSWER: [LETTER]`, and how it is parsed.

Source: EvalScope fde259d2 (2026-08-22), `evalscope/utils/multi_choices.py` and its page on V*.
"""

import re

from vtune.protocols import PROTOCOLS
from vtune.protocols.lmms_eval import LETTER_REQUEST
from vtune.protocols.protocol import Grade, Protocol, Rule, chose, letters
from vtune.protocols.realworld import listed
from vtune.schema.sample import Sample
from vtune.verifiers.choice import lettered

_REQUEST = (
    "Answer the following multiple choice question. The last line of your response should be of the "
    "following format: 'ANSWER: [LETTER]' (without quotes) where [LETTER] is one of {letters}. "
    "Think step by step before answering.\n\n"
)
_MARK = re.compile(r"ANSWER\s*:\s*\**\s*", re.IGNORECASE)
_BRACKETED = re.compile(r"[(\[（【]\s*([A-Za-z\d](?:\s*[,，]\s*[A-Za-z\d])*)\s*[)\]）】]")
_PLAIN = re.compile(r"[A-Za-z\d][A-Za-z\d ,]*")
_WORD = re.compile(r"[A-Za-z\d]+")


def ask_vstar(question: str, sample: Sample) -> str:
    """The published text, which lists the options itself; the letters offered are always A to D."""
    return f"{_REQUEST.format(letters='A, B, C, D')}{question}\n{listed(sample)}\n{LETTER_REQUEST}"


def ask_choice(question: str, sample: Sample) -> str:
    """The request, the question, and its options as `A) text`."""
    known = letters(sample)
    options = "\n".join(f"{letter}) {choice}" for letter, choice in lettered(sample.choices).items())
    return f"{_REQUEST.format(letters=','.join(known))}{question}\n\n{options}"


def grade_choice(text: str, sample: Sample) -> Grade:
    """The label after the last `ANSWER:` that has one; if none has, the last capital of the text."""
    known = letters(sample)
    labelled = _labelled(text, known)
    if labelled is None:
        capital = next((letter for letter in reversed(text) if letter.isupper()), None)
        return chose(capital if capital is not None and capital in known else None, sample)
    return chose(labelled if len(labelled) == 1 and labelled in known else None, sample)


def _labelled(text: str, known: str) -> str | None:
    """The text after the last mark that is followed by labels of the question."""
    for mark in reversed(list(_MARK.finditer(text))):
        for form in (_BRACKETED, _PLAIN):
            found = form.match(text, mark.end())
            labels = "" if found is None else _labels(found[found.lastindex or 0], known)
            if labels:
                return labels.strip()
    return None


def _labels(text: str, known: str) -> str:
    """The leading words that consist only of labels."""
    end = 0
    for word in _WORD.finditer(text):
        if not set(word[0]) <= set(known):
            break
        end = word.end()
    return text[:end]


PROTOCOLS.add(
    "evalscope",
    Protocol(
        about="EvalScope fde259d2: a last line `ANSWER: [LETTER]`",
        rules={
            "multiple_choice": Rule(ask=ask_choice, grade=grade_choice, scorer=None),
            "vstar": Rule(ask=ask_vstar, grade=grade_choice, scorer="mean"),
            "hrbench": Rule(ask=ask_choice, grade=grade_choice, scorer=None),
        },
    ),
)
