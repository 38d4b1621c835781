"""Short answers: is it the same string?"""

import re
import string
import unicodedata
from collections.abc import Callable, Mapping
from types import MappingProxyType

from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import VERIFIERS
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
    where,
)

NAME = "exact"

MATCH, SQUAD = "match", "squad"
"""The option that selects what is ignored, and its value for SQuAD's exact match."""

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def verify_exact(reply: str, sample: Sample) -> Verdict:
    r"""Score 1 where the answer equals the ground truth or one of its aliases, else 0.

    Both sides are normalised (see `normalise`), and typesetting (see `said_by`) and spaces around
    `=` are ignored: `\text{light blue}` is `light blue`, `x = 2` is `x=2`. `verifier_parm` may
    contain `aliases`, a list of other correct spellings, `answer_in`, and `match`: `text` (the
    default) as above, or
    `squad`, which also ignores (ASCII) punctuation and the articles a, an, the (see `squad`).
    As published, that includes signs and decimal points (`1.5` is `15`, `C++` is `C`), non-ASCII
    punctuation counts, and case is folded by `lower`.

    Raises:
        DataError: As for `check_exact`.
    """
    right = _accepted(sample)
    given = given_answer(reply, sample)
    if given is None:
        return no_answer(sample)
    return answered(
        float(_form(sample)(given) in right), f"answered {quote(given)}, truth {quote(sample.ground_truth)}"
    )


def check_exact(sample: Sample) -> None:
    """Check that the ground truth can be matched.

    Raises:
        DataError: If the ground truth or an alias is empty after normalisation, `aliases` is not a list
            of strings, `match` is unknown, or `verifier_parm` contains another key.
    """
    _accepted(sample)


def exact_form(sample: Sample) -> str:
    """What an answer looks like."""
    return "the answer alone, in as few words as it needs"


def normalise(text: str) -> str:
    """Fold case, compose accents, collapse whitespace, and drop one trailing full stop."""
    # A file may write é as one character, and a model as two that look the same.
    plain = " ".join(unicodedata.normalize("NFC", text.casefold()).split())
    return plain.removesuffix("." if plain.endswith(".") else "。").rstrip()


def squad(text: str) -> str:
    """SQuAD's form of an answer: no case, punctuation, articles or extra whitespace; a lone "A" stays."""
    bare = text.lower().translate(_NO_PUNCTUATION)
    return " ".join((bare if bare.strip() == "a" else _ARTICLE.sub(" ", bare)).split())


def accepted(sample: Sample, plain: Callable[[str], str]) -> frozenset[str]:
    """The ground truth and the `aliases` in verifier_parm, each made `plain`.

    Raises:
        DataError: If one of them is empty, or `aliases` is not a list of strings.
    """
    aliases = sample.verifier_parm.get("aliases") or []
    if isinstance(aliases, str) or not all(isinstance(alias, str) for alias in aliases):
        raise DataError("`aliases` is not a list of strings", where=where(sample), fix='write ["one", "1"]')
    found = frozenset(plain(text) for text in (sample.ground_truth, *aliases))
    if "" in found:
        raise DataError(
            "the ground truth, or an alias, is empty", where=where(sample), fix="write the expected answer"
        )
    return found


def _plain(text: str) -> str:
    return normalise(said_by(text)).replace(" =", "=").replace("= ", "=")


def _squad(text: str) -> str:
    """SQuAD's form; our own for an answer without other words, so that "The The" or "?" can be right."""
    return squad(unicodedata.normalize("NFC", said_by(text))) or _plain(text)


_FORMS: Mapping[str, Callable[[str], str]] = MappingProxyType({"text": _plain, SQUAD: _squad})


def _form(sample: Sample) -> Callable[[str], str]:
    """The function that turns a text into the form that a sample compares."""
    return _FORMS[one_of(sample, MATCH, _FORMS, default="text")]


def _accepted(sample: Sample) -> frozenset[str]:
    options(sample, {"aliases", "answer_in", MATCH})
    return accepted(sample, _form(sample))


VERIFIERS.add(
    NAME,
    Verifier(
        verify_exact,
        check_exact,
        exact_form,
        Case(gold="North Street", broken_gold=" . ", wrong="South Street"),
    ),
)
