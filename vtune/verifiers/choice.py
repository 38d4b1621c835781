"""Multiple choice: is the chosen option the right one?"""

import re
import unicodedata
from collections.abc import Sequence
from string import ascii_uppercase

from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import VERIFIERS
from vtune.verifiers.exact import normalise
from vtune.verifiers.typesetting import said_by
from vtune.verifiers.verifier import (
    Case,
    Verifier,
    answered,
    given_answer,
    no_answer,
    one_of,
    options,
    quote,
    unreadable,
    where,
)

NAME = "choice"

LETTER_RULES = ("strict", "loose")

_LETTER = re.compile(r"\(?([A-Za-z])\)?\Z|\(([A-Za-z])\)\s*(.*)|([A-Za-z])[.):、。]\s*(.*)", re.DOTALL)
"""`B`, `(B)`, `(B) text`, `B.`, `B) text`, `B: text`, `B、text`."""

_QUOTED = re.compile(r"""(["'`])((?:(?!\1).)+)\1\.?""", re.DOTALL)
_BESIDE = re.compile(
    r"(?:\(([A-Za-z])\)|([A-Za-z]))(?:\s*\(([^()]+)\)|(\s*[-–—,/]\s*|\s+)(.+))\.?|(.+)\s\(([A-Za-z])\)\.?",
    re.DOTALL,
)
"""`B (blue)`, `B - blue`, `B, blue`, `B blue`, `blue (B)`."""
_DASH = re.compile(r"\s+[-–—]\s+")
_WORDS = re.compile(r"(?!.*\b(?:or|not)\b)(?:an?\s)?[^\W\d_]{2,}[\w ,'’-]*", re.DOTALL | re.IGNORECASE)
"""What may follow a letter if the options are not known; otherwise `x - 2` would be one."""

_FULL_WIDTH = {
    ord(full): ord(full) - 0xFEE0 for full in f"（）．：{''.join(map(chr, range(0xFF21, 0xFF5B)))}"
}
"""Letters and punctuation in full width, as used in Chinese."""

_LONE_LETTER = re.compile(r"(?<![^\W_])(?!a\s+\w)[A-Za-z](?![^\W_]|['’])")
"""A single letter, except the article `a`: among the words after a letter it suggests hedging."""

_MARKS = str.maketrans(dict.fromkeys('.()[],:;!?*#{}`$_"“”。、「」『』《》【】', " "))
_IDEOGRAPH = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
"""Counts as a word: there are no spaces between them, so 答案是B is four words, not one."""
_LAST_WORDS = 4
_ANSWER_IS = re.compile(r"answer\s+is\s+\**(?!(?-i:a)\s+[*\"'“‘]*\w)([A-Z])(?![^\W_]|['’])", re.IGNORECASE)
"""Not the first letter of a word, nor the article `a` before one: upstream takes `blue` for B."""


def verify_choice(reply: str, sample: Sample) -> Verdict:
    r"""Score 1 where the answer names the right option and no other, else 0.

    An option may be named by its letter (`B`, `B.`, `(B)`), by its exact text, or by both (`B - blue`; see
    `strictly_chosen`); the case of letters does not matter, nor does typesetting (`\text{B}`, `**B**`; see
    `said_by`). If a text can be read both ways (an option whose text is `A`), the letter counts. A
    letter beside the text of another option, or a second letter, is hedging.

    `verifier_parm` may contain `answer_in` and `letter_rule`: `strict` (the default) as above, or `loose`, by
    which V* and HR-Bench are scored elsewhere (see `loosely_chosen`).

    Raises:
        DataError: As for `check_choice`.
    """
    truth, rule = _truth(sample)
    given = given_answer(reply, sample)
    if given is None:
        return no_answer(sample)
    read = loosely_chosen if rule == "loose" else strictly_chosen
    chosen = read(given, sample.choices)
    if chosen is None:
        return unreadable(f"{quote(given)} names no single option")
    return answered(float(chosen == truth), f"chose {chosen}, truth {truth}")


def check_choice(sample: Sample) -> None:
    """Check that the ground truth names one option.

    Raises:
        DataError: If it is neither the letter of an option nor the text of exactly one, or if
            an option of `verifier_parm` is unknown, or needs `choices` that are missing.
    """
    _truth(sample)


def choice_form(sample: Sample) -> str:
    """What an answer looks like."""
    return "the letter of one option"


def lettered(choices: Sequence[str]) -> dict[str, str]:
    """Letter -> option. An empty text is a missing option: the later letters do not move up.

    HR-Bench has such questions: its rotations move the empty option among the others.
    """
    return {letter: choice for letter, choice in zip(ascii_uppercase, choices, strict=False) if choice}


