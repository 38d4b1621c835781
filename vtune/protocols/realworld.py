"""MME-RealWorld's rule: the first capital A to E, after some phrases are removed.

Source: its evaluation script; its copies in VLMEvalKit e8e78f05 and lmms-eval 75571cfe, which have inserted
two missing commas.
"""

import re
from collections.abc import Sequence

from vtune.protocols.protocol import Grade, letters
from vtune.schema.sample import Sample
from vtune.verifiers.choice import lettered
from vtune.verifiers.tags import tagged as between

OPTIONS = ("(A)", "(B)", "(C)", "(D)", "(E)")
"""Used by the harnesses to look up a short reply; the authors' script uses the question's options."""
PHRASES = (
    *("The best answer is", "The correct answer is", "The answer is", "The answer"),
    *("The best option is", "The correct option is", "Best answer:", "Best option:"),
)
"""Removed in this order, only in this spelling."""
JOINED = (*PHRASES[:4], "".join(PHRASES[4:6]), "".join(PHRASES[6:]))
"""The phrases in the authors' script: each of the last two is two phrases joined by a missing comma."""
_MOST_WORDS = 10
_LETTER = re.compile("[ABCDE]")


CHINESE = "mme-realworld-cn"
"""What the source of MME-RealWorld-CN, the name of its file, begins with."""


def is_chinese(sample: Sample) -> bool:
    """Whether upstream asks the question in Chinese."""
    return sample.source.lower().replace("_", "-").startswith(CHINESE)


def asked_in_chinese(question: str, sample: Sample) -> str:
    """The authors' prompt for MME-RealWorld-CN."""
    return (
        f"{question} 选项如下所示:\n{listed(sample)}\n"
        "根据图像选择上述多项选择题的最佳答案。只需回答正确选项的字母（A, B, C, D 或 E）。\n最佳答案为："
    )


def listed(sample: Sample) -> str:
    """The options as listed in the prompt."""
    return "\n".join(f"({letter}) {choice}" for letter, choice in lettered(sample.choices).items())


def tagged(reply: str) -> str:
    """The content of the first `<answer>` in capitals, as read by VLMEvalKit; else the reply."""
    found = between(reply, "answer")
    return reply if found is None else found.strip().upper()


def first_letter(text: str, options: Sequence[str] = OPTIONS, phrases: Sequence[str] = PHRASES) -> str | None:
    """The letter that the rule reads, or None.

    Args:
        text: A reply, or an answer.
        options: Each begins with its letter in parentheses; a text without a capital A to E is read as the
            first option that contains it.
        phrases: Removed before reading.
    """
    text = text.strip()
    for phrase in phrases:
        text = text.replace(phrase, "")
    found = _LETTER.search(text)
    if found is not None:
        return found[0]
    if len(text.split()) > _MOST_WORDS:
        return None
    return next((option[1] for option in options if text.lower() in option.lower()), None)


def graded(
    text: str, sample: Sample, options: Sequence[str] = OPTIONS, phrases: Sequence[str] = PHRASES
) -> Grade:
    """The grade of a text; blank is unreadable here, although the rule reads it as the first option."""
    letter = first_letter(text, options, phrases)
    if letter is not None and letter not in letters(sample):
        letter = None
    score = float(letter == sample.ground_truth)
    if not text.strip():
        return Grade(score=0.0, read=None, fallback=score)
    return Grade(score=score if letter else 0.0, read=letter, fallback=score if letter else 0.0)
