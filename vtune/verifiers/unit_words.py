r"""Words behind a single number: `7 cups`, `7\text{ cups}`. They are its unit unless they change it.

Only an answer to a ground truth without letters may add them; otherwise both sides need them. math-verify
knows a few dozen such words and drops them. It reads any other as a product of letters, and drops everything
in `\text{}`, even `million`.
"""

import re
import unicodedata

from vtune.verifiers.typesetting import said_by
from vtune.verifiers.units import contradict, unit

MATHS_NAMES = (
    r"(?:arc|a|ar)?(?:sin|cos|tan|cot|sec|csc)h?[xyz]?|(?:sqrt|log|ln|lg|exp)[xyz]?|abs|arg|ceil|deg|det|dim|"
    r"floor|frac|gcd|inf|infinity|infty|lcm|lim|max|min|mod|prod|rank|sgn|sign|sum|sup|"
    r"(?:var)?(?:alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|omicron|pi|rho|"
    r"sigma|tau|upsilon|phi|chi|psi|omega)"
)
"""Names of functions, Greek letters and infinity."""

_COUNT = (
    r"(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|"
    r"(?:thir|four|fif|six|seven|eigh|nine)teen)s?|(?:twen|thir|for|fif|six|seven|eigh|nine)t(?:y|ies)"
)
_ORDINAL = (
    r"(?:third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|[a-z]+teenth|[a-z]+tieth|"
    r"(?:hundred|thousand)th)s?"
)
_MULTIPLE = (
    r"(?:hundred|thousand|dozen|lakh|crore|myriad|score)s?|grand|[a-z]*illi?on(?!air)[a-z]*|"
    r"(?:[mtq][a-z]*illiard|billiarde)[a-z]*|[a-z]+fold|(?!coupl)[a-z]+upl(?:e|ed|es)|"
    r"(?:doubl|tripl)(?:e|ed|es)|twice|thrice|half|halfs|halves|squared|cubed|factorial|basis|"
    r"k|mio|mn|mln|bn|bln|tn|trn|mrd|mld|tsd"
)
_ABROAD = """
null eins zwei drei vier funf sechs sieben acht neun zehn elf zwolf zwanzig hundert tausend
hunderte tausende dutzend nein nicht kein keine nie niemals falsch
deux trois quatre cinq sept huit neuf dix onze douze vingt mille millier milliers douzaine douzaines
non pas jamais aucun aucune faux
cero uno dos tres cuatro cinco seis siete ocho nueve diez doce veinte cien ciento cientos mil docena docenas
nunca jamas ningun ninguno falso
due tre quattro cinque sei sette otto nove dieci dodici venti cento mila milione milioni miliardo
miliardi dozzina mai nessuno nessuna falsa
um dois quatro sete oito dez doze vinte cem milhar milhares milhao milhoes bilhao bilhoes duzia duzias
nao nenhum nenhuma
een twee drie vijf zes zeven negen tien twaalf twintig honderd duizend miljoen miljoenen miljard
miljarden dozijn nee niet geen nooit fout onjuist
"""
"""Numbers and denials in German, French, Spanish, Italian, Portuguese and Dutch, without accents.

Policies answer in these languages, too, and an unlisted word counts as a unit. `cent` and `miles` are units.
"""
_DENIAL = "no|not|nope|nah|never|none|neither|nor|wrong|false|untrue|incorrect|invalid"
_CHANGING = re.compile(
    rf"{_COUNT}|{_ORDINAL}|{_MULTIPLE}|{_DENIAL}|or|plus|minus|"
    rf"{'|'.join(_ABROAD.split())}"
)
"""Words that change the number before them, add another one, or deny it."""
_NO_UNIT = re.compile(
    rf"{_CHANGING.pattern}|{MATHS_NAMES}|quarters?|gross|root|power|point|negative|positive|times|over|under|above|"
    r"below|by|divided|multiplied|modulo|base|remainder|per|percents?|percentage|pct|cent|permille|degrees?|and|but|"
    r"to|than|of|more|less|fewer|least|most|about|around|approximately|roughly|almost|nearly|maybe|perhaps|probably|"
    r"possibly|if|is|are|was|were|equals?|am|pm|oder|und"
)
"""The same, and words that might: what they mean is left to math-verify."""
_NUMBER = (
    r"[-+−–]?\s*[$€£₹¥]?\s*"
    r"(?:(?:[0-9]+\s+)?[0-9]+/[0-9]+|[1-9][0-9]{0,2}(?:\s[0-9]{3})+(?:\.[0-9]+)?|\\[dt]?frac\{[0-9]+\}\{[0-9]+\}|[0-9]*[¼-¾⅐-⅞]"
    r"|[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
)
_COUNTED = re.compile(rf"({_NUMBER})(\s*)(\S.*)")
_LETTER = r"[A-Za-zÀ-ÖØ-öø-ɏ]"
_WORDS = re.compile(rf"{_LETTER}{{3,}}\.?(?:[ -]{_LETTER}{{2,}}\.?)?|(?:sq|cu)\.? [A-Za-z]{{2,}}")
"""One or two, in Latin letters. A two-letter word may be a product, and one in another script a number."""
_WORD = re.compile(rf"{_LETTER}+")
_PHRASE = re.compile(rf"{_LETTER}+\.?(?:[ -]+{_LETTER}+\.?)*")
_LETTERS = r"[A-Za-zµμΩ]+(?:\^?\{?[23²³]\}?)?"
_KNOWN = re.compile(rf"(?!.\Z)(?:(?:square|sq\.?|cubic|cu\.?)\s?)?{_LETTERS}(?:\s?(?:/|per)\s?{_LETTERS})?")
"""Candidates for a unit that `units` knows; a single letter is left to math-verify."""
_AMBIGUOUS = ("%", "°", "°c", "°f", "am", "pm")
"""Units that may change the value: they are left to math-verify, too."""
_INLINE = re.compile(r"(?:\$([^$]+)\$|\\\((.+?)\\\))(?=\s)")
"""A number in math mode, followed by its unit: `$7$ cups`."""
_NAMED = re.compile(r"\s*[A-Za-z]\s*=\s*")
_SPACE = re.compile(r"(?:\\[ ,:;!]|~|\s)+")
_END = re.compile(rf"(?:(?<={_LETTER})|(?<=[²³])|(?<=\^[23]))[.!]+\Z")
_COMMAND = re.compile(r"\\[A-Za-z]+")


