"""What the start of reinforcement training reads from its data, and which problem it reports."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vtune.config import find, load_recipe
from vtune.data import lens
from vtune.errors import DataError, RecipeError
from vtune.runs.train.rl import check_prompts
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.schema.parquet import samples, write_samples
from vtune.schema.sample import Sample

ASKED = list(lens.samples(2, 4, seed=0, split="train"))
UNJUDGED = replace(ASKED[0], evidence=())
"""A sample for which nothing can judge what calls show."""
UNTOLD = replace(ASKED[1], tools=("image_zoom_in_tool",))
"""A sample whose prompt does not describe its tool."""


def recipe(folder: Path, *rows: Sample, settings: tuple[str, ...] = ()) -> RLRecipe:
    data = folder / "data.parquet"
    write_samples(data, rows)
    changed = [f"data=[{data}]", "rollout.prompt=codev", *settings]
    return load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe, changed)


def test_all_rows_are_read_once_before_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    rows_with = samples.rows_with

    def noted(*given: Any, **named: Any) -> Iterator[Any]:
        for number, row in rows_with(*given, **named):
            read.append(number)
            yield number, row

    monkeypatch.setattr(samples, "rows_with", noted)
    facts = check_prompts(recipe(tmp_path, *ASKED))
    assert (facts["samples"], facts["judged_looks"]) == (4, 0)
    assert read == [0, 1, 2, 3]


def test_bad_rows_are_listed_then_tools_are_named_then_what_cannot_be_scored(tmp_path: Path) -> None:
    bad = replace(ASKED[2], verifier="math", ground_truth="")
    with pytest.raises(DataError, match=r"1 problem\(s\) in the data"):
        check_prompts(recipe(tmp_path, UNJUDGED, UNTOLD, bad))
    with pytest.raises(RecipeError, match="no section tools"):
        check_prompts(recipe(tmp_path, UNJUDGED, UNTOLD))
    with pytest.raises(RecipeError, match="no evidence boxes"):
        check_prompts(recipe(tmp_path, ASKED[1], UNJUDGED))


def test_a_counterfactual_part_that_can_never_be_scored_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = ("reward.counterfactual={weight: 0.5, share: 1.0}",)
    check_prompts(recipe(tmp_path, *ASKED, settings=part))
    plain = [replace(one, evidence=(), ability="chart") for one in ASKED]
    with pytest.raises(RecipeError, match=r"no question needs a look(.|\n)*leave it out"):
        check_prompts(recipe(tmp_path, *plain, settings=(*part, "reward.tool=0")))
    alike = [replace(one, ground_truth="7", choices=()) for one in ASKED]
    with pytest.raises(RecipeError, match=r"no question can be shown the target of another(.|\n)*'lens'"):
        check_prompts(recipe(tmp_path, *alike, settings=part))
    check_prompts(recipe(tmp_path, *alike))
    capsys.readouterr()
    other = [replace(one, source="more", id=f"more-{one.id}") for one in alike]
    check_prompts(recipe(tmp_path, *ASKED, *other, settings=part))
    assert "source 'more': all its questions have one right answer" in " ".join(
        capsys.readouterr().err.split()
    )


def test_feedback_on_looks_that_nothing_can_judge_is_refused(tmp_path: Path) -> None:
    settings = ("reward.tool=0", "rollout.feedback=true")
    check_prompts(recipe(tmp_path, *ASKED, settings=settings))
    with pytest.raises(RecipeError, match=r"no evidence boxes(.|\n)*leave out rollout.feedback"):
        check_prompts(recipe(tmp_path, ASKED[1], UNJUDGED, settings=settings))


def test_a_source_whose_verifier_rewards_lists_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counted = [
        replace(
            one, verifier="counting", ground_truth=str(n), verifier_parm={"match": "substring"}, choices=()
        )
        for n, one in enumerate(ASKED, start=3)
    ]
    check_prompts(recipe(tmp_path, *counted))
    told = " ".join(capsys.readouterr().err.split())
    assert f"source {counted[0].source!r}: verifier counting gives full marks to a reply that lists" in told
    check_prompts(recipe(tmp_path, *ASKED))
    assert "full marks" not in capsys.readouterr().err
