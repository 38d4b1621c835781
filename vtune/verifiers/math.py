"""Mathematical answers: is it the same value, according to math-verify?"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import VERIFIERS
from vtune.verifiers.limit import limited
from vtune.verifiers.size import too_large
from vtune.verifiers.tags import closes
from vtune.verifiers.unit_words import MATHS_NAMES, changed, numbers
from vtune.verifiers.units import contradict
from vtune.verifiers.verifier import (
    ANSWER_IN,
    Case,
    Verifier,
    answered,
    given_answer,
    no_answer,
    options,
    quote,
    unreadable,
    where,
)

NAME = "math"

LONGEST = 1000
"""Limit on the characters of an answer that is still read (DeepEyes also refuses from 1000 on)."""

LONGEST_TRUTH = 10_000
"""Limit on the characters of a ground truth that is still read; ours: no answer that long could equal it."""

SHORT = 100
"""Up to this many characters an answer is quick to parse, whatever it says; ours."""

_SLOW = re.compile(
    r"\\(?:sum|prod|lim|i*int|oint|det|binom|begin|operatorname|Gamma|gamma)(?![A-Za-z])"
    r"|[)}\]]\s*\^\s*\{?\s*[0-9]{2}|\^\s*\{[^{}]*\^|(?:[({\[]\s*){4}|[0-9]{4}\s*!|!\s*!"
)
"""A command, a high power of a group, a power in an exponent, nested brackets, a large factorial."""

_INTEGER = re.compile(r"-?[0-9]{1,15}")

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*")
_WHOLE_BOX = re.compile(r"\$*\\(?:boxed|fbox)\s*\{(.*)\}\$*", re.DOTALL)
_BOLD = re.compile(r"\*\*([^*]+)\*\*")
_DEGREES = re.compile(r"([^°^!]*\d)\s*°(\s*\$?)")
"""Degrees at the end of something plain: `size` does not know the sign, and 45°30' is not a product."""
_NAMED_DEGREE = re.compile(
    r"\^\s*\{\s*\\(?:text)?degree\s*\}|(?:\^\s*)?\\(?:text)?degree(?![A-Za-z])(?:\{\})?"
)
_SCALE = re.compile(r"°\s*[CF](?![A-Za-z])")
_DISPLAY = re.compile(r"\\\[(.*)\\\]", re.DOTALL)
_NUMBER_IN_WORDS = re.compile(r"\\(?:text\w*|mathrm|mbox)\s*\{[^{}]*\d")
_ROOT = re.compile(r"√\s*(?:([0-9]+(?:\.[0-9]+)?(?![0-9]|[.,][0-9])|[a-zπ](?![⁰¹²³⁴-⁹]))|\(([^()√]*)\))")
"""Root of a number, a letter or a bracket; where the root ends is not clear in √1,000 and √x²."""
_RAISED = re.compile(r"(?<![⁻⁰¹²³⁴⁵⁶⁷⁸⁹])⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+(?![⁻⁰¹²³⁴⁵⁶⁷⁸⁹])")
_LONG_MINUS = re.compile(r"(\A\s*\$?|[=<>≤≥≈(\[{,])(\s*)[–—‐‑](?=\s*[0-9.\\√])")
"""A dash before a number, with nothing to its left; between two numbers it may be a range."""
_FRACTION = re.compile(r"(?<![0-9.,])([0-9]*)([¼-¾⅐-⅞↉])")
"""A fraction sign, with the whole number before it: 2½ is 2.5. Not read after 1,000."""
_SPACE = r"(?:[ \t~\u00a0\u2009\u202f]|\\[ ,:;])"
_SIGN_BEFORE = "|".join(
    rf"(?<=\\{name})" for name in ("times", "cdot", "div", "pm", "le", "leq", "ge", "geq", "approx", "sim")
)
_TERM = rf"(?:\A|(?<=[-+−–*/:=<>≤≥≈±×÷(\[{{,;$])|{_SIGN_BEFORE})[ \t]*"
"""Where a number is not the argument of a command (`\\frac 1 2`) or of a power."""
_MIXED = re.compile(rf"({_TERM})(?<!/)([0-9]+){_SPACE}+([0-9]+)/([0-9]+)(?![0-9/^]|[.,][0-9])")
"""5 1/2, which math-verify reads as (5 + 1)/2. 1/2 3/4 is two numbers."""
_FACTOR = re.compile(rf"({_TERM})([0-9]+)/([0-9]+)(?={_SPACE}+(?:[A-Za-zα-ω√(]|\\[A-Za-z]))")
"""1/2 x, which math-verify reads as 1/(2x), as it does 1/2x."""
_THOUSANDS = re.compile(rf"({_TERM})([1-9][0-9]{{0,2}}(?:{_SPACE}[0-9]{{3}})+)(?!{_SPACE}*[0-9])")
_SPACES = re.compile(rf"{_SPACE}+")
_APART = re.compile(rf"{_TERM}[0-9][0-9.]*(?:{_SPACE}|\n|\\q?quad(?![A-Za-z]))+[0-9]")
"""Numbers with nothing between them, which math-verify adds or multiplies."""
_SCIENTIFIC = re.compile(
    r"(?<![0-9A-Za-z.\\^_])(?<![0-9],)"
    r"(?:([0-9]+\.[0-9]*|\.[0-9]+|1)[eE]([+-]?[0-9]+)|([0-9]+)[eE]([0-9]+|[+-][0-9]{2,}))(?![0-9A-Za-z.^!])"
)
"""1e-05 and 3e8, which math-verify reads as e - 5 and 3·e·8. 2e-3 may mean that, and is left to it."""
_GREEK = re.compile(r"(?<![A-Za-z\\])(pi|theta|alpha|beta|phi|omega|lambda|mu|sigma)(?![A-Za-z])")
_FUNCTION = re.compile(
    r"(?<![A-Za-z\\])((?:arc)?(?:sin|cos|tan)|cot|csc|ln)(?=\s*[({\\^]|\s+[0-9a-zα-ω]\b|[α-ω])"
)
"""A function without its backslash, which math-verify reads as a product of letters, before its argument."""
_SQUARE_ROOT = re.compile(r"(?<![A-Za-z\\])sqrt\s*(?:\(([^()]*)\)|([0-9]+(?:\.[0-9]+)?)(?![0-9]|[.,][0-9]))")
_PLAIN = str.maketrans(
    "０１２３４５６７８９（）［］｛｝＋－﹣＊／⁄＝＜＞：；％．", "0123456789()[]{}+--*//=<>:;%.", "€£¥￥"
)
"""Full-width characters, as in Chinese; currency signs are dropped, as math-verify drops the dollar."""
_SIGNS = _PLAIN | str.maketrans(
    {
        "∞": r"\infty ",
        "，": ", ",  # between values, never between thousands
        "、": ", ",
        "·": r"\cdot ",
        "⩽": r"\le ",
        "⩾": r"\ge ",
        "℃": "°",
        "℉": "°",
        "º": "°",  # often written for it: the ordinal's sign, and a ring
        "˚": "°",
    }
)

