"""MathVista: what is asked, how the answer is parsed, and when it is right.

Source: `extract_answer.py` and `calculate_score.py` of its authors, which lmms-eval 75571cfe uses; VLMEvalKit
e8e78f05, `utils/mathvista.py`. Upstream lets a model read what its rules cannot: here that is `judge`.
"""

import re
from string import ascii_uppercase

from vtune.data.options import listing
from vtune.protocols.matching import NO_OPTION, inferred
from vtune.protocols.protocol import Grade, Judging, Rule, chose, letters, said
from vtune.protocols.readers import EXTRACT, extract
from vtune.schema.sample import Sample
from vtune.verifiers.choice import lettered
from vtune.verifiers.ocr import edits

_LETTER = re.compile(r"\(([a-zA-Z])\)")
_FORMATS = {
    "integer": "Answer the question using a single integer number.",
    "float1": "Answer the question using a single floating-point number with one decimal place.",
    "float2": "Answer the question using a single floating-point number with two decimal places.",
    "list": "Answer the question using a Python list.",
}
_CHOICE_FORMAT = "Answer with the option's letter from the given choices directly."
_COMPARED = 1000
"""Limit on the characters of an answer that are compared with options; ours."""


def ask_query(question: str, sample: Sample) -> str:
    """The published query: a hint about the form of the answer, the question, its options."""
    return str(sample.extra["query"])


def ask_format(question: str, sample: Sample) -> str:
    """lmms-eval's `mathvista_testmini_format`: question and unit, options, and the form of the answer."""
    unit = sample.extra.get("unit")
    text = str(sample.extra["question"]) + (f" (Unit: {unit})" if unit else "")
    if sample.choices:
        return f"{text}\n{listing(sample.choices)}\n{_CHOICE_FORMAT}"
    kind = str(sample.extra["answer_type"])
    form = _FORMATS.get(f"{kind}{sample.extra.get('precision')}" if kind == "float" else kind)
    return text if form is None else f"{text}\n{form}"


def extracted(text: str, sample: Sample) -> str | None:
    """The answer that the authors' rules accept without a model: an option's own text, or a bare number."""
    text = text.strip()
    if not text:
        return ""
    if sample.choices:
        return text if text in sample.choices else None
    try:
        if sample.extra["answer_type"] == "integer":
            return str(int(text))
        if sample.extra["answer_type"] == "float":
            return str(float(text))
    except ValueError:
        pass
    return None


def normal(found: str, sample: Sample) -> str | None:
    """An extracted answer in the form of the truth; None if it has no such form.

    For options that is the text of the one whose letter is in parentheses or by itself. A precision of 1.0,
    as in the data, means one decimal.
    """
    if sample.choices:
        plain = _named(found)
        if plain in ascii_uppercase[: len(sample.choices)] and len(plain) == 1:
            return sample.choices[ascii_uppercase.index(plain)]
        return plain if plain in sample.choices else None
    kind = sample.extra["answer_type"]
    try:
        if kind == "integer":
            return str(int(float(found)))
        if kind == "float":
            precision = sample.extra.get("precision")
            return None if precision is None else str(round(float(found), int(precision)))
    except (ValueError, OverflowError):
        return None
    return found


def _named(found: str) -> str:
    """The first letter in parentheses, whether an option's or not; else the whole answer."""
    letter = _LETTER.search(found)
    return letter[1].upper() if letter else found.strip()


def nearest(found: str, sample: Sample) -> str:
    """The option at the smallest edit distance, which upstream uses if an answer names no option.

    For "(C) 8" that is the option closest to "C": upstream continues with the letter only.
    """
    plain = _named(found)[:_COMPARED]
    return min(sample.choices, key=lambda option: edits(plain, option[:_COMPARED]))


def grade_official(text: str, sample: Sample) -> Grade:
    """Without a model: what the rules accept, else the answer itself if it has the form of the truth."""
    found = extracted(text, sample)
    if found is None and (sample.choices or sample.extra["answer_type"] != "list" or text.strip()[:1] == "["):
        found = text.strip()
    return _graded(found or "", sample)


def judge_official(text: str, sample: Sample) -> Judging:
    """A model reads what the rules do not accept."""
    found = extracted(text, sample)
    if found is None:
        found = yield extract(str(sample.extra["query"]), text, sample.choices)
    return _graded(found, sample)


def _graded(found: str, sample: Sample) -> Grade:
    """Upstream uses the nearest option if none is named: that is its fallback, and never random."""
    read = normal(found, sample) if found else None
    if sample.choices:
        if read is None:
            return Grade(score=0.0, read=None, fallback=float(nearest(found, sample) == sample.answer))
        return chose(ascii_uppercase[sample.choices.index(read)], sample)
    return said(read, (read or "").strip() == str(sample.answer).strip())


def grade_kit(text: str, sample: Sample) -> Grade:
    """VLMEvalKit without a model: an option by its rules, or a bare number without rounding.

    "3.0" is not a whole number, and a list is never right: upstream compares it with the word None.
    """
    if sample.choices:
        letter = inferred(text, lettered(sample.choices))
        return chose(None if letter == NO_OPTION and letter not in letters(sample) else letter, sample)
    kind = sample.extra["answer_type"]
    try:
        if kind == "integer":
            return said(str(int(text)), int(text) == int(sample.ground_truth))
        if kind == "float":
            return said(str(float(text)), float(text) == float(sample.ground_truth))
    except ValueError:
        pass
    return said(None, right=False)


def judge_kit(text: str, sample: Sample) -> Judging:
    """A model reads what the rules cannot; its answer goes through the same rules."""
    grade = grade_kit(text, sample)
    refused = bool(sample.choices) and inferred(text, lettered(sample.choices)) == NO_OPTION
    if not grade.unreadable or refused or not text.strip():
        return grade
    found = yield extract(str(sample.extra["query"]), text, sample.choices)
    again = grade_kit(found, sample)
    return again if sample.choices or not found else said(found, again.score == 1.0)


OFFICIAL = Rule(
    ask=ask_query,
    grade=grade_official,
    scorer="facets",
    judge=judge_official,
    prompts=(EXTRACT,),
    words="ours",
)
LMMS = Rule(
    ask=ask_format,
    grade=grade_official,
    scorer="facets",
    judge=judge_official,
    prompts=(EXTRACT,),
    words="ours",
)
KIT = Rule(ask=ask_query, grade=grade_kit, scorer="facets", judge=judge_kit, prompts=(EXTRACT,), words="ours")