def without_unit(text: str) -> tuple[str, str] | None:
    """(number, its unit) if the answer is one number followed by a unit; else None.

    A unit is one that `units` knows, or one or two plain words.
    """
    found = _counted(text)
    if found is None:
        return None
    number, space, behind = found
    if _KNOWN.fullmatch(behind) and (known := unit(f"1 {behind}")) is not None:
        return None if known[0][0] in _AMBIGUOUS else (number, behind)
    words = _words(behind)
    plain = space and _WORDS.fullmatch(behind) and words[-1] not in ("square", "cube")
    return (number, behind) if plain and not any(map(_is_no_unit, words)) else None


def numbers(text: str, truth: str) -> tuple[str, str] | None:
    r"""The numbers of an answer and a ground truth if at least one has a unit or words; else None.

    Both may have the same (`7 cups`, `7\text{ cups}`). If only one has a unit, it must be a known one, except
    that an answer may add words to a truth without letters and units.
    """
    one, other = _counted(text), _counted(truth)
    if one and other and _words(one[2]) == _words(other[2]):
        return (one[0], other[0]) if _PHRASE.fullmatch(one[2]) and _PHRASE.fullmatch(other[2]) else None
    given, right = without_unit(text), without_unit(truth)
    if given and right:
        return (given[0], right[0]) if _same_unit(given[1], right[1]) else None
    if given and _is_bare(truth) and (unit(truth) is None or unit(f"1 {given[1]}")):
        return given[0], truth
    if right and _is_bare(text) and unit(f"1 {right[1]}"):
        return text, right[0]
    return None


def changed(text: str, truth: str) -> bool:
    """Whether words after the only number of an answer, or of the truth, change it, while the other has none.

    In the truth only the word right after the number counts: `1/2 of one cake` is 1/2.
    """
    one, other = _changing(text), _changing(truth)
    found = _counted(truth)
    near = _words(found[2])[:1] if found else []
    if one and not set(one) <= set(_words(said_by(truth))):
        return True
    return bool(other) and near == other[:1] and one != other


def _is_bare(text: str) -> bool:
    return not any(map(str.isalpha, _COMMAND.sub("", text)))


def _is_no_unit(word: str) -> bool:
    """Whether a word cannot be a unit; without a vowel it may be a product of letters (`xyz`)."""
    if _NO_UNIT.fullmatch(word):
        return True
    return word != "sq" and not re.search("[aeiou]", word) and unit(f"1 {word}") is None


def _same_unit(one: str, other: str) -> bool:
    """Whether two units (see `without_unit`) are the same: by `units`, or as words in singular or plural."""
    known = unit(f"1 {one}"), unit(f"1 {other}")
    if None not in known:
        return not contradict(f"1 {one}", f"1 {other}")
    return known == (None, None) and _singular(one) == _singular(other)


def _counted(text: str) -> tuple[str, str, str] | None:
    """(number, space, the text after it)."""
    plain = said_by(_SPACE.sub(" ", unicodedata.normalize("NFC", text)).strip())
    plain = _NAMED.sub("", _END.sub("", _SPACE.sub(" ", plain).strip()), count=1)
    if (inline := _INLINE.match(plain)) is not None:
        plain = f"{inline[1] or inline[2]}{plain[inline.end() :]}"
    found = _COUNTED.fullmatch(plain)
    return None if found is None else (found[1], found[2], found[3])


def _changing(text: str) -> list[str]:
    """The words after the only number that change it; none if another number follows."""
    found = _counted(text)
    if found is None or any(map(str.isdigit, found[2])):
        return []
    return [word for word in _words(found[2]) if _CHANGING.fullmatch(word)]


def _words(text: str) -> list[str]:
    """The words in lower case without accents, except that K (kelvin) differs from k (a thousand)."""
    words = _WORD.findall(unicodedata.normalize("NFC", text))
    return [word if word == "K" else _plain(word) for word in words]


def _plain(word: str) -> str:
    return "".join(letter for letter in unicodedata.normalize("NFD", word.casefold()) if letter.isalpha())


def _singular(words: str) -> list[str]:
    return [word.removesuffix("s").removesuffix("e") if len(word) > 3 else word for word in _words(words)]
