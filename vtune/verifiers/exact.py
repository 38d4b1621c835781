"""Short answers: is it the same string?"""

import unicodedata
from collections.abc import Callable

from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import VERIFIERS
from vtune.verifiers.typesetting import said_by
from vtune.verifiers.verifier import Case, Verifier, answered, given_answer, no_answer, options, quote, where

NAME = "exact"


def verify_exact(reply: str, sample: Sample) -> Verdict:
    r"""Score 1 where the answer equals the ground truth or one of its aliases, else 0.

    Both sides are normalised (see `normalise`), and how they are set does not count (see `said_by`):
    `\text{light blue}` is `light blue`. `verifier_parm` may hold `aliases`, a list of
    further spellings that are right as well, and `answer_in`.

    Raises:
        DataError: As `check_exact` does.
    """
    right = _accepted(sample)
    given = given_answer(reply, sample)
    if given is None:
        return no_answer(sample)
    return answered(
        float(_plain(given) in right), f"answered {quote(given)}, truth {quote(sample.ground_truth)}"
    )


def check_exact(sample: Sample) -> None:
    """Check that the ground truth can be matched.

    Raises:
        DataError: If the ground truth or an alias is empty once normalised, `aliases` is not a list
            of strings, or `verifier_parm` holds another key.
    """
    _accepted(sample)


def exact_form(sample: Sample) -> str:
    """What an answer looks like."""
    return "the answer alone, in as few words as it needs"


def normalise(text: str) -> str:
    """Case folded, accents composed, runs of white space made one space, one trailing full stop dropped."""
    # A file may spell é as one character, and a model as two that look the same.
    plain = " ".join(unicodedata.normalize("NFC", text.casefold()).split())
    return plain.removesuffix("." if plain.endswith(".") else "。").rstrip()


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
    return normalise(said_by(text))


def _accepted(sample: Sample) -> frozenset[str]:
    options(sample, {"aliases", "answer_in"})
    return accepted(sample, _plain)


VERIFIERS.add(
    NAME,
    Verifier(
        verify_exact,
        check_exact,
        exact_form,
        Case(gold="North Street", broken_gold=" . ", wrong="South Street"),
    ),
)
