"""Two models or checkpoints compared sample by sample."""

from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.runs.view.test_page import held
from tests.runs.view.test_serving import HERE, TOKEN
from tests.runs.view.test_tokens import client
from tests.view.runs import LOOKED, MISSED, UNSCORED, make_run
from vtune.errors import DataError
from vtune.runs.view.opened import Opened
from vtune.runs.view.page import write_page
from vtune.runs.view.pairs import Side, compared, sides_of, suggested
from vtune.runs.view.serving import app_of
from vtune.schema.parquet import write_trajectories
from vtune.schema.trajectory import Trajectory
from vtune.view.place import find_places


def right(sample: str, *, looked: bool = True, rollout: int = 0) -> Trajectory:
    return replace(LOOKED, sample_id=sample, tool_scores=(1.0 if looked else 0.0,), rollout=rollout)


def wrong(sample: str, rollout: int = 0) -> Trajectory:
    return replace(MISSED, sample_id=sample, rollout=rollout)


BEFORE = [wrong("a"), right("b"), right("c", looked=False), right("d"), wrong("e"), UNSCORED]
AFTER = [right("a"), wrong("b"), right("c"), right("d", looked=False), wrong("e"), right("new")]


def evaluation(folder: Path, drawn: list[Trajectory]) -> Path:
    folder.mkdir(parents=True)
    (folder / "suite.yaml").touch()
    write_trajectories(folder / "trajectories.parquet", drawn)
    return folder


def opened(*paths: Path) -> list[Opened]:
    return [Opened(place, show=False) for path in paths for place in find_places(path)]


def test_gains_losses_and_new_looks_of_a_model_are_listed(tmp_path: Path) -> None:
    places = opened(evaluation(tmp_path / "one", BEFORE), evaluation(tmp_path / "two", AFTER))
    found = compared(places, *sides_of("0,1"))
    assert (found["samples"], found["accuracy"]) == (5, [0.6, 0.6])
    assert found["right"] == {"both": 2, "first": 1, "second": 1, "neither": 1}
    kinds = {
        kind: [row["sample"] for row in found[kind]["rows"]]
        for kind in ("gained", "lost", "found", "guessed")
    }
    assert kinds == {"gained": ["a"], "lost": ["b"], "found": ["c"], "guessed": ["d"]}
    assert found["gained"]["rows"][0]["second"] == {"key": "trajectories/0", "answer": "4"}


def test_a_sample_with_several_rollouts_is_right_if_half_of_them_are(tmp_path: Path) -> None:
    mostly = [right("a"), right("a", rollout=1), wrong("a", rollout=2)]
    seldom = [right("a"), wrong("a", rollout=1), wrong("a", rollout=2)]
    found = compared(opened(make_run(tmp_path / "run", {0: mostly, 9: seldom})), Side(0, 0), Side(0, 9))
    assert found["right"] == {"both": 0, "first": 1, "second": 0, "neither": 0}
    (row,) = found["lost"]["rows"]
    # The rollout that is shown has the outcome that the sample counts as.
    assert (row["first"]["answer"], row["second"]["answer"]) == ("4", "7")


def test_the_ends_of_a_run_and_neighbouring_evaluations_are_suggested(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {0: BEFORE, 4: AFTER, 9: AFTER})
    folders = [evaluation(tmp_path / name, BEFORE) for name in ("a", "b", "c")]
    found = suggested(opened(run, *folders))
    assert [f"{one},{two}" for one, two in found] == ["1,2", "2,3", "0:0,0:9"]


def test_only_runs_with_common_samples_are_suggested(tmp_path: Path) -> None:
    other = [right("x"), right("y")]
    drawn = {"a": BEFORE, "other": other, "part": BEFORE[:2], "b": AFTER, "more": other, "none": [UNSCORED]}
    folders = [evaluation(tmp_path / name, rows) for name, rows in drawn.items()]
    epochs = make_run(tmp_path / "run", {0: BEFORE, 9: other})
    places = opened(*folders, epochs)
    found = suggested(places)
    # Of the two before `b`, it shares more with the more distant one.
    assert [f"{one},{two}" for one, two in found] == ["0,2", "0,3", "1,4"]
    assert all(compared(places, *sides)["samples"] for sides in found)
    assert [f"{one},{two}" for one, two in suggested(places, [2, 3, 4])] == ["2,3"]
    assert [f"{one},{two}" for one, two in suggested(places, [2, 2, 6, 3, 6])] == ["2,3"]
    assert suggested(places, [0, 0]) == []
    page = TestClient(app_of(places, TOKEN), base_url=f"{HERE}/{TOKEN}/")
    assert page.get("api/pairs").json() == ["0,2", "0,3", "1,4"]
    assert page.get("api/pairs", params={"places": "2,3,99"}).json() == ["2,3"]
    assert page.get("api/pairs", params={"places": ""}).json() == []
    assert page.get("api/pairs", params={"places": "2,x"}).status_code == 422
    write_page(folders, tmp_path / "page.html", trajectories=0)
    assert list(held(tmp_path / "page.html")["pairs"]) == ["0,2", "0,3", "1,4"]


@pytest.mark.parametrize("text", ["", "0", "0,1,2", "a,b", "-1,0", "0:x,1", "0,7", "9" * 40 + ",0"])
def test_a_comparison_without_two_sides_is_refused(tmp_path: Path, text: str) -> None:
    run = make_run(tmp_path / "run", {0: BEFORE})
    assert client(run).get("api/pair", params={"sides": text}).status_code == 422
    with pytest.raises(DataError):
        compared(opened(run), *sides_of(text))


def test_an_html_file_holds_the_suggested_comparisons_and_their_trajectories(
    tmp_path: Path,
) -> None:
    run = make_run(tmp_path / "run", {0: BEFORE, 9: AFTER})
    write_page([run], tmp_path / "page.html", trajectories=0)
    values = held(tmp_path / "page.html")
    (pair,) = values["pairs"].values()
    keys = {
        row[side]["key"]
        for kind in ("gained", "lost")
        for row in pair[kind]["rows"]
        for side in ("first", "second")
    }
    assert keys
    assert {f"0/{key}" for key in keys} <= set(values["ones"])


def test_the_viewer_serves_comparisons(tmp_path: Path) -> None:
    page: TestClient = client(make_run(tmp_path / "run", {0: BEFORE, 9: AFTER}))
    assert page.get("api/pair", params={"sides": "0:0,0:9"}).json()["samples"] == 5
