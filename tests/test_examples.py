"""The recipes, suites and rows in the pages can be read: every YAML and JSON block is loaded."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.pages import PAGES, blocks
from tests.runs.data.test_validating import encoded
from vtune.config import find, load_recipe, read_values
from vtune.data.formats.building import Options
from vtune.data.formats.hub import ColumnMap
from vtune.reward.recipe import RewardRecipe
from vtune.runs.agent.tools import ToolsRecipe
from vtune.runs.curate.recipe import DataRecipe
from vtune.runs.data.importing import import_data
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.sections import Strict
from vtune.uses import use

OWN = ROOT / "tests/own"
SHIPPED: Mapping[type[Strict], tuple[str, str]] = {
    RLRecipe: ("codev-tiny", "recipes.rl"),
    EvalSuite: ("own", "eval_suites"),
    DataRecipe: ("own", "data_recipes"),
}
"""Kind -> the shipped file that provides the keys which a block omits."""
ELSEWHERE = {
    "CHANGELOG.md": "it is also about what was",
    "recipes/own_task.md": "tests/runs/test_own_task.py runs it",
    "cli/serve.md": "tests/runs/serve/test_pages.py sends its requests",
}
"""Page -> why its blocks are not tested here."""


def examples() -> Iterator[tuple[str, dict[str, Any]]]:
    """(page, values) of each YAML or JSON block in the pages."""
    for page in PAGES:
        for block in blocks(page) if page not in ELSEWHERE else []:
            try:
                values = yaml.safe_load(block)
            except yaml.YAMLError:
                continue  # another language
            if isinstance(values, dict) and all(
                isinstance(key, str) and key.isidentifier() for key in values
            ):
                yield page, values


EXAMPLES = list(examples())
OF_RECIPES = [(page, values) for page, values in EXAMPLES if not {"data_source", "turns"} & values.keys()]
ROWS = [(page, values) for page, values in EXAMPLES if "data_source" in values]


@pytest.fixture(autouse=True)
def brought(forgetting: None) -> None:
    use(path for path in OWN.glob("*.py") if path.stem not in ("__init__", "qwen2_vl"))


def placed(page: str, values: dict[str, Any]) -> dict[str, Any]:
    """A block's values under the section that they belong to, with the page's earlier blocks if needed."""
    if page == "vtune/runs/README.md":  # the best checkpoint is chosen by a suite under `eval`
        return {key: value for other, shown in OF_RECIPES if other == page for key, value in shown.items()}
    if values.keys() <= ToolsRecipe.model_fields.keys():
        return {"tools": values}
    return {"reward": values} if values.keys() <= RewardRecipe.model_fields.keys() else values


def kind_of(values: Mapping[str, Any]) -> type[Strict]:
    """The kind of recipe, suite or row that the values belong to."""
    for kind in (*SHIPPED, ColumnMap):
        if values.keys() <= kind.model_fields.keys():
            return kind
    raise AssertionError(f"nothing has all of {', '.join(values)}")


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Override values key by key; `loss` and `tools` are replaced as a whole."""
    result = dict(under)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(under.get(key), dict) and key not in ("loss", "tools")
        result[key] = merged(under[key], value) if both else value
    return result


def test_blocks_are_found() -> None:
    assert len(OF_RECIPES) > 15
    assert len(ROWS) == 2


@pytest.mark.parametrize(
    ("page", "values"), OF_RECIPES, ids=[f"{page}-{'-'.join(values)}" for page, values in OF_RECIPES]
)
def test_a_block_is_valid_in_its_recipe(page: str, values: dict[str, Any], tmp_path: Path) -> None:
    values = placed(page, values)
    uses = [str(OWN / Path(file).name) for file in values.get("uses", ())]
    values |= {"uses": uses} if uses else {}
    kind = kind_of(values)
    if kind in SHIPPED:
        values = merged(read_values(find(*SHIPPED[kind])), values)
    if kind is RLRecipe:  # parts that ask a model need a judge
        asked = next(shown["judge"] for other, shown in EXAMPLES if other == "vtune/judge/README.md")
        values["reward"] = {**values["reward"], "judge": values["reward"]["judge"] or asked}
    path = tmp_path / "example.yaml"
    path.write_text(yaml.safe_dump(values))
    load_recipe(path, kind)


@pytest.mark.parametrize(("page", "values"), ROWS, ids=[page for page, _ in ROWS])
def test_an_example_row_can_be_imported(page: str, values: dict[str, Any], tmp_path: Path) -> None:
    for name in values.get("images", ()):
        (tmp_path / name).write_bytes(encoded(640, 480))
    (tmp_path / "rows.jsonl").write_text(json.dumps(values))
    options = Options(images=None, verifier=None, tools=None)
    found = import_data(
        "samples", [tmp_path / "rows.jsonl"], tmp_path / "rows.parquet", options=options, strict=True
    )
    assert found["kept"] == 1
