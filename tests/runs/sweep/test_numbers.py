"""Numbers of one run, read from the files of training and evaluation."""

import json
from pathlib import Path
from typing import Any

import pytest

from vtune.errors import DataError
from vtune.runs.sweep.numbers import of_evaluation, of_training


def steps(folder: Path, rows: list[dict[str, float]]) -> Path:
    lines = [
        {"step": step, "source": source, **row} for step, row in enumerate(rows) for source in ("all", "one")
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def values(found: Any) -> dict[str, float]:
    return {name: number.value for name, number in found.items()}


def test_boxes_and_gradients_average_the_last_steps_and_curves_cover_all(tmp_path: Path) -> None:
    paid = [0.2, 0.6, 0.8, 0.2, 0.4, 0.9]
    rows = [
        {"accuracy": step / 10, "reward_accuracy": reward, "iou@99": step / 5, "grad_norm": 2.0 * step}
        for step, reward in enumerate(paid)
    ]
    rows[-1] |= {"grad_norm_vision": 3.0, "reward_terse": 0.5, "reward_format": 1.0}
    found = values(of_training(steps(tmp_path, rows), 2))
    assert found["accuracy"] == pytest.approx(0.45)
    assert found["accuracy, all steps"] == pytest.approx(0.25)
    assert found["largest fall"] == pytest.approx(0.7 - 0.3)
    assert found["iou@99"] == pytest.approx(0.9)
    assert found["gradient norm"] == 9.0
    assert found["gradient norm, vision"] == 3.0
    assert found["accuracy reward"] == pytest.approx(0.65)
    assert (found["format reward"], found["own reward, terse"]) == (1.0, 0.5)
    assert "gradient norm, connector" not in found
    assert "iou@50" not in found


@pytest.mark.parametrize("sources", [{}, {"all": {"iou@50": 0.9, "ap": 0.5, "boxes": 2.0}}])
def test_an_evaluation_has_box_numbers_if_answers_are_boxes(tmp_path: Path, sources: dict[str, Any]) -> None:
    looks = dict.fromkeys(("faithful_of_all", "faithful_of_correct", "tool_calls"))
    results = {"score": {"score": 0.7}, "faithfulness": looks | {"n_unscored": 0}, "sources": sources}
    (tmp_path / "results.json").write_text(json.dumps(results))
    found, why = of_evaluation(tmp_path)
    wanted = {"iou@50": 0.9, "ap": 0.5} if sources else {}
    assert values(found) == {"accuracy": 0.7, **wanted}
    assert why == "none of its questions needs a look"


@pytest.mark.parametrize("value", ['"0.8"', "null", "true", "NaN", "1e400"])
@pytest.mark.parametrize("where", ["score", "tool_calls"])
def test_an_invalid_number_is_reported_with_its_file(tmp_path: Path, where: str, value: str) -> None:
    estimate = {"value": 0.7 if where == "score" else "@", "low": None, "high": None}
    looks = dict.fromkeys(("faithful_of_all", "faithful_of_correct")) | {"tool_calls": estimate}
    results = {
        "score": {"score": "@" if where == "score" else 0.7},
        "faithfulness": looks | {"n_unscored": 0},
    }
    (tmp_path / "results.json").write_text(json.dumps(results).replace('"@"', value))
    with pytest.raises(DataError, match="is not a number") as raised:
        of_evaluation(tmp_path)
    assert raised.value.where == str(tmp_path / "results.json")
