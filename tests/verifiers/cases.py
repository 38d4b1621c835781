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
    truth: str | None = None
    """The ground truth where it differs from what a perfect reply says."""
    choices: tuple[str, ...] = ()
    parm: dict[str, Any] = field(default_factory=dict)


CUP = '[{"label": "cup", "bbox_2d": [10, 10, 50, 50]}, {"label": "pen", "bbox_2d": [60, 10, 70, 90]}]'
ELSEWHERE = '[{"label": "cup", "bbox_2d": [60, 60, 99, 99]}, {"label": "pen", "bbox_2d": [0, 0, 5, 5]}]'
SQUARE = {"space": "pixels", "width": 100, "height": 100, "iou": 0.5}

CASES = {
    "choice": Case(gold="B", broken_gold="E", wrong="C", choices=("red", "blue", "green")),
    "exact": Case(gold="North Street", broken_gold=" . ", wrong="South Street"),
    "math": Case(gold="\\boxed{\\frac{1}{2}}", broken_gold="", wrong="\\frac{1}{3}"),
    "counting": Case(gold="7", broken_gold="a few", wrong="8"),
    "ocr": Case(gold="NO PARKING", broken_gold=" ", wrong="KEEP OUT"),
    "detection": Case(gold=CUP, broken_gold="[]", wrong=ELSEWHERE, parm=SQUARE),
    "grounding": Case(gold=CUP, broken_gold="a cup", wrong=ELSEWHERE, parm=SQUARE),
    "point_in_box": Case(
        gold="(30, 30)",
        broken_gold="(30, 30)",
        wrong="(80, 80)",
        truth='[{"label": "", "bbox_2d": [10, 10, 50, 50]}]',
    ),
    "judge": Case(gold="a red cup", broken_gold="", wrong="a pen"),
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
    truth = case.gold if case.truth is None else case.truth
    return sample(name, truth if gold is None else gold, choices=case.choices, parm=case.parm)


def wrap(answer: str) -> str:
    return f"<think>Let me see.</think><answer>{answer}</answer>"
