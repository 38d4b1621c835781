"""Which verifiers pay for a reply that lists answers."""

from typing import Any

import pytest

from vtune.schema.message import Message
from vtune.schema.sample import Sample
from vtune.verifiers.listing import pays_for_lists


def source(verifier: str, *truths: str, **parm: Any) -> list[Sample]:
    return [
        Sample(
            id=f"quiz/{number}",
            source="quiz",
            prompt=(Message("user", "How many?"),),
            verifier=verifier,
            ground_truth=truth,
            verifier_parm=parm,
        )
        for number, truth in enumerate(truths)
    ]


NUMBERS = ("3", "7", "12", "5")
TEXTS = ('["north"]', '["east"]', '["south"]', '["west"]')
WORDS = ("north", "east", "south", "west")


@pytest.mark.parametrize(
    ("samples", "pays"),
    [
        (source("counting", *NUMBERS, match="substring"), True),
        (source("counting", *NUMBERS, match="equal"), False),
        (source("counting", *NUMBERS), False),
        (source("reading", *TEXTS, metric="contains"), True),
        (source("exact", *WORDS), False),
        (source("math", *NUMBERS), False),
        (source("judge", *WORDS), False),
        (source("counting", "3", "3", "7", match="substring"), False),
        ([], False),
    ],
    ids=["substring", "equal", "math", "reading", "exact", "expressions", "a model", "too few", "none"],
)
def test_a_verifier_that_looks_for_the_truth_anywhere_pays_for_lists(
    samples: list[Sample], pays: bool
) -> None:
    assert pays_for_lists(samples) is pays
