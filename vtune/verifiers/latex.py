r"""The value of a small expression in LaTeX or plain arithmetic; nothing is run.

Fractions, roots, powers, products, `\pi`, parentheses and commas between thousands: what the harnesses let
latex2sympy and Python's `eval` work out. What has letters in it has no value.
"""

import math
import re

LONGEST = 200
"""Characters of an expression, ours: no answer that is a number has more."""

_TOKEN = re.compile(
    r"\s*((?:[1-9]\d{0,2}(?:,\d{3})+(?!\d)(?:\.\d*)?|\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
    r"|\\[a-zA-Z]+|\*\*|[-+*/^(){}\[\]])"
)
_TIMES, _OVER = ("*", r"\times", r"\cdot"), ("/", r"\div")
_PAIRS = {"(": ")", "{": "}", "[": "]"}
_BEGINS = re.compile(r"\(|\{|\\(?:d?frac|tfrac|sqrt|pi)\Z")


def value_of(text: str) -> float | None:
    """The number that an expression stands for; None where it has none, or is too long."""
    tokens = _tokens(text)
    if not tokens:
        return None
    try:
        found, rest = _sum(tokens, 0)
    except (ValueError, ArithmeticError, IndexError):
        return None
    return found if rest == len(tokens) and math.isfinite(found) else None


def _tokens(text: str) -> list[str]:
    """None of them where something stands in between, or a comma that may part the numbers of a tuple."""
    text = text.strip()
    found: list[str] = []
    place, brackets = 0, 0
    while len(text) <= LONGEST and place < len(text):
        token = _TOKEN.match(text, place)
        if token is None or ("," in token[1] and brackets):
            return []
        brackets += (token[1] in "([") - (token[1] in ")]")
        found.append(token[1].replace(",", ""))
        place = token.end()
    return found


def _sum(tokens: list[str], at: int) -> tuple[float, int]:
    total, at = _product(tokens, at)
    while at < len(tokens) and tokens[at] in "+-":
        part, after = _product(tokens, at + 1)
        total, at = (total + part if tokens[at] == "+" else total - part), after
    return total, at


def _product(tokens: list[str], at: int) -> tuple[float, int]:
    total, at = _signed(tokens, at)
    while at < len(tokens):
        token = tokens[at]
        if token in _OVER:
            part, at = _signed(tokens, at + 1)
            total /= part
        elif token in _TIMES:
            part, at = _signed(tokens, at + 1)
            total *= part
        elif _BEGINS.match(token):
            part, at = _power(tokens, at)
            total *= part
        else:
            break
    return total, at


def _signed(tokens: list[str], at: int) -> tuple[float, int]:
    if tokens[at] in "+-":
        found, after = _signed(tokens, at + 1)
        return (found if tokens[at] == "+" else -found), after
    return _power(tokens, at)


def _power(tokens: list[str], at: int) -> tuple[float, int]:
    base, at = _atom(tokens, at)
    if at < len(tokens) and tokens[at] in ("^", "**"):
        raised, at = _signed(tokens, at + 1)
        found = base**raised
        if isinstance(found, complex):
            raise ValueError("the root of a negative number")
        return found, at
    return base, at


def _atom(tokens: list[str], at: int) -> tuple[float, int]:
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
        degree = 2.0
        at += 1
        if tokens[at] == "[":
            degree, at = _atom(tokens, at)
        found, at = _atom(tokens, at)
        if found < 0:
            raise ValueError("the root of a negative number")
        return found ** (1 / degree), at
    if token == r"\pi":
        return math.pi, at + 1
    return float(token), at + 1
