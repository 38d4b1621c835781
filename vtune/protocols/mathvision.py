r"""MathVision (MATH-V): what is asked, how the answer is parsed, and when it is right.

Source: `evaluation/utils.py` of its authors, which lmms-eval 75571cfe uses (`mathvision/eval_utils.py`);
VLMEvalKit e8e78f05, `utils/mathv.py`. Both pass what a model wrote to Python's `eval`; here its value is
computed without it (`latex.py`), and an answer without a value is compared as text.
"""

import re

from vtune.data.options import listing
from vtune.protocols.matching import NO_OPTION, inferred
from vtune.protocols.protocol import Grade, Judging, Rule, chose, letters, said
from vtune.protocols.readers import EXTRACT, extract
from vtune.schema.sample import Sample
from vtune.verifiers.choice import lettered
from vtune.verifiers.latex import latex2sympy_value

_REQUEST = 'Please solve the problem step by step and put your answer in one "\\boxed{}".'
_CHOICE_REQUEST = "Answer the question with the option's letter from the given choices directly."
_BOX = "oxed{"
_PHRASES = ("the final answer is", "the answer is", "the correct answer is", "the answer should be")
_REWRITTEN = (
    *((" ", ""), ("\\,", ""), ("∞", "\\infty"), ("+\\infty", "\\infty"), ("\\\\", "\\"), ("\n", "")),
    *((part, "") for part in ("\\text", "\\mbox")),
    ("bmatrix", "pmatrix"),
    *((part, "") for part in ("\\left", "\\right", "^{\\circ}", "^\\circ", "{m}^3", "m^3")),
    *((part, "") for part in ("{units}", "units", "{km}", "km", "\\!")),
    *(
        ("\\\\", "\\"),
        ("tfrac", "frac"),
        ("dfrac", "frac"),
        ("\\$", ""),
        ("$", ""),
        ("\\%", ""),
        ("{.", "{0."),
    ),
)
"""Replaced in an answer, in this order; without spaces or `\\text` two backslashes may meet again."""
_BARE_ROOT = re.compile(r"\\sqrt([^{])")
_BARE_FRACTION = re.compile(r"\\frac([^{])([^{])")
_SLASHED = re.compile(r"(-?\d+)/(-?\d+)")
_KIT_CLOSE = 1e-6


def ask_boxed(question: str, sample: Sample) -> str:
    """lmms-eval: a request directly followed by the question, then the options."""
    text = _REQUEST + str(sample.extra["question"])
    return f"{text}\nChoices: {listing(sample.choices)}\n{_CHOICE_REQUEST}" if sample.choices else text


def ask_plain(question: str, sample: Sample) -> str:
    """Question and options in our own form: the text in VLMEvalKit's file is not known here."""
    return str(sample.extra["query"])


def grade_boxed(text: str, sample: Sample) -> Grade:
    """The last box, or the text after a phrase: it must equal the letter of the truth, or its text."""
    found = answer_of(text)
    truths = [sample.ground_truth, *([sample.answer] if sample.choices else [])]
    return said(found or None, any(equal(truth, found) for truth in truths))


def answer_of(reply: str) -> str:
    """The answer in a reply, in lower case and without units; empty if it gives none."""
    text = reply.strip()
    for letter in "ABCDE":
        if text.endswith((f" {letter}.", f" ({letter}).")) or text.startswith(
            (f"{letter}\n", f"({letter})\n", f"({letter}) {letter}\n")
        ):
            text = letter
    last = text.rpartition("is ")[2].rstrip(".")
    text = last if _is_number(last) else text
    if _BOX not in text:
        for phrase in _PHRASES:
            for form in (phrase, phrase.replace("the", "The")):
                if form in text:
                    text = text.rpartition(form)[2].strip().split("\n")[0].split(". ")[0]
    elif text.count(_BOX) > 1:
        text = f"\\b{_BOX}{text.rpartition(_BOX)[2]}"
    text = _plain(text)
    for letter in "abcde":
        text = text.replace(f"({letter})", letter)
    for letter in "abcde":
        text = text.replace(f"{{{letter}}}", letter)
    return text.rstrip(".").lstrip(":").strip()


