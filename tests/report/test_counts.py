"""Counts of one use the singular."""

import io
from typing import Any

import pytest
from rich.console import Console

from vtune.report.evaluation import _power
from vtune.report.joins import _parts


@pytest.mark.parametrize(
    ("clusters", "said"), [(1, "1 independent question:"), (6, "6 independent questions:")]
)
def test_question_counts_use_singular_and_plural(clusters: int, said: str) -> None:
    power = {"clusters": clusters, "paired_at_best": 0.4, "paired": 0.4, "discordant": 0.1}
    assert said in _power({"power": power})


@pytest.mark.parametrize(
    ("power", "said"),
    [
        (
            {"paired_at_best": 0.038, "paired": 0.059},
            "can detect a difference of 3.8 points from another model with 80 % power at best, "
            "and one of 5.9 if 10.0 % of the answers differ",
        ),
        ({"paired_at_best": 0.04, "paired": None}, "and none if only 10.0 % of the answers differ"),
        ({"paired_at_best": 0.04, "paired": 0.375}, "and none if only 10.0 % of the answers differ"),
        ({"paired_at_best": 1.0, "paired": 1.0}, "too few to detect a difference from another model"),
        (
            {"clusters": 5, "paired_at_best": None, "paired": None},
            "5 independent questions: too few to detect a difference from another model, "
            "which takes at least 6",
        ),
        # An evaluation from when a test with 5 clusters was thought to be able to find something.
        ({"clusters": 5, "paired_at_best": 0.325, "paired": None}, "which takes at least 6"),
    ],
)
def test_the_detectable_difference_is_not_described_as_noise(power: dict[str, Any], said: str) -> None:
    told = _power({"power": {"clusters": 26, "discordant": 0.1, **power}})
    assert said in told
    assert "noise" not in told


@pytest.mark.parametrize(
    ("recipes", "said"),
    [
        (["a"], "1 recipe, no joins: 1 break, no notes"),
        (["a", "b"], "2 recipes, no joins: 1 break, no notes"),
    ],
)
def test_recipe_counts_use_singular_and_plural(recipes: list[str], said: str) -> None:
    result: dict[str, Any] = {"recipes": recipes, "joins": [], "breaks": 1, "notes": 0}
    console = Console(file=io.StringIO(), record=True)
    for part in _parts(result):
        console.print(part)
    assert console.export_text().strip() == said
