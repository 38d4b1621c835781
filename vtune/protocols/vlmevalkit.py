"""VLMEvalKit: its prompts, its option matching without a model, and its rules for single benchmarks.

Source: VLMEvalKit e8e78f05 (2026-08-18), `vlmeval/dataset/image_mcq.py`, `image_vqa.py` and
`utils/matching_util.py`. Its prompts for specific models (Qwen's, by `use_custom_prompt`) are not included.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from vtune.data.options import listing
from vtune.protocols import (
    PROTOCOLS,
    charxiv,
    expressions,
    mathverse,
    mathvision,
    mathvista,
    points,
    readings,
)
from vtune.protocols.matching import NO_OPTION, inferred
from vtune.protocols.protocol import Grade, Protocol, Rule, chose, said
from vtune.protocols.realworld import asked_in_chinese, graded, is_chinese, listed, tagged
from vtune.schema.sample import Sample
from vtune.verifiers.choice import lettered

_NUMBER = re.compile(r"\{(\d+)\}")
_PAIR = re.compile(r"\((\d+),\s*(\d+)\)")

OTHER = "Other Answers"
"""Option B of a question without options; option A is its truth."""


def grade_choice(text: str, sample: Sample) -> Grade:
    """Reads a letter or an option's text; the rest, which VLMEvalKit leaves to a model, is unreadable.

    If three replies of that model cannot be read, upstream picks one of the options and `Z` at random.
    """
    choices = lettered(sample.choices)
    letter = inferred(text, choices)
    if letter == NO_OPTION and letter not in choices:
        return chose(None, sample)
    return chose(letter, sample, at_random=1 / (len(choices) + 1))


def grade_mmmu(text: str, sample: Sample) -> Grade:
    """Like `grade_choice`; a question without options gets two: its truth, and "Other Answers"."""
    if sample.choices:
        return grade_choice(text, sample)
    return grade_choice(text, replace(sample, choices=(sample.ground_truth, OTHER), ground_truth="A"))


def ask_choice(question: str, sample: Sample) -> str:
    """Hint, question, options and the request for one of them, each on a separate line."""
    return _asked(question, sample, "Please select the correct answer from the options above. \n")


def ask_treebench(question: str, sample: Sample) -> str:
    """The same with TreeBench's request."""
    return _asked(question, sample, "Answer with the correct option's letter directly. \n")


def ask_mmmu_pro(question: str, sample: Sample) -> str:
    """The same with MMMU-Pro's request, without hints."""
    request = "Answer directly with the option letter from the given choices. "
    return _asked(question, replace(sample, extra={}), request)


def ask_mmmu_pro_vision(question: str, sample: Sample) -> str:
    """Question and options are in the picture."""
    return (
        "Answer the following multiple-choice question in the image. "
        "Answer directly with the option letter from the given choices. "
    )


def _asked(question: str, sample: Sample, request: str) -> str:
    hint = sample.extra.get("hint")
    text = f"Hint: {hint}\n" if hint else ""
    text += f"Question: {question}\n"
    return f"{text}Options:\n{listing(sample.choices)}\n{request}" if sample.choices else text


def ask_realworld(question: str, sample: Sample) -> str:
    """The authors' prompt, with a space before the last line."""
    if is_chinese(sample):
        return asked_in_chinese(question, sample)
    return (
        f"{question} The choices are listed below:\n{listed(sample)}\n"
        "Select the best answer to the above multiple-choice question based on the image. "
        "Respond with only the letter (A, B, C, D, or E) of the correct option. \nThe best answer is:"
    )


def grade_realworld(reply: str, sample: Sample) -> Grade:
    """The first capital A to E; a reply with an `<answer>` is capitalised, so that "THE" contains an E."""
    return graded(tagged(reply), sample)


def ask_as_is(question: str, sample: Sample) -> str:
    """The question only: it says itself how to answer."""
    return question


def ask_count(question: str, sample: Sample) -> str:
    """The question and a request for a number."""
    return f"{question} Note that: answer with a number directly e.g. 3. Do not include any additional text."


