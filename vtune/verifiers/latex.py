r"""The value of a small expression in LaTeX or plain arithmetic; nothing is executed.

Fractions, roots, powers, products, `\pi`, parentheses and thousands separators: what harnesses evaluate with
latex2sympy and Python's `eval`. Anything with letters has no value.
"""

import math
import re
from decimal import Context, Decimal, localcontext

from vtune.verifiers.tags import closes

LONGEST = 200
"""Limit on the characters of an expression; ours: no numerical answer has more."""
DEEPEST = 100
"""Limit on nested brackets; ours: each takes several recursive calls."""

_TOKEN = re.compile(
    r"\s*((?:[1-9]\d{0,2}(?:,\d{3})+(?!\d)(?:\.\d*)?|\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
    r"|\\[a-zA-Z]+|\*\*|[-+*/^(){}\[\]])"
)
_TIMES, _OVER = ("*", r"\times", r"\cdot"), ("/", r"\div")
_PAIRS = {"(": ")", "{": "}", "[": "]"}
_BEGINS = re.compile(r"\(|\{|\\(?:d?frac|tfrac|sqrt|pi)\Z")
_END, _LONG = "end", "long"
"""What may follow the last token: the end of the text, or a sign that it is too long or too deep."""
_STOPS = (_END, ".", *_PAIRS.values())
"""What ends an expression with text after it: a full stop, or an unmatched closing bracket."""
_SKIPPED = re.compile(r"\$|\\displaystyle|\\q?quad(?![a-zA-Z])|\\,|~|\\left(?=\()|\\right(?=\))")
_EXTENDED = re.compile(r"\\boxed|\^\\circ|\^\{\\circ\}")
_NUMBER = re.compile(r"[-−]?(?:\d+(?:\.\d+)?|\.\d+)(?:/[1-9]\d*)?")
_PLAIN, _POWER = r"\d[\d.,]*", r"\d+\s*\^\s*(?:-?\d+|\{-?\d+\})"
_RANGE = re.compile(rf"(?:{_PLAIN}\s*[-−–]\s*{_PLAIN}|{_POWER}\s*[-−–]\s*{_POWER})")
_BOXED = re.compile(r"\\boxed\{(.*)\}")
_DEGREES = re.compile(r"\s*(?:°|\^\s*\{?\\circ\}?)\Z")
_NAMES = re.compile(
    r"\\(?:[dt]?frac|sqrt|pi|theta|alpha|beta|cdot|times|div|pm|leq?|geq?|neq?|left|right|circ|infty|in|cup"
    r"|sin|cos|tan|cot|ln|log)(?![A-Za-z])|(?<![A-Za-z])(?:sin|cos|tan|ln|log|sqrt)(?=[\s(])"
)
_FORMULA = re.compile(
    r"(?:[-−+*/^_(){}\[\]=<>≤≥≠,.|\s\dπ√²³θ°]|(?<![A-Za-z])(?:[A-Za-z]|[A-Z]{2}|[a-dkm][xy]|xy)(?![A-Za-z]))+"
)
"""Numbers, signs, and letters that do not make words."""
_RELATION = re.compile(r"[=<>≤≥≠^√π²³+]|\\[A-Za-z]|\A[(\[].*,.*[)\]]\Z")
_UNREADABLE = re.compile(
    r"\A[=<>≤≥≠^*/,]|[=<>≤≥≠^*/,+−-]\Z|[(\[{]\s*[,)\]}]|,\s*[,)\]}]|°\s*,|==|\*\*|[-+=<>]\s+[A-Za-z]\Z"
)
"""Unfinished, of another language, or with a last letter that math-verify takes for a unit."""
_EXACT = Context(prec=40)
"""Precision in digits; ours. Exponents have six digits: 3^1009/3^1008 has a value, and 9^9^9^9 has none."""


def value_of(text: str) -> float | None:
    """The value of an expression; None if it has none, or is too long."""
    return _value(text, (_END,))


def is_number(truth: str) -> bool:
    """Whether an answer is one number, in digits or in LaTeX, which may be written in many ways.

    Two numbers, or two powers, separated only by a dash, such as 1,000-2,000, may be a range.
    """
    plain = truth.strip().strip("$").strip()
    boxed = _BOXED.fullmatch(plain)
    plain = _DEGREES.sub("", boxed[1] if boxed else plain)
    if _NUMBER.fullmatch(plain):
        return True
    if _RANGE.fullmatch(plain):
        return False
    return any(mark in plain for mark in "\\^,") and "**" not in plain and value_of(plain) is not None


