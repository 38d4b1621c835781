"""lmms-eval: the prompts and parsers of its tasks.

Source: lmms-eval 75571cfe (2026-08-06),
`lmms_eval/tasks/{vstar_bench,hrbench,mme_realworld,vlmsareblind,mmmu, mmmu_pro,countbench}`. Its parser of
V* is made for bare letters: use another protocol for policies that reason.
"""

import re

from vtune.data.options import listing
from vtune.protocols import PROTOCOLS, expressions, mathverse, mathvision, mathvista, points, readings
from vtune.protocols.matching import NO_OPTION, REFUSALS
from vtune.protocols.mmmu import open_answers, open_is_right, parsed_letter
from vtune.protocols.protocol import Grade, Protocol, Rule, chose, letters, said
from vtune.protocols.realworld import asked_in_chinese, graded, is_chinese, listed
from vtune.schema.sample import Sample
from vtune.verifiers.choice import lettered

LETTER_REQUEST = "Answer with the option's letter from the given choices directly."
_OPTION = re.compile(r"\([A-D]\)\s*([^()]+?)\s*(?=\([A-D]\)|\Z)")
_FORMS = tuple(
    re.compile(form)
    for form in (
        r"^([A-D])",
        r"(?:ANSWER|CHOICE|OPTION)(?:\s+IS)?[\s:]+([A-D])",
        r"\(([A-D])\)",
        r"([A-D])\s*[.)\]]",
        r"(?:^|\s)([A-D])(?:\s|$)",
    )
)
"""V*'s forms, tried in order, in a reply in capitals; each uses its first match."""
_MARKS = str.maketrans(dict.fromkeys(".()[],:;!*#{}", " "))
_LETTER_FORMS = ("({})", "{} ", "{}.")

_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
_DIGITS = re.compile(r"\{?(\d+)\}?")
_SMALL = re.compile(r"\{?([a-z])\}?")
_GRIDS = (
    re.compile(r"\{(\d+)\}\s*\{(\d+)\}"),
    re.compile(r"\((\d+)\s*,\s*(\d+)\)"),
    re.compile(r"rows=\{(\d+)\}\scolumns=\{(\d+)\}"),
)
_DIGIT_TASKS = (
    "line plot intersections",
    "subway connections",
    "olympic counting - circles",
    "olympic counting - pentagons",
    "nested squares",
)


def ask_vstar(question: str, sample: Sample) -> str:
    """Rebuilt from the published text, as upstream: the request appears twice.

    Options are located by their parentheses, so an option that itself contains some is lost and the letters
    shift.
    """
    text = f"{question}\n{listed(sample)}\n{LETTER_REQUEST}"
    found = _OPTION.findall(text)
    if found:
        text = f"{text.split('(A)')[0].strip()}\n{listing([option.strip() for option in found[:4]])}"
    return f"{text}\n{LETTER_REQUEST}"


def grade_vstar(text: str, sample: Sample) -> Grade:
    """The first letter A to D in one of five forms, else the only one; initial letters of words count."""
    reply = text.strip().upper()
    for form in _FORMS:
        found = form.search(reply)
        if found:
            return _lettered(found[1], sample)
    alone = re.findall("[A-D]", reply)
    return _lettered(alone[0] if len(alone) == 1 else None, sample)


def ask_hrbench(question: str, sample: Sample) -> str:
    """Question, options, and a request for the letter."""
    return f"{question.strip()}\n{listing(sample.choices)}\nAnswer the option letter directly."


def grade_hrbench(text: str, sample: Sample) -> Grade:
    """The only letter among the words, wherever it is, else the only option whose text is contained.

    Upstream asks a model about the rest, and gives no score without one.
    """
    text = text.strip()
    known = letters(sample)
    if "Failed to obtain answer via API" not in text:
        if any(refusal in text for refusal in REFUSALS):
            return chose(None, sample)
        words = text.translate(_MARKS).split()
        named = [letter for letter in known if letter in words]
        if len(named) == 1:
            return chose(named[0], sample)
        if not named and NO_OPTION in words:
            return chose(None, sample)
    inside = [letter for letter, choice in lettered(sample.choices).items() if choice.lower() in text.lower()]
    return chose(inside[0] if len(inside) == 1 else None, sample)


def ask_realworld(question: str, sample: Sample) -> str:
    """The authors' prompt, with a space after the last line."""
    if is_chinese(sample):
        return f"{asked_in_chinese(question, sample)} "
    return (
        f"{question} The choices are listed below:\n{listed(sample)}\n"
        "Select the best answer to the above multiple-choice question based on the image. "
        "Respond with only the letter (A, B, C, D, or E) of the correct option.\nThe best answer is: "
    )


