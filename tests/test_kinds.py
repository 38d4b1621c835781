from itertools import permutations
from pathlib import Path

import pytest

from tests.runs.commands import vtune
from vtune.config import load_recipe
from vtune.errors import RecipeError
from vtune.kinds import kind_of
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.recipes.chain.nodes import KINDS
from vtune.runs.recipes.shipped import shipped_recipes
from vtune.runs.sweep.recipe import Sweep

SCHEMAS = {**KINDS, "sweep": Sweep}
FILES = {entry.kind: entry.path for entry in shipped_recipes()}
"""One of each kind."""
SHARED = {("eval", "agent"), ("agent", "eval"), ("agent", "rl")}
"""Pairs of kinds that share most keys, or each other's identifying key."""


def test_schemas_and_files_have_the_identifying_key_of_their_kind() -> None:
    assert {kind: kind_of(schema.model_fields) for kind, schema in SCHEMAS.items()} == {k: k for k in SCHEMAS}
    assert FILES.keys() == SCHEMAS.keys()


@pytest.mark.parametrize(("given", "wanted"), list(permutations(sorted(SCHEMAS), 2)))
def test_a_recipe_of_another_kind_is_reported_as_that_kind(given: str, wanted: str) -> None:
    if (given, wanted) in SHARED:
        pytest.skip("its own message is as good")
    with pytest.raises(RecipeError) as caught:
        load_recipe(FILES[given], SCHEMAS[wanted])
    assert str(caught.value).count("\n") <= 1
    assert f"{FILES[given]} is a" in str(caught.value)


def test_a_user_recipe_still_reports_unknown_keys(tmp_path: Path) -> None:
    text = FILES["rl"].read_text()
    (tmp_path / "mine.yaml").write_text(f"{text}\nbatch_size: 3\n")
    with pytest.raises(RecipeError, match="unknown key `batch_size`"):
        load_recipe(tmp_path / "mine.yaml", SCHEMAS["rl"])


def test_a_mistyped_identifying_key_is_an_unknown_key(tmp_path: Path) -> None:
    text = FILES["agent"].read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("call_images:", "call_image:"))
    with pytest.raises(RecipeError, match="did you mean `call_images`"):
        load_recipe(tmp_path / "mine.yaml", SCHEMAS["agent"])
    suite = f"{FILES['eval'].read_text()}\ncall_images: black\n"
    (tmp_path / "suite.yaml").write_text(suite.replace("scorer:", "scorrer:"))
    with pytest.raises(RecipeError, match="did you mean `scorer`"):
        load_recipe(tmp_path / "suite.yaml", SCHEMAS["eval"])


def test_the_identifying_key_may_come_from_set(tmp_path: Path) -> None:
    lines = FILES["eval"].read_text().splitlines()
    (scorer,) = [line for line in lines if line.startswith("scorer:")]
    rest = [line for line in lines if line != scorer and not line.startswith("call_images:")]
    (tmp_path / "suite.yaml").write_text("\n".join([*rest, "call_images: black"]))
    found = load_recipe(tmp_path / "suite.yaml", EvalSuite, [scorer.replace(": ", "=").split(" ")[0]])
    assert found.call_images == "black"


def test_the_right_command_for_a_recipe_is_named(tmp_path: Path) -> None:
    ended = vtune("sft", "--recipe", str(FILES["rl"]), "--out", str(tmp_path / "run"))
    assert ended.code == 2
    assert "a recipe for `vtune rl`: it has the key `rollout`, and no `batch_size`" in ended.err