def chosen_letter(text: str, choices: tuple[str, ...]) -> str | None:
    """The letter of the one option that a text names, or None.

    Args:
        text: An answer, without tags.
        choices: The options in order; empty if they are only in the prompt. Then any letter is an
            option, and the words after it are accepted unless they contain another single letter.
    """
    whole, text = text, said_by(text)
    shape = _LETTER.match(text.translate(_FULL_WIDTH))
    if shape is not None:
        letter = next(group for group in (shape[1], shape[2], shape[4]) if group is not None).upper()
        begin = max(shape.start(3), shape.start(5))
        if _names(letter, text[begin:] if begin >= 0 else "", choices):
            return letter
    same = [letter for letter, choice in lettered(choices).items() if normalise(choice) == normalise(whole)]
    if not same:  # if options differ only in typesetting, such as 5 and $5$, the one written in the same way
        same = [letter for letter, choice in lettered(choices).items() if _plain(choice) == normalise(text)]
    return same[0] if text and len(same) == 1 else None


def strictly_chosen(text: str, choices: tuple[str, ...]) -> str | None:
    """The letter named by a complete answer, or None: `chosen_letter`, also in quotation marks (`"B"`).

    A letter may be accompanied by its option's text, with any separator (`_BESIDE`). If the options are
    not known, only a dash or parentheses can distinguish `B - blue` from words such as `A blue cup`.

    Args:
        text: An answer, without tags.
        choices: As for `chosen_letter`.
    """
    if (chosen := chosen_letter(text, choices)) is not None:
        return chosen
    text = said_by(text)
    if (quoted := _QUOTED.fullmatch(text)) is not None:
        text = quoted[2].strip()
        if (chosen := chosen_letter(text, choices)) is not None:
            return chosen
    shape = _BESIDE.fullmatch(text.translate(_FULL_WIDTH))
    if shape is None:
        return None
    letter = (shape[1] or shape[2] or shape[7]).upper()
    rest = (shape[3] or shape[5] or shape[6]).strip()
    if len(rest.strip(" .")) == 1 and rest[0].isalpha():  # either of two letters may be meant
        return None
    if choices:
        return letter if _names(letter, rest, choices) else None
    clear = shape[3] or (shape[4] and _DASH.fullmatch(shape[4]))
    return letter if clear and _WORDS.fullmatch(rest) and _names(letter, rest, choices) else None


def loosely_chosen(text: str, choices: tuple[str, ...]) -> str | None:
    """The letter found in a text of any form, or None: VLMEvalKit's rules, except that words are not letters.

    First, a text that is just a letter or an option (`chosen_letter`); then the only option letter among the
    words, if its first occurrence is among the last four words, and not only inside the text of an option
    (点B); then the letter in "answer is B"; then the only option whose text is contained, if the text is at
    most twice as long as all options together. VLMEvalKit then asks a model or guesses; here the answer is
    unreadable.

    Args:
        text: An answer, or a whole reply.
        choices: The options in order; letters beyond them, and those of missing options, are words.
    """
    if (exact := chosen_letter(text, choices)) is not None:
        return exact
    letters = lettered(choices)
    inside = [letter for letter, choice in letters.items() if choice.lower() in text.lower()]
    words = _words(text)
    named = {word for word in words if len(word) == 1 and word in letters}
    if len(named) == 1:
        (letter,) = named
        if len(inside) == 1 and words.count(letter) == 1 and letter in _words(letters[inside[0]])[1:]:
            return inside[0]
        if words.index(letter) >= len(words) - _LAST_WORDS:
            return letter
    if not named and (said := _ANSWER_IS.search(text)) and said[1].upper() in letters:
        return said[1].upper()
    if len(text) > 2 * sum(map(len, choices)):
        return None
    return inside[0] if len(inside) == 1 else None


def _words(text: str) -> list[str]:
    """The words of a text, without surrounding punctuation; full-width letters and marks are converted."""
    return _IDEOGRAPH.sub(r" \g<0> ", unicodedata.normalize("NFKC", text)).translate(_MARKS).split()


def _names(letter: str, rest: str, choices: tuple[str, ...]) -> bool:
    if not choices:
        return not _LONE_LETTER.search(rest)
    known = lettered(choices)
    return letter in known and _plain(rest) in ("", _plain(known[letter]))


def _plain(choice: str) -> str:
    return normalise(said_by(choice))


def _truth(sample: Sample) -> tuple[str, str]:
    """(right letter, letter rule)."""
    options(sample, {"answer_in", "letter_rule"})
    rule = one_of(sample, "letter_rule", LETTER_RULES, default="strict")
    if rule == "loose" and not sample.choices:
        raise DataError(
            "`letter_rule` loose has no choices to look for", where=where(sample), fix="fill in `choices`"
        )
    if len(sample.choices) > len(ascii_uppercase):
        raise DataError(
            f"{len(sample.choices)} choices have no letters", where=where(sample), fix="keep 26 at most"
        )
    letter = chosen_letter(sample.ground_truth, sample.choices)
    if letter is None:
        listed = ", ".join(sample.choices) or "a letter, A to Z"
        raise DataError(
            f"the ground truth {sample.ground_truth!r} names no single option",
            where=where(sample),
            fix=f"write the letter, or the text of one option: {listed}",
        )
    return letter, rule


VERIFIERS.add(
    NAME,
    Verifier(
        verify_choice,
        check_choice,
        choice_form,
        Case(gold="B", broken_gold="E", wrong="C", choices=("red", "blue", "green")),
    ),
)