_PROSE = re.compile(r"[A-Za-z]{3,}")
_SIGN = re.compile(r"\\(?:cdot|times|div|pm|mp|leq?|geq?|neq?|approx|sim|in|cup|cap|to)(?![A-Za-z])")
_NAME = re.compile(rf"\\[A-Za-z]+|\b(?:{MATHS_NAMES})\b", re.IGNORECASE)
_WRAPPED = re.compile(r"\\(?:text|mathrm|mbox)\s*\{[^{}]*\}")
_NUMBER_WRAPPED = re.compile(r"\s*(\$?)\\(?:text|mathrm|mbox)\s*\{\s*([-+]?[0-9.][^{}]*)\}\1\s*")
_SENTENCE = re.compile(
    r"\D*?\b(?:is|are|was|the|answers?|think|it['’]s|its|about|equals?|approximately|therefore|thus|hence|"
    r"because|value|result|should|would|there|yes|one|two|six|ten)\b(?!\s*=)"
    r"|\W*(?:x\W+)*(?:[a-z]{2,}\s+[a-z]{2,}|[a-z]{3,}(?:\W*:|(?:\*\*)?[,.]?\s+(?=[\w$]))|[a-z]{4,}\W*\Z)",
    re.IGNORECASE,
)
"""What math-verify reads as a product of letters: `The answer is 3`, `It's 3`, `Area 3`, `three`."""
_SYMBOL = re.compile(r"[\u00aa\u00b5\u00ba\u0370-\u03ff\u2100-\u214f\U0001d400-\U0001d7ff]")
"""A letter used in formulas: Greek ones, ℓ, 𝑥."""
_NOT_PROSE = re.compile(
    r"\\(?:text|mathrm|mbox)\s*\{[^{}]*\}|\\[A-Za-z]+|\b(?:sqrt|sin|cos|tan|log|exp|inf)\b"
)


