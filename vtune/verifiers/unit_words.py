r"""Words behind a single number: `7 cups`, `7\text{ cups}`. They are its unit unless they change it.

math-verify knows a few dozen such words and drops them. Any other is a product of letters to it, and whatever
stands in `\text{}` is dropped, `million` too.
"""

import re

from vtune.verifiers.typesetting import said_by
from vtune.verifiers.units import contradict, unit

MATHS_NAMES = (
    r"(?:arc|a|ar)?(?:sin|cos|tan|cot|sec|csc)h?[xyz]?|(?:sqrt|log|ln|lg|exp)[xyz]?|abs|arg|ceil|deg|det|dim|"
    r"floor|frac|gcd|inf|infinity|infty|lcm|lim|max|min|mod|prod|rank|sgn|sign|sum|sup|"
    r"(?:var)?(?:alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|omicron|pi|rho|"
    r"sigma|tau|upsilon|phi|chi|psi|omega)"
)
"""Of functions, Greek letters and infinity."""

_COUNT = (
    r"zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen|"
    r"(?:twen|thir|for|fif|six|seven|eigh|nine)ty"
)
_ORDINAL = (
    r"(?:third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|[a-z]+teenth|[a-z]+tieth|"
    r"(?:hundred|thousand|million|billion)th)s?"
)
_CHANGING = re.compile(
    rf"{_COUNT}|{_ORDINAL}|(?:hundred|thousand|million|billion|trillion|dozen|lakh|crore)s?|half|halves|"
    r"squared|cubed|factorial|or|plus|minus"
)
"""Words that make another number of the one before them, or two of it."""
_NO_UNIT = re.compile(
    rf"{_CHANGING.pattern}|{MATHS_NAMES}|quarters?|score|gross|grand|mil|mln|mrd|double|doubled|triple|tripled|"
    r"twice|thrice|root|power|point|negative|positive|times|over|under|above|below|by|divided|multiplied|modulo|"
    r"base|remainder|per|percents?|percentage|pct|cent|permille|degrees?|and|nor|not|no|but|to|than|of|more|less|"
    r"fewer|least|most|about|around|approximately|roughly|almost|nearly|maybe|perhaps|probably|possibly|if|is|"
    r"are|was|were|equals?|wrong|false|incorrect|am|pm|"
    r"oder|und|bis|hundert|tausend|dutzend|mille|ciento|docena|douzaine"
)
"""Those, and words that may, also in other languages: what they say is left to math-verify."""
_NUMBER = (
    r"[-+−–]?\s*[$€£₹¥]?\s*"
    r"(?:(?:[0-9]+\s+)?[0-9]+/[0-9]+|[1-9][0-9]{0,2}(?:\s[0-9]{3})+(?:\.[0-9]+)?|\\[dt]?frac\{[0-9]+\}\{[0-9]+\}|[0-9]*[¼-¾⅐-⅞]"
    r"|[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
)
_COUNTED = re.compile(rf"({_NUMBER})(\s*)(\S.*)")
_WORDS = re.compile(r"[A-Za-z]{3,}\.?(?:[ -][A-Za-z]{2,}\.?)?|(?:sq|cu)\.? [A-Za-z]{2,}")
"""One or two. A word of two letters may be a product of them, and one of another script a number."""
_LETTERS = r"[A-Za-zµμΩ]+(?:\^?\{?[23²³]\}?)?"
_KNOWN = re.compile(rf"(?!.\Z)(?:(?:square|sq\.?|cubic|cu\.?)\s?)?{_LETTERS}(?:\s?(?:/|per)\s?{_LETTERS})?")
"""What may be a unit that `units` knows; a single letter is left to math-verify."""
_AMBIGUOUS = ("%", "°", "°c", "°f", "am", "pm")
"""Units that may move the value: they are left to math-verify, too."""
_INLINE = re.compile(r"(?:\$([^$]+)\$|\\\((.+?)\\\))(?=\s)")
"""A number in math mode, with its unit behind: `$7$ cups`."""
_SPACE = re.compile(r"\\[ ,:;!]|~")


def without_unit(text: str) -> tuple[str, str] | None:
    """(number, its unit) of an answer that is one number with a unit behind it; None of any other.

    A unit is one that `units` knows, or one or two plain words.
    """
    found = _counted(text)
    if found is None:
        return None
    number, space, behind = found
    known = unit(f"1 {behind}") if _KNOWN.fullmatch(behind) else None
    if known is not None:
        return None if known[0][0] in _AMBIGUOUS else (number, behind)
    words = re.findall("[a-z]+", behind.casefold())
    plain = space and _WORDS.fullmatch(behind) and words[-1] not in ("square", "cube")
    return (number, behind) if plain and not any(map(_NO_UNIT.fullmatch, words)) else None


def changed(text: str, truth: str) -> bool:
    """Whether words behind the only number of an answer make another of it, and the truth has none such."""
    found = _counted(text)
    said = set() if found is None else _changing(found[2])
    return not said <= _changing(said_by(truth))


def same_unit(one: str, other: str) -> bool:
    """Whether two units (see `without_unit`) are one: by `units`, or the same words in singular or plural."""
    known = unit(f"1 {one}"), unit(f"1 {other}")
    if None not in known:
        return not contradict(f"1 {one}", f"1 {other}")
    return known == (None, None) and _singular(one) == _singular(other)


def _counted(text: str) -> tuple[str, str, str] | None:
    """(number, space, what stands behind it)."""
    plain = _SPACE.sub(" ", said_by(_SPACE.sub(" ", text.strip().removesuffix(".")))).strip()
    if (inline := _INLINE.match(plain)) is not None:
        plain = f"{inline[1] or inline[2]}{plain[inline.end() :]}"
    found = _COUNTED.fullmatch(plain)
    return None if found is None else (found[1], found[2], found[3])


def _changing(text: str) -> set[str]:
    return {word for word in re.findall("[a-z]+", text.casefold()) if _CHANGING.fullmatch(word)}


def _singular(words: str) -> list[str]:
    return [word.removesuffix("s").removesuffix("e") for word in re.findall("[a-z]+", words.casefold())]
