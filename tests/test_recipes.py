from pathlib import Path

import pytest

from vtune.config import dump_recipe, load_recipe
from vtune.errors import RecipeError
from vtune.runs.recipes.shipped import PACKAGES, Shipped, copy_recipe, find_shipped, shipped_recipes
from vtune.sections import Strict

SHIPPED = shipped_recipes()
EVERY = pytest.mark.parametrize("entry", SHIPPED, ids=lambda entry: f"{entry.kind}/{entry.name}")


def kind_of(entry: Shipped) -> type[Strict]:
    """The class into which a file of this kind is read."""
    from vtune.runs.curate.recipe import DataRecipe
    from vtune.runs.evaluate.groups import Group
    from vtune.runs.evaluate.suite import AgentRecipe, EvalSuite
    from vtune.runs.sweep.recipe import Sweep
    from vtune.runs.train.rl_recipe import RLRecipe
    from vtune.runs.train.sft_recipe import SFTRecipe

    kinds = {
        "sft": SFTRecipe,
        "rl": RLRecipe,
        "sweep": Sweep,
        "eval": EvalSuite,
        "agent": AgentRecipe,
        "group": Group,
        "data": DataRecipe,
    }
    return kinds[entry.kind]


def test_recipes_are_found_in_every_recipe_folder() -> None:
    assert {"sft/codev-tiny", "rl/codev-tiny"} <= {f"{entry.kind}/{entry.name}" for entry in SHIPPED}
    assert {entry.kind for entry in SHIPPED} <= set(PACKAGES)


@EVERY
def test_a_shipped_file_is_valid_and_has_a_description(entry: Shipped, tmp_path: Path) -> None:
    recipe = load_recipe(entry.path, kind_of(entry))
    assert entry.about
    again = tmp_path / "again.yaml"
    again.write_text(dump_recipe(recipe), encoding="utf-8")
    assert load_recipe(again, kind_of(entry)) == recipe


def test_a_name_shared_by_two_kinds_needs_the_kind() -> None:
    with pytest.raises(RecipeError, match="say sft/codev-tiny or rl/codev-tiny"):
        find_shipped("codev-tiny")
    assert find_shipped("rl/codev-tiny").kind == "rl"


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(RecipeError, match="did you mean `rl/codev-tiny`"):
        find_shipped("rl/codev-tin")
    with pytest.raises(RecipeError, match="vtune recipes list"):
        find_shipped("qqq")


def test_a_copy_goes_to_a_folder_or_new_file_and_overwrites_nothing(tmp_path: Path) -> None:
    source = find_shipped("rl/codev-tiny").path
    assert copy_recipe("rl/codev-tiny", tmp_path) == tmp_path / "codev-tiny.yaml"
    new = copy_recipe("rl/codev-tiny", tmp_path / "mine" / "new.yaml")
    assert new.read_bytes() == source.read_bytes()
    with pytest.raises(RecipeError, match="exists"):
        copy_recipe("rl/codev-tiny", tmp_path)