def verify_math(reply: str, sample: Sample) -> Verdict:
    r"""Score 1 where the answer has the value of the ground truth, and not another unit, else 0.

    The whole answer must be one expression, with or without `\boxed{}`: nothing is extracted from
    prose, so "7 or 8" is the set {7, 8} and not 7, and "3 4" is not an expression. One or two words after
    a number are its unit ("3 apples") if the truth is a bare number, unless they change it ("3 million";
    see `unit_words`), and units must not contradict. An answer that begins with words ("The answer is 3")
    scores 0 and is unreadable. An answer that cannot be read in 5 s of CPU time (see `limit`) scores
    0, and so does one with a number that no machine should compute (`(10^9)!`, a tower of powers; see
    `size`), before it is parsed.

    `answer_in` in `verifier_parm` may be `boxed`: then the answer is a `\boxed{}` anywhere in the reply, as
    V-Triune requests (eq. 1). Its published server accepts any of several boxes as the answer; here boxes
    that disagree are hedging. That server lower-cases both sides; math-verify ignores case anyway.

    Call it in the main thread of a process: its limit is a signal. `Verifying` does so in workers.

    Raises:
        DataError: As for `check_math`, except that prose in the ground truth is not checked for again.
    """
    truth = _truth(sample)
    given = given_answer(reply, sample)
    if given is None:
        return no_answer(sample)
    return compared(given, {sample.ground_truth: truth}, quote(sample.ground_truth))


def compared(given: str, truths: Mapping[str, list[Any]], quoted: str, *, words: bool = False) -> Verdict:
    """The verdict on an answer by math-verify (V-Triune eq. 1); its unit must not contradict, either.

    Main thread only.

    Args:
        given: The whole answer.
        truths: Each correct text, with what `parsed` reads in it.
        quoted: The ground truth as quoted in the verdict.
        words: As in `parsed`.
    """
    if len(given) >= LONGEST:
        return unreadable(f"the answer has {len(given)} characters")
    text = given if words else in_latex(given)
    if (why := too_large(text)) is not None:
        return unreadable(f"{quote(given)} {why}")
    value = parsed(text, words=words)
    same = [text for text, truth in truths.items() if value and same_value(truth, value)]
    if not same and not words:
        same = [text for text in truths if _same_number(given, text)]
    if not same and not value:
        return unreadable(f"{quote(given)} is not an expression")
    why = f"answered {quote(given)}, truth {quoted}"
    if not same and not words and _is_sentence(given):
        return unreadable(f"{quote(given)} begins with words, and is not an expression")
    if same and all(contradict(given, text) for text in same):
        return answered(0.0, f"{why}: of another unit")
    if same and not words and all(changed(given, text) for text in same):
        return answered(0.0, f"{why}: the words behind the number change it")
    return answered(float(bool(same)), why)