def grade_realworld(text: str, sample: Sample) -> Grade:
    """The first capital A to E."""
    return graded(text, sample)


def ask_blind(question: str, sample: Sample) -> str:
    """The question and a reminder of the form."""
    return f"{question}\nAnswer only in the required format."


def grade_blind(text: str, sample: Sample) -> Grade:
    """By task, in lower case: a letter is the text's first ("the" gives t), a yes or no must be all of it."""
    read = _blind(text.strip().lower(), str(sample.extra["task"]).lower())
    return said(read, read == sample.ground_truth.strip().lower())


def _blind(text: str, task: str) -> str | None:
    if task == "touching circles":
        return text if text in ("yes", "no") else None
    if task.startswith("counting grid"):
        found = next((match for grid in _GRIDS if (match := grid.search(text))), None)
        return f"{found[1]},{found[2]}" if found else None
    pattern = _DIGITS if task in _DIGIT_TASKS else _SMALL
    found = pattern.search(text)
    return found[1] if found else None


def ask_mmmu(question: str, sample: Sample) -> str:
    """Question and options, or a request for a word or phrase."""
    if not sample.choices:
        return f"{question}\n\nAnswer the question using a single word or phrase."
    return f"{question}\n{listing(sample.choices)}\n\n{LETTER_REQUEST}"


def grade_mmmu(text: str, sample: Sample) -> Grade:
    """Read by the authors' rule, with a letter before a space; upstream picks one of k at random."""
    if not sample.choices:
        return grade_open(text, sample)
    letter = parsed_letter(text, sample.choices, forms=_LETTER_FORMS)
    return chose(letter, sample, at_random=1 / len(letters(sample)))


def grade_open(text: str, sample: Sample) -> Grade:
    """The authors' rule for open answers, as in 0.7.3; 75571cfe compares the letters of the first one."""
    answers = open_answers(text)
    right = open_is_right(answers, sample.extra.get("truths") or [sample.ground_truth])
    return said(" | ".join(map(str, answers)) if text.strip() else None, right)


def ask_mmmu_pro(question: str, sample: Sample) -> str:
    """Question, options and a request for the letter."""
    return f"{question}\n{listing(sample.choices)}\n\n{_PRO_REQUEST}"


def ask_mmmu_pro_vision(question: str, sample: Sample) -> str:
    """Question and options are in the picture."""
    return _PRO_REQUEST


def grade_bare_letter(text: str, sample: Sample) -> Grade:
    """The whole answer is compared with the letter, so that "B." and "(B)" are wrong."""
    return chose(text if text and text in letters(sample) else None, sample)


def ask_count(question: str, sample: Sample) -> str:
    """A request for a number, then the question."""
    return (
        "Look at the image carefully and count the objects. Answer with just a number, "
        f"without any additional text. {question.strip()}"
    )


def grade_count(text: str, sample: Sample) -> Grade:
    """The whole answer must be the number, in digits or as a word up to twenty; "none" is 0."""
    plain = text.strip().lower()
    read = "0" if plain == "none" else str(_WORDS.index(plain)) if plain in _WORDS else plain
    return said(read if read.isdecimal() else None, read == sample.ground_truth.strip())


def _lettered(letter: str | None, sample: Sample) -> Grade:
    """A letter without an option counts as unreadable."""
    return chose(letter if letter is not None and letter in letters(sample) else None, sample)


_PRO_REQUEST = "Answer with the option letter from the given choices directly."

PROTOCOLS.add(
    "lmms-eval",
    Protocol(
        about="lmms-eval 75571cfe: its tasks, with a model where they ask one",
        rules={
            "vstar": Rule(ask=ask_vstar, grade=grade_vstar, scorer="categories"),
            "hrbench": Rule(ask=ask_hrbench, grade=grade_hrbench, scorer="hrbench"),
            "mme_realworld": Rule(ask=ask_realworld, grade=grade_realworld, scorer="levels"),
            "vlmblind": Rule(ask=ask_blind, grade=grade_blind, scorer="tasks"),
            "mmmu": Rule(ask=ask_mmmu, grade=grade_mmmu, scorer="categories"),
            "mmmu_pro": Rule(ask=ask_mmmu_pro, grade=grade_mmmu, scorer="categories"),
            "mmmu_pro_vision": Rule(ask=ask_mmmu_pro_vision, grade=grade_bare_letter, scorer="categories"),
            "count": Rule(ask=ask_count, grade=grade_count, scorer="mean"),
            "screenspot_pro": points.LMMS,
            "refcoco": expressions.LMMS,
            "ocrbench_v2": readings.LMMS,
            **readings.MEGA_BENCH,
            "mathvista": mathvista.LMMS,
            "mathverse": mathverse.LMMS,
            "mathvision": mathvision.BOXED,
        },
    ),
)
