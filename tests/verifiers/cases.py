"""Samples from each verifier's own case: enough to check what all verifiers guarantee."""

from collections.abc import Mapping
from typing import Any

from vtune.schema.message import Message
from vtune.schema.sample import Sample
from vtune.verifiers import VERIFIERS

CASES = {name: verifier.case for name, verifier in VERIFIERS.items() if not verifier.reads_outcome}
"""All verifiers that read a reply; the environment reward is in `test_environment_reward.py`."""


def sample(
    verifier: str, gold: str, *, choices: tuple[str, ...] = (), parm: Mapping[str, Any] | None = None
) -> Sample:
    return Sample(
        id="quiz/1",
        source="quiz",
        prompt=(Message("user", "Which one?"),),
        ground_truth=gold,
        verifier=verifier,
        verifier_parm=dict(parm or {}),
        choices=choices,
    )


def sample_of(name: str, *, gold: str | None = None) -> Sample:
    case = CASES[name]
    truth = case.gold if case.truth is None else case.truth
    return sample(name, truth if gold is None else gold, choices=case.choices, parm=case.parm)


def wrap(answer: str) -> str:
    return f"<think>Let me see.</think><answer>{answer}</answer>"