def _same_number(given: str, truth: str) -> bool:
    """Whether an answer and a ground truth are equal except for words and units unknown to math-verify."""
    found = numbers(given, truth)
    if found is None:
        return False
    value, right = (parsed(in_latex(number)) for number in found)
    return bool(value) and same_value(right, value)


def looks_slow(reply: str, sample: Sample) -> bool:
    """Whether math-verify may be slow on an answer or its ground truth; a quick estimate."""
    place = sample.verifier_parm.get("answer_in")
    given = ANSWER_IN["tag" if not isinstance(place, str) or place not in ANSWER_IN else place](reply) or ""
    texts = [in_latex(text) for text in (given, sample.ground_truth)]
    if not any(len(text) > SHORT or _SLOW.search(text) is not None for text in texts):
        return False
    # What is refused before parsing takes no time.
    return not any(len(text) >= LONGEST or too_large(text) is not None for text in texts)


def check_math(sample: Sample) -> None:
    """Check that the ground truth is an expression that equals itself. Main thread only, like `verify_math`.

    Raises:
        DataError: If it is empty, prose (which would be read as a product of letters), unreadable, or
            larger than an answer may be, or if an option of `verifier_parm` is unknown.
    """
    truth = _truth(sample)
    if is_prose(sample.ground_truth) or not same_value(truth, truth):
        raise DataError(
            f"the ground truth {sample.ground_truth!r} is not an expression",
            where=where(sample),
            fix="write only the value, or use verifier `exact` for words",
        )


def is_prose(truth: str) -> bool:
    """Whether a ground truth contains words, which would be read as products of letters."""
    return _PROSE.search(_NOT_PROSE.sub(" ", truth)) is not None


def _is_sentence(answer: str) -> bool:
    """Whether an answer begins with words; `theta/2` and `arctan(2)` begin with names."""
    formula = _SIGN.sub(" + ", _WRAPPED.sub(" ", answer))
    return _SENTENCE.match(_NAME.sub(" x ", formula)) is not None


def is_worded(truth: str) -> bool:
    """Whether a ground truth is in words, of any script; math-verify reads no non-Latin letters."""
    left = _NOT_PROSE.sub(" ", truth)
    others = (letter for letter in left if letter.isalpha() and not letter.isascii())
    return is_prose(truth) or any(_SYMBOL.match(letter) is None for letter in others)


def math_form(sample: Sample) -> str:
    """What an answer looks like."""
    return "one number or one expression, without words"


def _truth(sample: Sample) -> list[Any]:
    options(sample, {"answer_in"})
    truth = in_latex(sample.ground_truth)
    why = f"has {len(truth)} characters" if len(truth) >= LONGEST_TRUTH else too_large(truth)
    if why is not None:
        raise DataError(
            f"the ground truth {quote(truth)} {why}",
            where=where(sample),
            fix="write a value that can be computed, or use verifier `exact` to compare it as text",
        )
    value = parsed(truth)
    if not value:
        raise DataError(
            f"math-verify cannot read the ground truth {sample.ground_truth!r}",
            where=where(sample),
            fix=r"write a number or a LaTeX expression, e.g. \frac{1}{2}",
        )
    return value


