"""How large the numbers of an expression are, estimated from its text before anything computes them.

An answer such as `9^{9^{9^{9}}}` keeps math-verify busy until its time limit, and fills the memory. Only
numbers with more than a million digits, and nesting deeper than any parser follows, are refused here; an
expression that this reader does not understand is let through, and left to the time limit.
"""

import math
import re
from collections.abc import Callable
from typing import NamedTuple

LARGEST = 1_000_000
"""Limit on the digits of a number to compute exactly; ours. 9^(10^6) takes a quarter of a second."""

LONGEST_PRODUCT = 100_000
"""Limit on the factors of `\\binom` or `\\prod`; ours: the former's quotients cost more than their digits."""

WIDEST = 100
"""Limit on the rows or columns of a matrix built by name (`\\operatorname{eye}`); ours."""

DEEPEST = 30
"""Limit on nested groups, including arguments of commands; ours."""

DEEPEST_BARE = 15
"""Limit on nested brackets that belong to no command; ours: each doubles the time of math-verify's parser,
which exceeds its limit of 5 seconds with fewer than 30."""

_TOKEN = re.compile(r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+|\\[A-Za-z]+|\\.|\*\*|[^\s]", re.DOTALL)
_SPACING = re.compile(r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|limits|quad|qquad)|\\[,;:! ]|[$~]")

_OPEN = frozenset(("(", "[", "{", "\\{", "\\lfloor", "\\lceil", "\\langle", "\\lbrace", "\\lbrack"))
_CLOSE = frozenset((")", "]", "}", "\\}", "\\rfloor", "\\rceil", "\\rangle", "\\rbrace", "\\rbrack"))
_PLUS = frozenset(("+", "-", "\\pm", "\\mp"))
_TIMES = frozenset(("*", "\\cdot", "\\times", "\\ast"))
_OVER = frozenset(("/", ":", "\\div"))
_FRACTION = frozenset(("\\frac", "\\dfrac", "\\tfrac", "\\cfrac"))
_CHOOSE = frozenset(("\\binom", "\\dbinom", "\\tbinom"))
_POWER = frozenset(("^", "**"))
_OPERATORS = _PLUS | _TIMES | _OVER | _POWER | {"_", "!"}
_BETWEEN = frozenset(",;=<>|&%'\"?@#`") | {
    "\\\\", "\\le", "\\leq", "\\ge", "\\geq", "\\ne", "\\neq", "\\in", "\\cup", "\\cap", "\\mod", "\\bmod",
    "\\approx", "\\equiv", "\\sim", "\\to", "\\mid", "\\vert", "\\%", "\\lt", "\\gt",
}  # fmt: skip
"""Where one expression ends and another begins."""

_AFTER_PRODUCT = _CLOSE | _BETWEEN | _PLUS
_AFTER_ATOM = _CLOSE | _BETWEEN | _OPERATORS

_BUILT = frozenset(("zeros", "ones", "eye", "diag"))


class Size(NamedTuple):
    """What is known about a part of an expression."""

    digits: float
    """Upper bound for numerator and denominator together; counted only if it is exact."""
    value: float | None
    """Approximate; infinite if no float can represent it, None if it depends on a symbol or a function."""
    exact: bool
    """Whether it is a rational or a root, which are computed exactly; floats, e and π are not."""


class _TooLarge(Exception):
    """The message says what is too large."""


_UNKNOWN = Size(0.0, None, False)


def too_large(text: str) -> str | None:
    """Why an expression must not be computed, as the end of "it …"; None if nothing speaks against it.

    Takes time linear in the length of the text, and depends on nothing else.

    Args:
        text: LaTeX, or plain notation (`2**3`).
    """
    tokens = [token for token in _TOKEN.findall(_SPACING.sub(" ", text.replace("−", "-"))) if token.strip()]
    try:
        _check_depth(tokens)
        _Reader(tokens).all()
    except _TooLarge as error:
        return str(error)
    return None


def _check_depth(tokens: list[str]) -> None:
    """Check that groups are not nested too deeply for this reader, and for the parser after it."""
    bare: list[bool] = []
    before = ""
    for token in tokens:
        if token in _OPEN:
            bare.append(before in _OPEN or (token != "{" and before not in ("^", "_", "!")))
            if len(bare) > DEEPEST or sum(bare) > DEEPEST_BARE:
                raise _TooLarge("nests brackets too deep to be read")
        elif token in _CLOSE and bare:
            bare.pop()
        before = token


class _Reader:
    """Reads tokens once, from left to right, with the precedence of math-verify's own grammar."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def all(self) -> None:
        """Read everything."""
        while self._at < len(self._tokens):
            self._list()
            self._at += 1  # an unmatched closing bracket

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._next()
        self._at += 1
        return token

    def _list(self) -> Size:
        """Expressions up to a closing bracket or the end; returns the size if there is exactly one."""
        found: list[Size] = []
        while (token := self._next()) and token not in _CLOSE:
            if token in _BETWEEN:
                self._at += 1
                found.append(_UNKNOWN)
            else:
                found.append(self._sum())
        return found[0] if len(found) == 1 else _UNKNOWN

    def _sum(self) -> Size:
        size = self._product()
        while self._next() in _PLUS:
            minus = self._take() == "-"
            size = _add(size, self._product(), minus=minus)
        return size

    def _product(self) -> Size:
        size = self._signed()
        while (token := self._next()) and token not in _AFTER_PRODUCT:
            over = token in _OVER
            if over or token in _TIMES:
                self._at += 1
            size = _multiply(size, self._signed(), over=over)
        return size

    def _signed(self) -> Size:
        minus = False
        while self._next() in _PLUS:
            minus ^= self._take() == "-"
        size = self._postfixed()
        return size if not minus or size.value is None else size._replace(value=-size.value)

    def _postfixed(self) -> Size:
        """An atom with its postfixes; as in math-verify, `2^{3}!` is (2^3)!, and `2^3^4` is (2^3)^4."""
        first = self._next()
        size = _UNKNOWN if first in _OPERATORS else self._atom()
        while (token := self._next()) in _POWER or token in ("_", "!"):
            self._at += 1
            if token == "!":
                size = _factorial(size)
                continue
            argument = self._deeper(self._signed if token == "**" else self._signed_atom)
            if token in _POWER:
                if first == "\\prod" and argument.exact and abs(argument.value or 0.0) > LONGEST_PRODUCT:
                    raise _TooLarge("multiplies too many factors")
                size = _power(size, argument)
        if first in _TIMES | _OVER:
            self._at += 1  # an operator without a left operand
        return size

    def _signed_atom(self) -> Size:
        minus = False
        while self._next() in _PLUS:
            minus ^= self._take() == "-"
        size = self._atom() if self._next() not in _AFTER_ATOM else _UNKNOWN
        return size if not minus or size.value is None else size._replace(value=-size.value)

    def _atom(self) -> Size:
        token = self._next()
        if not token or token in _CLOSE or token in _BETWEEN:
            return _UNKNOWN
        self._at += 1
        if token in _OPEN:
            return self._closed()
        if token[0].isascii() and (token[0].isdigit() or (token[0] == "." and len(token) > 1)):
            return _number(token)
        if token in _FRACTION:
            upper = self._argument()
            return _multiply(upper, self._argument(), over=True)
        if token in _CHOOSE:
            upper = self._argument()
            return _choose(upper, self._argument())
        if token == "\\sqrt":
            return self._root()
        if token in ("\\Gamma", "\\gamma") and self._next() == "(":
            return _factorial(self._argument())
        if token == "\\operatorname":
            return self._operator()
        constant = {"e": math.e, "\\pi": math.pi}.get(token)
        return _UNKNOWN if constant is None else Size(1.0, constant, False)

    def _closed(self) -> Size:
        """The content of a group whose opening bracket has been read, and its closing bracket."""
        size = self._list()
        self._at += 1
        return size

    def _argument(self) -> Size:
        r"""The argument of a command: a group, or one digit or token (`\frac12`)."""
        token = self._next()
        if token.isascii() and token.isdigit() and len(token) > 1:
            self._tokens[self._at] = token[1:]
            return _number(token[0])
        return self._deeper(self._atom) if token not in _AFTER_ATOM else _UNKNOWN

    def _deeper(self, read: Callable[[], Size]) -> Size:
        r"""Read something one level deeper; commands nest without brackets (`\frac\frac…`, `2**2**…`)."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise _TooLarge("nests commands too deep to be read")
        size = read()
        self._depth -= 1
        return size

    def _root(self) -> Size:
        if self._next() == "[":
            self._argument()
        size = self._argument()
        if size.value is None or size.value < 0:
            return _UNKNOWN
        return size._replace(value=math.sqrt(size.value))

    def _operator(self) -> Size:
        r"""`\operatorname{name}` with its argument: some names build matrices."""
        name = ""
        if self._next() == "{":
            self._at += 1
            while (token := self._next()) and token not in _CLOSE:
                name += self._take()
            self._at += 1
        if name in _BUILT and self._next() in _OPEN:
            self._at += 1
            while (token := self._next()) and token not in _CLOSE:
                side = self._sum() if token not in _BETWEEN else _UNKNOWN
                if token in _BETWEEN:
                    self._at += 1
                if side.exact and abs(side.value or 0.0) > WIDEST:
                    raise _TooLarge("builds a matrix too large to be compared")
            self._at += 1
        return _UNKNOWN


def _number(token: str) -> Size:
    value = float(token)  # infinite from 309 digits on
    digits = math.log10(value) if 1 < value < math.inf else float(len(token) if value > 1 else 0)
    return Size(digits, value, exact="." not in token)


def _add(a: Size, b: Size, *, minus: bool) -> Size:
    value = None if a.value is None or b.value is None else a.value - b.value if minus else a.value + b.value
    return _checked(Size(a.digits + b.digits + math.log10(2), _known(value), a.exact and b.exact))


def _multiply(a: Size, b: Size, *, over: bool) -> Size:
    value = None
    if a.value is not None and b.value is not None:
        value = a.value * b.value if not over else a.value / b.value if b.value else None
    # Numbers beside symbols are still multiplied with each other.
    return _checked(Size(a.digits + b.digits, _known(value), a.exact and b.exact and value is not None))


def _power(base: Size, exponent: Size) -> Size:
    if base.value is None or exponent.value is None:
        return Size(base.digits + exponent.digits, None, False)
    try:
        value: float | None = abs(base.value) ** exponent.value
    except OverflowError:
        value = math.inf
    except ZeroDivisionError:
        value = None
    if not (base.exact and exponent.exact):
        return Size(base.digits + exponent.digits, _known(value), False)
    if not base.digits:  # 0 and 1
        return base
    return _checked(Size(base.digits * max(abs(exponent.value), 1.0), _known(value), True))


def _factorial(of: Size) -> Size:
    if of.value is None or not of.exact or of.value < 0:
        return _UNKNOWN
    try:
        digits = math.lgamma(of.value + 1) / math.log(10)
    except OverflowError:
        digits = math.inf
    return _checked(Size(max(digits, 0.0), 10**digits if digits < 300 else math.inf, True))


def _choose(n: Size, k: Size) -> Size:
    if n.value is None or k.value is None or not (n.exact and k.exact):
        return _UNKNOWN
    factors = min(k.value, n.value - k.value) if n.value < math.inf else k.value
    if factors > LONGEST_PRODUCT:
        raise _TooLarge("multiplies too many factors")
    digits = max(factors, 1.0) * n.digits
    return _checked(Size(digits, 10**digits if digits < 300 else math.inf, True))


def _checked(size: Size) -> Size:
    if size.digits > LARGEST:
        raise _TooLarge(f"holds a number of more than {LARGEST} digits")
    return size


def _known(value: float | None) -> float | None:
    """A value; None if infinities cancelled out."""
    return None if value is None or math.isnan(value) else value
