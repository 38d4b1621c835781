from itertools import permutations
from pathlib import Path

import pytest

from tests.runs.commands import vtune
from vtune.config import load_recipe
from vtune.errors import RecipeError
from vtune.kinds import kind_of
from vtune.runs.recipes.chain.nodes import KINDS
from vtune.runs.recipes.shipped import shipped_recipes
from vtune.runs.sweep.recipe import Sweep

SCHEMAS = {**KINDS, "sweep": Sweep}
FILES = {entry.kind: entry.path for entry in shipped_recipes()}
"""One of each kind."""
SHARED = {("eval", "agent"), ("agent", "rl")}


def test_the_schema_and_the_files_of_a_kind_have_its_mark() -> None:
    assert {kind: kind_of(schema.model_fields) for kind, schema in SCHEMAS.items()} == {k: k for k in SCHEMAS}
    assert FILES.keys() == SCHEMAS.keys()


@pytest.mark.parametrize(("given", "wanted"), list(permutations(sorted(SCHEMAS), 2)))
def test_a_recipe_of_another_kind_is_named_as_such(given: str, wanted: str) -> None:
    if (given, wanted) in SHARED:
        pytest.skip("it has the mark of the other kind, too")
    with pytest.raises(RecipeError) as caught:
        load_recipe(FILES[given], SCHEMAS[wanted])
    assert str(caught.value).count("\n") <= 1
    assert f"{FILES[given]} is a" in str(caught.value)


def test_a_recipe_of_ones_own_is_still_told_its_unknown_keys(tmp_path: Path) -> None:
    text = FILES["rl"].read_text()
    (tmp_path / "mine.yaml").write_text(f"{text}\nbatch_size: 3\n")
    with pytest.raises(RecipeError, match="unknown key `batch_size`"):
        load_recipe(tmp_path / "mine.yaml", SCHEMAS["rl"])


def test_the_command_that_a_recipe_is_for_is_named(tmp_path: Path) -> None:
    ended = vtune("sft", "--recipe", str(FILES["rl"]), "--out", str(tmp_path / "run"))
    assert ended.code == 2
    assert "a recipe for `vtune rl`: it has the key `rollout`, and no `batch_size`" in ended.err
