"""Short answers: is it the same string?"""

from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import tags
from vtune.verifiers.verifier import options, quote, where


def verify_exact(reply: str, sample: Sample) -> Verdict:
    """Score 1 where the answer equals the ground truth or one of its aliases, else 0.

    Both sides are normalised (see `normalise`). `verifier_parm` may hold `aliases`, a list of
    further spellings that are right as well.

    Raises:
        DataError: As `check_exact` does.
    """
    accepted = _accepted(sample)
    given = tags.answer(reply)
    if given is None:
        return Verdict(0.0, "no single <answer> at the end")
    return Verdict(
        float(normalise(given) in accepted), f"answered {quote(given)}, truth {quote(sample.ground_truth)}"
    )


def check_exact(sample: Sample) -> None:
    """See that the ground truth can be matched.

    Raises:
        DataError: If the ground truth or an alias is empty once normalised, `aliases` is not a list
            of strings, or `verifier_parm` holds another key.
    """
    _accepted(sample)


def normalise(text: str) -> str:
    """Case folded, runs of white space made one space, one trailing period dropped."""
    return " ".join(text.casefold().split()).removesuffix(".").rstrip()


def _accepted(sample: Sample) -> frozenset[str]:
    aliases = options(sample, {"aliases"}).get("aliases", [])
    if isinstance(aliases, str) or not all(isinstance(alias, str) for alias in aliases):
        raise DataError("`aliases` is not a list of strings", where=where(sample), fix='write ["one", "1"]')
    accepted = frozenset(normalise(text) for text in (sample.ground_truth, *aliases))
    if "" in accepted:
        raise DataError(
            "the ground truth, or an alias, is empty", where=where(sample), fix="write the expected answer"
        )
    return accepted