def _plain(text: str) -> str:
    """The content of the box, if any, without parts that do not change its value."""
    text = text.lower().replace("{}", "")
    _, opened, inside = text.partition(_BOX)
    content, closed, _ = inside.rpartition("}")
    text = content if opened and closed else text
    if "}" in text and ("{" not in text or text.find("}") < text.find("{")):
        text = text.partition("}")[0]
    text = text.rpartition("=")[2].rpartition("\\approx")[2]
    for part, instead in _REWRITTEN:
        text = text.replace(part, instead)
    if text.startswith("."):
        text = f"0{text}"
    if "sqrt" in text:
        text = _BARE_FRACTION.sub(r"\\frac{\1}{\2}", _BARE_ROOT.sub(r"\\sqrt{\1}", text))
    if text == "0.5":
        return "\\frac{1}{2}"
    slashed = _SLASHED.fullmatch(text)
    return f"\\frac{{{slashed[1]}}}{{{slashed[2]}}}" if slashed else text


def equal(truth: str, found: str) -> bool:
    """Whether two answers are the same text, tuple of numbers, or number to two decimals."""
    truth, found = truth.lower().strip(), found.lower().strip()
    if not truth or not found:
        return False
    if truth == found or _rounded(truth) == _rounded(found):
        return True
    one, other = (latex2sympy_value(text, whole=False) for text in (truth, found))
    return one is not None and other is not None and round(one, 2) == round(other, 2)


def _rounded(text: str) -> str:
    """A tuple or list with its numbers rounded to two decimals; unchanged if a part has no value."""
    if text[0] + text[-1] not in ("()", "[]") or "," not in text:
        return text
    parts = [part.strip() for part in text[1:-1].split(",")]
    values = [
        part if "infty" in part or part in ("a", "-a") else latex2sympy_value(part, whole=False)
        for part in parts
    ]
    if any(value is None for value in values):
        return text
    shown = [value if isinstance(value, str) else str(round(value or 0.0, 2)) for value in values]
    return text[0] + ",".join(shown) + text[-1]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def grade_kit(text: str, sample: Sample) -> Grade:
    """VLMEvalKit without a model: an option by its rules, or an answer that is just a value."""
    if sample.choices:
        letter = inferred(text, lettered(sample.choices))
        return chose(None if letter == NO_OPTION and letter not in letters(sample) else letter, sample)
    text = text.strip()
    right = kit_equal(text, sample.ground_truth)
    return said(text if right or latex2sympy_value(text, whole=True) is not None else None, right)


def kit_equal(found: str, truth: str) -> bool:
    """The same text, or the same number within a millionth."""
    found, truth = found.lower().strip(), truth.lower().strip()
    if found == truth:
        return bool(found)
    one, other = (latex2sympy_value(text, whole=True) for text in (found, truth))
    return one is not None and other is not None and abs(one - other) < _KIT_CLOSE


def judge_kit(text: str, sample: Sample) -> Judging:
    """A model reads what the rules cannot; its answer goes through the same rules."""
    grade = grade_kit(text, sample)
    choices = lettered(sample.choices)
    if not grade.unreadable or not text.strip() or (choices and inferred(text, choices) == NO_OPTION):
        return grade
    found = yield extract(str(sample.extra["query"]), text, sample.choices)
    again = grade_kit(found, sample)
    return again if sample.choices or not found else said(found, again.score == 1.0)


BOXED = Rule(ask=ask_boxed, grade=grade_boxed, scorer="facets")
KIT = Rule(ask=ask_plain, grade=grade_kit, scorer="facets", judge=judge_kit, prompts=(EXTRACT,), words="ours")
