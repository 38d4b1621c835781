"""The questions of samples, stored beside a run's index."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.view.example import make_example
from vtune.runs.view import asked
from vtune.runs.view.opened import Opened
from vtune.view.place import find_places


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A log of reads of the data."""
    found: list[Any] = []
    read = asked.read_records

    def noted(source: Any) -> Iterator[Any]:
        found.append(source)
        return read(source)

    monkeypatch.setattr(asked, "read_records", noted)
    return found


def opened(run: Path) -> Opened:
    (place,) = find_places(run)
    return Opened(place, show=False)


def test_a_list_does_not_read_the_data_and_trajectories_read_it_once(
    tmp_path: Path, reads: list[Any]
) -> None:
    run = make_example(tmp_path / "run")
    one = opened(run)
    rows = one.find("step:0", most=99)["trajectories"]
    assert len({row["sample"] for row in rows}) == 6
    assert reads == []
    found = {row["sample"]: one.document(row["key"])["asked"] for row in rows}
    assert all(asked["evidence"] or asked["ground_truth"] for asked in found.values())
    assert {row["sample"]: opened(run).document(row["key"])["asked"] for row in rows} == found
    assert len(reads) == 1
    assert [file.suffix for file in (run / ".view").glob("questions.*")] == [".arrow"]


def test_the_questions_are_not_limited_to_a_single_json_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single JSON document of all samples would exceed the number of lists and objects that can be read."""
    run = make_example(tmp_path / "run")
    monkeypatch.setattr(asked, "ROWS", 2)
    one = opened(run)
    assert one.document("step-000000/3")["asked"] == opened(run).document("step-000000/2")["asked"]
    (file,) = (run / ".view").glob("questions.*")
    with pa.memory_map(str(file)) as mapped:
        assert pa.ipc.open_file(mapped).num_record_batches == 3


def test_questions_survive_removal_of_the_file_by_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was given other data removes files that it does not need."""
    run = make_example(tmp_path / "run")
    atomic_file = asked.atomic_file

    @contextmanager
    def removed(path: Path, **named: None) -> Iterator[Path]:
        with atomic_file(path, **named) as partial:
            yield partial
        path.unlink()

    monkeypatch.setattr(asked, "atomic_file", removed)
    one = opened(run)
    assert one.document("step-000000/3")["asked"] == one.document("step-000000/2")["asked"] is not None
    assert list((run / ".view").glob("questions.*")) == []


def test_questions_of_a_run_opened_before_its_first_step_become_known(
    tmp_path: Path,
) -> None:
    run = make_example(tmp_path / "run")
    recipe = (run / "recipe.yaml").read_text()
    assert "partial: 0.5" in recipe
    (run / "recipe.yaml").write_text(recipe.replace("partial: 0.5", "partial: 0.25"))
    faithful = opened(run).index.table["faithful"].to_pylist()
    assert all(one is not False for one in faithful), "calls of this run earn 0.25 or 1"
    (run / "trajectories").rename(tmp_path / "later")
    one = opened(run)
    assert not one.refresh()
    (tmp_path / "later").rename(run / "trajectories")
    assert one.refresh()
    assert one.document("step-000000/3")["asked"]["evidence"]
    # Whether a call showed its target also depends on the recipe.
    assert one.index.table["faithful"].to_pylist() == faithful
