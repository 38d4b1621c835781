"""The default output path of `vtune curate` is what the full-size recipe of the same data reads."""

import pytest
import yaml

from vtune.runs.recipes.shipped import find_shipped

READERS = {
    "sft/codev": "codev-sft/traces",
    "rl/codev": "codev-rl/samples",
    "rl/credit-codev": "codev-rl/samples",
    "rl/orsta-7b": "orsta-47k/samples",
    "rl/orsta-32b": "orsta-47k/samples",
    "rl/credit-search-4b": "search-4k/samples",
    "rl/credit-search-8b": "search-4k/samples",
}


@pytest.mark.parametrize("recipe", READERS)
def test_a_recipe_reads_what_its_data_recipe_writes(recipe: str) -> None:
    name, _, records = READERS[recipe].partition("/")
    reads = yaml.safe_load(find_shipped(recipe).path.read_text())["data"]
    writes = yaml.safe_load(find_shipped(f"data/{name}").path.read_text()).get("records", "samples")
    assert reads == [f"data/curated/{name}/{records}.parquet"]
    assert writes == records