def is_formula(truth: str) -> bool:
    """Whether an answer is a formula, a point or a list of numbers, not a word, and math-verify can read it.

    `y = 2x + 3` and `(-3, 4)` may be spaced, ordered and typeset in many ways.
    """
    plain = truth.strip().strip("$").strip()
    with_ones = _NAMES.sub("1 ", plain).strip()
    return (
        _RELATION.search(plain) is not None
        and _FORMULA.fullmatch(with_ones) is not None
        and _UNREADABLE.search(with_ones) is None
        and any(map(str.isalnum, _NAMES.sub("", plain)))
        and closes(plain)
    )


def latex2sympy_value(text: str, *, whole: bool) -> float | None:
    r"""The value as read by latex2sympy: without `$`, spaces and `\displaystyle`; `a:b` is a ratio.

    Args:
        text: An expression.
        whole: As in latex2sympy2_extended: the whole text must be an expression, optionally in `\boxed` or
            with degrees. Otherwise as in latex2sympy2: text after it is ignored, and a `\boxed` has no value.
    """
    text = _SKIPPED.sub(" ", text).replace(":", "/")
    return _value(_EXTENDED.sub("", text), (_END,)) if whole else _value(text, _STOPS)


def _value(text: str, stops: tuple[str, ...]) -> float | None:
    tokens = _tokens(text)
    try:
        with localcontext(_EXACT):
            found, rest = _sum(tokens, 0)
    except (ValueError, ArithmeticError):
        return None
    return float(found) if tokens[rest] in stops and math.isfinite(float(found)) else None


def _tokens(text: str) -> list[str]:
    """The leading tokens, then `_END`, `_LONG`, or the character that begins no token."""
    text, rest = text.strip()[:LONGEST].rstrip(), text.strip()[LONGEST:]
    found: list[str] = []
    place, brackets, depth = 0, 0, 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            return [*found, "." if found and found[-1][-1] == "." else text[place:].strip()[0]]
        if "," in token[1] and brackets:
            return [*found, ","]
        brackets += (token[1] in "([") - (token[1] in ")]")
        depth += (token[1] in _PAIRS) - (token[1] in _PAIRS.values())
        if depth > DEEPEST:
            return [_LONG]
        found.append(token[1].replace(",", ""))
        place = token.end()
    return [*found, _LONG if rest else _END]


def _sum(tokens: list[str], at: int) -> tuple[Decimal, int]:
    total, at = _product(tokens, at)
    while at < len(tokens) and tokens[at] in "+-":
        part, after = _product(tokens, at + 1)
        total, at = (total + part if tokens[at] == "+" else total - part), after
    return total, at


def _product(tokens: list[str], at: int) -> tuple[Decimal, int]:
    total, at = _signed(tokens, at)
    while at < len(tokens):
        token = tokens[at]
        if token in _OVER:
            part, at = _signed(tokens, at + 1)
            total /= part
        elif token in _TIMES:
            part, at = _signed(tokens, at + 1)
            total *= part
        elif _BEGINS.match(token) or (token[0].isdigit() and tokens[at - 1] in _PAIRS.values()):
            part, at = _power(tokens, at)
            total *= part
        else:
            break
    return total, at


def _signed(tokens: list[str], at: int) -> tuple[Decimal, int]:
    if tokens[at] in "+-":
        found, after = _signed(tokens, at + 1)
        return (found if tokens[at] == "+" else -found), after
    return _power(tokens, at)


def _power(tokens: list[str], at: int) -> tuple[Decimal, int]:
    base, at = _atom(tokens, at)
    if at < len(tokens) and tokens[at] in ("^", "**"):
        raised, at = _signed(tokens, at + 1)
        return base**raised, at
    return base, at


def _atom(tokens: list[str], at: int) -> tuple[Decimal, int]:
    token = tokens[at]
    if token in _PAIRS:
        found, at = _sum(tokens, at + 1)
        if tokens[at] != _PAIRS[token]:
            raise ValueError("a parenthesis is not closed")
        return found, at + 1
    if token in (r"\frac", r"\dfrac", r"\tfrac"):
        above, at = _atom(tokens, at + 1)
        below, at = _atom(tokens, at)
        return above / below, at
    if token == r"\sqrt":
        degree = Decimal(2)
        at += 1
        if tokens[at] == "[":
            degree, at = _atom(tokens, at)
        found, at = _atom(tokens, at)
        if found < 0:
            raise ValueError("the root of a negative number")
        return found.sqrt() if degree == 2 else found ** (1 / degree), at
    if token == r"\pi":
        return Decimal(math.pi), at + 1
    return Decimal(token), at + 1
