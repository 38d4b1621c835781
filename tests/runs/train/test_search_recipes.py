"""The recipes for search agents on published data."""

import json
from pathlib import Path

import pytest

from tests.data.formats.published import mars
from tests.runs.commands import setting, vtune
from vtune.advantage.recipe import PAPER
from vtune.config import find, load_recipe
from vtune.runs.data.indexing import index_passages
from vtune.runs.train.rl_recipe import RLRecipe

RECIPES = ("credit-search-8b", "credit-search-4b")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Samples of SenseNova-MARS, imported, and an index."""
    folder = tmp_path_factory.mktemp("search")
    (meta,) = mars(folder / "mars").paths
    samples, corpus, index = folder / "samples.parquet", folder / "corpus.jsonl", folder / "index"
    imported = vtune("data", "import", "mars", meta, "--out", samples, "--json")
    assert json.loads(imported.out)["kept"] == 2
    corpus.write_text(json.dumps({"id": "1", "title": "Eiffel", "text": "He designed a bridge."}) + "\n")
    index_passages(corpus, index)
    return samples, index


@pytest.mark.parametrize("name", RECIPES)
def test_a_dry_run_takes_published_data(name: str, inputs: tuple[Path, Path]) -> None:
    samples, index = inputs
    given = setting(data=f"[{samples}]", tools__text_search__index=index)
    ended = vtune("rl", "--recipe", name, *given, "--dry-run", "--gpus", "8", "--gpu-memory", "141", "--json")
    assert ended.code == 0, ended.err
    check = json.loads(ended.out)["check"]
    assert (check["samples"], check["rollouts_per_step"]) == (2, 1024)
    assert check["plan"]["fits"]
    assert [entry.split()[0] for entry in check["missing"]] == ["model", "judge", "summariser"]
    assert check["judged_answers"] == 1


@pytest.mark.parametrize("name", RECIPES)
def test_credit_is_that_of_the_paper(name: str) -> None:
    assert load_recipe(find(name, "recipes.rl"), RLRecipe).credit == PAPER
