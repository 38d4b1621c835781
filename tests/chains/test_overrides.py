import ast
from pathlib import Path

import pytest
import yaml

from tests.chains.overrides import ALLOWED, KINDS, check_unchanged, differing, may_change, settings
from vtune.config import dump_recipe, load_recipe
from vtune.runs.recipes.shipped import find_shipped

SHIPPED = {
    "data": ("codev-sft", "codev-rl", "orsta-47k", "search-4k", "own"),
    "sft": ("codev",),
    "rl": ("codev", "orsta-7b", "credit-search-8b", "credit-search-4b"),
    "eval": ("vstar", "hrbench-4k", "search", "own"),
}
"""Shipped recipes that the chains run."""


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("rl", "reward__tool"),
        ("rl", "rollout__prompt"),
        ("rl", "update"),
        ("data", "sources__vstar__tools"),
        ("data", "filters"),
        ("eval", "offers"),
    ],
)
def test_a_chain_may_set_only_listed_keys(kind: str, key: str) -> None:
    with pytest.raises(AssertionError, match="a chain may not change"):
        settings(kind, **{key: 0})


def test_listed_keys_become_set_arguments() -> None:
    assert settings("rl", model="m", reward__judge__base_url="u") == [
        "--set", "model=m", "--set", "reward.judge.base_url=u",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_with_a_changed_recipe_is_detected(kind: str, tmp_path: Path) -> None:
    name = SHIPPED[kind][0]
    ships = load_recipe(find_shipped(f"{kind}/{name}").path, KINDS[kind])
    file = tmp_path / "recipe.yaml"
    file.write_text(dump_recipe(ships))
    check_unchanged(kind, name, file)
    values = yaml.safe_load(file.read_text())
    values["seed"] = 17
    file.write_text(yaml.safe_dump(values))
    with pytest.raises(AssertionError, match=r"differs from .* in seed"):
        check_unchanged(kind, name, file)


@pytest.mark.parametrize("kind", KINDS)
def test_every_listed_key_exists_in_a_recipe(kind: str) -> None:
    keys = set()
    for name in SHIPPED[kind]:
        values = load_recipe(find_shipped(f"{kind}/{name}").path, KINDS[kind]).model_dump(mode="json")
        keys |= {key for key in differing(values, _other(values)) if may_change(kind, key)}
    for allowed in ALLOWED[kind]:
        last = allowed.rpartition("*.")[2]
        assert any(key == allowed or key.endswith(f".{last}") for key in keys), allowed


def _other(values: object) -> object:
    """The same sections with every value changed."""
    if isinstance(values, dict):
        return {key: _other(value) for key, value in values.items()}
    if isinstance(values, list) and any(isinstance(item, dict) for item in values):
        return [_other(item) for item in values]
    return "another"


def test_chains_change_recipes_only_through_the_list() -> None:
    chains = sorted(Path(__file__).parent.glob("test_*.py"))
    assert len(chains) > 1
    for file in chains:
        texts = {
            node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)
        }
        assert file.name == Path(__file__).name or "--set" not in texts, file
