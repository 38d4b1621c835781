"""One case for each verifier: enough to check the promises that all of them make."""

from dataclasses import dataclass, field
from typing import Any

from vtune.schema.message import Message
from vtune.schema.sample import Sample


@dataclass(frozen=True)
class Case:
    gold: str
    broken_gold: str
    wrong: str
    choices: tuple[str, ...] = ()
    parm: dict[str, Any] = field(default_factory=dict)


CASES = {
    "choice": Case(gold="B", broken_gold="E", wrong="C", choices=("red", "blue", "green")),
    "exact": Case(gold="North Street", broken_gold=" . ", wrong="South Street"),
    "math": Case(gold="\\boxed{\\frac{1}{2}}", broken_gold="", wrong="\\frac{1}{3}"),
}


def sample(
    verifier: str, gold: str, *, choices: tuple[str, ...] = (), parm: dict[str, Any] | None = None
) -> Sample:
    return Sample(
        id="quiz/1",
        source="quiz",
        prompt=(Message("user", "Which one?"),),
        ground_truth=gold,
        verifier=verifier,
        verifier_parm=parm or {},
        choices=choices,
    )


def sample_of(name: str, *, gold: str | None = None) -> Sample:
    case = CASES[name]
    return sample(name, case.gold if gold is None else gold, choices=case.choices, parm=case.parm)


def wrap(answer: str) -> str:
    return f"<think>Let me see.</think><answer>{answer}</answer>"
