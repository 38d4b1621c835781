"""Checking that a custom model family meets its contract."""

from pathlib import Path

import pytest

from tests.conftest import ROOT
from vtune.models.families import FAMILIES
from vtune.models.shape import find_shape, known_name
from vtune.runs.parts.parts import check_parts
from vtune.uses import use

OWN = ROOT / "tests/own/qwen2_vl.py"


pytestmark = pytest.mark.usefixtures("forgetting")


def test_a_custom_family_passes_every_check() -> None:
    found = check_parts([OWN])
    assert found["ok"], found
    assert len(found["parts"][0]["checks"]) == 6


def test_a_custom_family_is_known_by_name_while_in_use() -> None:
    assert known_name("Qwen/Qwen2-VL-72B-Instruct") is None
    use([OWN])
    assert "qwen2_vl" in FAMILIES
    assert known_name("Qwen/Qwen2-VL-72B-Instruct") == "Qwen2-VL-72B"
    assert known_name("Qwen/Qwen2.5-VL-72B-Instruct") is None
    found = find_shape("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen2-VL-72B")
    assert found is not None
    assert round(found[0].total / 1e9, 1) == 73.4


@pytest.mark.parametrize(
    ("old", "new", "check", "found"),
    [
        ("+ i + i * h + h", "+ i", "`shape` counts the parameters", "`shape` counts"),
        (
            "shape=shape,",
            "shape=shape, connector=like.layer,",
            "`shape` counts the parameters",
            "`shape` counts",
        ),
        (
            "shape=shape,",
            "shape=shape, tools=replace(like.tools),",
            "calls follow the tool template",
            "use HERMES",
        ),
        (
            "shape=shape,",
            "shape=shape, positions=lambda *a, **k: 3 * like.positions(*a, **k),",
            "samples match the model's probabilities",
            "log-probabilities differ",
        ),
        ('"embed_dim": 64', '"embed_dim": "wide"', "the tiny model is built and loads", "Error"),
    ],
)
def test_a_broken_family_contract_is_found(
    tmp_path: Path, old: str, new: str, check: str, found: str
) -> None:
    text = OWN.read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "mine.py").write_text(text.replace(old, new), encoding="utf-8")
    parts = check_parts([tmp_path / "mine.py"])["parts"]
    broken = {one["name"]: f"{one['found']}; {one['fix']}" for one in parts[0]["checks"] if not one["ok"]}
    assert found in broken[check]