def in_latex(text: str) -> str:
    r"""An expression rewritten so that math-verify reads it correctly.

    It does not know Unicode signs (√2, 10³, ½, ∞, –5, （1，2）) and `\degree`, and reads 5 1/2 as 3,
    1/2 x as 1/(2x), 10 000 as 0, 1e-5 as e - 5, and pi and cos as products of letters. It reads nothing in
    `\text{7}`.
    """
    text = text if text.isascii() else text.translate(_SIGNS)
    text = _NAMED_DEGREE.sub(r"^{\\circ}", text)
    wrapped = _NUMBER_WRAPPED.fullmatch(text)
    text = text if wrapped is None else wrapped[2].strip()
    text = _MIXED.sub(r"\1(\2+\\frac{\3}{\4})", text)
    text = _FACTOR.sub(r"\1\\frac{\2}{\3}", text)
    text = _THOUSANDS.sub(lambda found: found[1] + _SPACES.sub("", found[2]), text)
    text = _GREEK.sub(r"\\\1 ", _SCIENTIFIC.sub(_power_of_ten, text))
    text = _SQUARE_ROOT.sub(lambda root: rf"\sqrt{{{root[1] or root[2]}}}", _FUNCTION.sub(r"\\\1", text))
    if text.isascii():
        return text
    text = _SCALE.sub("°", text)
    text = _ROOT.sub(lambda root: rf"\sqrt{{{root[1] or root[2]}}}", text)
    text = _RAISED.sub(lambda power: f"^{{{unicodedata.normalize('NFKC', power[0])}}}", text)
    return _LONG_MINUS.sub(r"\1\2-", _FRACTION.sub(_fraction, text))


def _power_of_ten(found: re.Match[str]) -> str:
    digits, exponent = (found[1], found[2]) if found[1] else (found[3], found[4])
    return rf"({digits}\times 10^{{{exponent.removeprefix('+')}}})"


def _fraction(found: re.Match[str]) -> str:
    above, _, below = unicodedata.normalize("NFKC", found[2]).partition("\u2044")
    fraction = rf"\frac{{{above}}}{{{below}}}"
    return f"({found[1]}+{fraction})" if found[1] else fraction


def parsed(text: str, *, words: bool = False) -> list[Any]:
    """The expression that a complete text stands for, in a list; an empty list if it is not one.

    Args:
        text: An answer, with or without its box.
        words: Add the text itself, which math-verify compares if it cannot read an expression.
    """
    from math_verify import LatexExtractionConfig, parse
    from sympy import Integer

    whole = _unboxed(text.strip().removesuffix(".") if words else _bare(text))
    if not words:  # as text, 60° differs from 60
        whole = _bare(whole)
        whole = _DEGREES.sub(r"\1^{\\circ}\2", whole) if _DEGREES.fullmatch(whole) else whole
    if _INTEGER.fullmatch(whole):  # the same result as math-verify's, in a hundredth of the time
        return [Integer(whole)]
    # math-verify drops words, and `\text{or 8}` with them.
    if not closes(whole) or (not words and (_NUMBER_IN_WORDS.search(whole) or _APART.search(whole))):
        return []
    boxed_only = LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)
    empty: list[Any] = []
    return limited(
        lambda: parse(
            f"\\boxed{{{whole}}}",
            extraction_config=[boxed_only],
            fallback_mode="first_match" if words else "no_fallback",
            parsing_timeout=None,
        ),
        empty,
    )


def _bare(text: str) -> str:
    """An answer without a final full stop and without bold."""
    text = text.strip().removesuffix(".").removesuffix("。").strip()
    bold = _BOLD.fullmatch(text)
    return bold[1].strip().removesuffix(".").removesuffix("。") if bold else text


def same_value(truth: list[Any], value: list[Any]) -> bool:
    """Whether math-verify finds that an answer equals the ground truth. Main thread only."""
    from math_verify import verify

    return limited(lambda: verify(truth, value, timeout_seconds=None), False)


def _unboxed(text: str) -> str:
    r"""The text without `\[ \]` and boxes: math-verify would read `\boxed{7} or 8` as its inner box, 7."""
    display = _DISPLAY.fullmatch(text)
    if display is not None:
        text = display[1].strip()
    whole = _WHOLE_BOX.fullmatch(text)
    if whole is not None and closes(whole[1]):
        text = whole[1]
    return _BOX.sub("", text)


VERIFIERS.add(
    NAME,
    Verifier(
        verify_math,
        check_math,
        math_form,
        Case(gold="\\boxed{\\frac{1}{2}}", broken_gold="", wrong="\\frac{1}{3}"),
        in_worker=True,
        looks_slow=looks_slow,
    ),
)
