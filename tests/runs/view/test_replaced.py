"""Runs that are deleted, replaced or added to while a viewer has them open."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.view.example import make_example
from tests.view.runs import LOOKED, MISSED, make_run
from vtune.errors import DataError
from vtune.runs.view.opened import Opened
from vtune.runs.view.serving import app_of
from vtune.schema.parquet import read_samples, write_samples, write_trajectories
from vtune.view.place import find_places

TOKEN = "the-token"


def opened(path: Path) -> Opened:
    (place,) = find_places(path)
    return Opened(place, show=False)


def page_of(*paths: Path) -> TestClient:
    app = app_of([opened(path) for path in paths], TOKEN)
    return TestClient(app, base_url=f"http://127.0.0.1:8195/{TOKEN}/")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    return make_run(tmp_path / "run", {0: [LOOKED, MISSED]})


def test_a_deleted_run_is_gone_rather_than_empty_and_hides_no_other(run: Path, tmp_path: Path) -> None:
    page = page_of(run, make_run(tmp_path / "other", {0: [LOOKED]}))
    before = page.get("api/places").json()
    shutil.rmtree(run)
    gone, other = page.get("api/places").json()
    assert gone["problem"].startswith(f"{run}: it is gone: it was moved or deleted")
    assert gone["revision"] != before[0]["revision"]
    assert gone["rows"] == 2  # what is known stays
    assert other == before[1]
    overview = page.get("api/0/run").json()
    assert "it is gone" in overview["problem"]
    assert "cannot be opened any more" in page.get("api/0/one/step-000000/0").json()["error"]
    assert not run.exists()
    make_run(run, {3: [MISSED]})
    (again, _) = page.get("api/places").json()
    assert (again["problem"], again["rows"], again["facets"]["step"]) == ("", 1, ["3"])


def test_a_deleted_file_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "some.parquet"
    write_trajectories(file, [LOOKED])
    one = opened(file)
    file.unlink()
    with pytest.raises(DataError, match="it is gone"):
        one.refresh()
    assert "it is gone" in one.problems[0]


def test_a_run_that_replaces_another_brings_its_own_questions_and_rewards(tmp_path: Path) -> None:
    run = make_example(tmp_path / "run")
    one = opened(run)
    before = one.document("step-000000/0")
    moved = tmp_path / "elsewhere"
    make_example(moved / "run")
    data = moved / "questions.parquet"
    write_samples(data, [replace(sample, ground_truth="another") for sample in read_samples(data)])
    recipe = moved / "run" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("partial: 0.5", "partial: 0.4"))
    shutil.rmtree(run)
    shutil.copytree(moved / "run", run)
    assert one.refresh()
    assert before["asked"]["ground_truth"] != "another"
    assert one.document("step-000000/0")["asked"]["ground_truth"] == "another"
    assert one.index.shown_from == 0.4


@pytest.mark.parametrize("name", ["results.json", "audit.json", "recipe.yaml", "labels.jsonl"])
def test_whatever_a_page_shows_changes_its_revision(run: Path, name: str) -> None:
    page = page_of(run)
    before = page.get("api/places").json()[0]["revision"]
    assert page.get("api/places").json()[0]["revision"] == before
    (run / name).write_text(json.dumps({"steps": 12_345}))
    assert page.get("api/places").json()[0]["revision"] != before
