"""Metrics of a step with several updates: every token has equal weight."""

from dataclasses import replace

import pytest

from vtune.runs.train.step_row import update_row
from vtune.update.stats import StepStats

FEW = StepStats(
    loss=1.0,
    grad_norm=4.0,
    skipped=False,
    learning_rate=1e-3,
    tokens=10,
    flops=0.0,
    entropy=5.0,
    kl=None,
    clip_share=1.0,
    mismatch=8.0,
    mismatch_mean=2.0,
    mismatch_kl=0.5,
    truncated_share=None,
    grad_norms={"language": 3.0},
)
MANY = replace(
    FEW,
    loss=3.0,
    grad_norm=2.0,
    tokens=990,
    entropy=1.0,
    kl=0.1,
    clip_share=0.0,
    mismatch=0.0,
    mismatch_mean=0.0,
    mismatch_kl=0.0,
    grad_norms={},
)


def test_means_over_tokens_are_those_of_all_tokens_and_the_largest_is_the_largest() -> None:
    assert update_row([FEW, MANY]) == pytest.approx(
        {
            "skipped": 0,
            "loss": 2.0,
            "grad_norm": 3.0,
            "learning_rate": 1e-3,
            "entropy": 1.04,
            "kl": 0.1,
            "clip_share": 0.01,
            "mismatch": 8.0,
            "mismatch_mean": 0.02,
            "mismatch_kl": 0.005,
            "grad_norm_language": 3.0,
        }
    )


def test_an_update_that_was_skipped_says_only_that() -> None:
    assert update_row([replace(FEW, skipped=True)]) == {"skipped": 1}
    assert update_row([replace(MANY, skipped=True), FEW])["entropy"] == 5.0