def grade_count(text: str, sample: Sample) -> Grade:
    """Right if the digits of the truth occur anywhere, so that 12 is right for 2."""
    return said(text.strip() or None, sample.ground_truth in text)


def _braced(text: str, truth: str) -> Grade:
    """Reads the content of the first pair of braces within a line."""
    for line in text.split("\n"):
        _, opened, rest = line.partition("{")
        content, closed, _ = rest.partition("}")
        if opened and closed:
            return said(content, content == truth)
    return said(None, right=False)


def _contained(text: str, truth: str) -> Grade:
    return said(text.strip() or None, truth in text)


def _contained_lower(text: str, truth: str) -> Grade:
    return _contained(text.lower(), truth.lower())


def _grid(text: str, truth: str) -> Grade:
    rows, columns, pair = _number_of("row", text), _number_of("column", text), _PAIR.search(text)
    if rows and columns:
        read = (rows, columns)
    elif pair:
        read = (pair[1], pair[2])
    else:
        return said(None, right=False)
    wanted = [part.strip().lstrip("0") for part in truth.split(",")]
    return said(",".join(read), [part.lstrip("0") for part in read] == wanted)


def _number_of(word: str, text: str) -> str | None:
    """The first number in braces after a word, with no brace in between; takes linear time."""
    for found in _NUMBER.finditer(text):
        begin = max(text.rfind(brace, 0, found.start()) for brace in "{}") + 1
        before = text[begin : found.start()]
        if word in before or word.capitalize() in before:
            return found[1]
    return None


BLIND: Mapping[str, Callable[[str, str], Grade]] = MappingProxyType(
    {
        "Subway Connections": _braced,
        "Nested Squares": _braced,
        "Line Plot Intersections": _braced,
        "Circled Letter": _braced,
        "Touching Circles": _contained_lower,
        "Olympic Counting - Circles": _contained,
        "Olympic Counting - Pentagons": _contained,
        "Counting Grid - Blank Grids": _grid,
        "Counting Grid - Word Grids": _grid,
    }
)
"""Task of VLMs Are Blind -> rule: (answer, truth) -> grade."""


def grade_blind(text: str, sample: Sample) -> Grade:
    """By the rule of its task; "no" also matches in "not", and "5" in "15"."""
    return BLIND[str(sample.extra["task"])](text, sample.ground_truth)


CHOICE = Rule(ask=ask_choice, grade=grade_choice, scorer=None)
REALWORLD = Rule(ask=ask_realworld, grade=grade_realworld, scorer="levels", reads="reply")
BLIND_RULE = Rule(ask=ask_as_is, grade=grade_blind, scorer="tasks")
MMMU = Rule(ask=ask_choice, grade=grade_mmmu, scorer="categories")
COUNT = Rule(ask=ask_count, grade=grade_count, scorer="mean")

PROTOCOLS.add(
    "vlmevalkit",
    Protocol(
        about="VLMEvalKit e8e78f05: its prompts and rules, with a model where it has one",
        rules={
            "multiple_choice": CHOICE,
            "vstar": CHOICE,
            "hrbench": CHOICE,
            "treebench": Rule(ask=ask_treebench, grade=grade_choice, scorer="levels"),
            "mme_realworld": REALWORLD,
            "vlmblind": BLIND_RULE,
            "mmmu": MMMU,
            "mmmu_pro": Rule(ask=ask_mmmu_pro, grade=grade_choice, scorer="categories"),
            "mmmu_pro_vision": Rule(ask=ask_mmmu_pro_vision, grade=grade_choice, scorer="categories"),
            "count": COUNT,
            "screenspot_pro": points.VLMEVALKIT,
            "refcoco_tsv": expressions.VLMEVALKIT,
            "ocrbench_v2": readings.OFFICIAL,
            "mathvista": mathvista.KIT,
            "mathverse": mathverse.KIT,
            "mathvision": mathvision.KIT,
            "charxiv_reasoning": charxiv.RULE,
            "charxiv_descriptive": charxiv.RULE,
        },
    ),
)
