"""SenseNova-MARS: its parsing of multiple choice, which looks for tags itself, and of short answers.

Source: SenseNova-MARS ce052d7, `em_score_mcq` of `verl/utils/reward_score/tool.py` and `inference/eval.py`.
It knows the letters A to D. Its rows contain their prompts; for benchmarks that it does not ship, V*'s form
is used.
"""

import re

from vtune.protocols import PROTOCOLS
from vtune.protocols.lmms_eval import LETTER_REQUEST
from vtune.protocols.protocol import Grade, Protocol, Rule, chose, letters
from vtune.protocols.realworld import listed
from vtune.protocols.short_answers import MARS
from vtune.schema.sample import Sample
from vtune.verifiers.gradings import answers, conclusion

_BOX = re.compile(r"\\boxed\{(?!\})", re.IGNORECASE)
_MARKED = re.compile(r"\(([A-D])\)|\[([A-D])\]|(?<![A-Za-z])([A-D])[.)\]]", re.IGNORECASE)
_ALONE = re.compile(r"(?<![A-Za-z])([A-D])(?![A-Za-z])")
_BOLD = re.compile(r"\*\*[^*]+\*\*")
_ROUND = re.compile(r"\(([A-D])\)", re.IGNORECASE)
_PHRASES = (
    re.compile(r"Answer:\s*\(([A-D])\)", re.IGNORECASE),
    re.compile(r"(?:correct answer is|answer is)[:\s]*\(([A-D])\)", re.IGNORECASE),
)
_CLOSED = re.compile(r"(?<![A-Za-z])([A-D])[)\]]", re.IGNORECASE)


def ask_choice(question: str, sample: Sample) -> str:
    """Question, options in parentheses, and a request for the letter, in the published form of V*."""
    return f"{question}\n{listed(sample)}\n{LETTER_REQUEST}"


def grade_choice(reply: str, sample: Sample) -> Grade:
    """The letter of the last `<answer>`, else of the first box, else the last one in one of six forms."""
    letter = read_letter(reply)
    return chose(letter if letter is not None and letter in letters(sample) else None, sample)


def read_letter(reply: str) -> str | None:
    """The letter, A to D, according to the rule; None if there is none."""
    text = conclusion(reply)
    tagged = list(answers(text))
    if tagged:
        return _inside(tagged[-1].strip())
    box = _BOX.search(text)
    boxed, closed, _ = text[box.end() :].partition("}") if box else ("", "", "")
    if closed and re.search("[A-Da-d]", boxed):
        return _inside(boxed.strip())
    for phrase in _PHRASES:
        if found := phrase.findall(text):
            return str(found[-1]).upper()
    bold = [match for part in _BOLD.findall(text) if (match := _ROUND.search(part))]
    if bold:
        return bold[-1][1].upper()
    for form in (_ROUND, _CLOSED, _ALONE):
        if found := form.findall(text):
            return str(found[-1]).upper()
    return None


def _inside(text: str) -> str | None:
    """The letter in an answer: alone, else the last one next to a mark, else the last single capital."""
    if len(text) == 1 and text in "ABCDabcd":
        return text.upper()
    marked = list(_MARKED.finditer(text))
    if marked:
        return (marked[-1][1] or marked[-1][2] or marked[-1][3]).upper()
    alone = _ALONE.findall(text)
    return alone[-1] if alone else None


_CHOICE = Rule(ask=ask_choice, grade=grade_choice, scorer=None, reads="reply")

PROTOCOLS.add(
    "mars",
    Protocol(
        about="SenseNova-MARS ce052d7: letters A to D by `em_score_mcq`, short answers by `llm_judge_score`",
        rules={
            "multiple_choice": _CHOICE,
            "vstar": _CHOICE,
            "hrbench": _CHOICE,
            "mme_realworld": _CHOICE,
            **MARS,
        },
    ),
)
