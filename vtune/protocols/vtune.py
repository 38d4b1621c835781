"""Our own protocol: the suite sets how multiple choice is asked; each sample's verifier reads the answer."""

from vtune.errors import DataError
from vtune.protocols import PROTOCOLS
from vtune.protocols.protocol import Grade, Protocol, Rule
from vtune.schema.sample import Sample
from vtune.verifiers import verdict_on, verifier_of
from vtune.verifiers.verifier import given_answer, where

NAME = "vtune"

TEMPLATE = (
    "Question: {question}\nOptions:\n{options}\nPlease select the correct answer from the options above."
)
"""Wording of multiple choice if a suite sets none: VLMEvalKit's prompt, as used in CodeV's evaluation."""
LETTER_RULE = "loose"
"""VLMEvalKit's rule: a letter, then an option's text."""


def grade(reply: str, sample: Sample) -> Grade:
    """The verdict of the sample's verifier.

    Raises:
        DataError: If it asks a model, or reads an environment's outcome: the reply alone does not suffice.
    """
    verifier = verifier_of(sample)
    if verifier.asks_judge or verifier.reads_outcome:
        raise DataError(
            f"verifier `{sample.verifier}` reads more than the reply",
            where=where(sample),
            fix="evaluate again, or name a protocol that has a rule for the question",
        )
    verdict = verdict_on(reply, sample)
    read = None if verdict.parts.get("unreadable", 0.0) > 0 else given_answer(reply, sample) or ""
    return Grade(score=verdict.score, read=read, fallback=verdict.score)


PROTOCOLS.add(
    NAME,
    Protocol(
        about="Ours: the verifier of each sample, nothing picked at random, no model",
        other=Rule(ask=None, grade=grade, by="verifier", scorer=None, reads="reply"),
    ),
)
