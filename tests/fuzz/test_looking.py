"""`vtune show`, `view` and `report --html` report what is wrong with damaged runs."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.fuzz.test_bad_inputs import STEERING
from tests.fuzz.world import ESCAPES, NESTED
from tests.runs.commands import Ended, vtune
from tests.runs.view.test_serving import HERE, TOKEN
from tests.view.runs import LOOKED, MISSED, make_run
from vtune.runs.view.opened import Opened
from vtune.runs.view.serving import app_of
from vtune.schema.parquet import write_trajectories
from vtune.view.place import find_places

ESTIMATE = {"value": 0.5, "low": 0.4, "high": 0.6, "n": 10}
RESULTS: dict[str, Any] = {
    "model": "m",
    "samples": 10,
    "limit": None,
    "score": {"score": 0.5, "intervals": {"score": ESTIMATE}},
    "sources": {"lens": {"score": 0.5}},
    "faithfulness": {
        "accuracy": ESTIMATE,
        "buckets": [{"calls": "0", "share": ESTIMATE, "accuracy": None}],
        "no_shares": None,
    },
    "unaudited": {},
    "judged_by": {"boxes": 1},
    "suite": {"published": None, "data": ["a.parquet"]},
    "environment": {"uses": {}},
}
MADE_UP = {"value": "x", "low": [], "high": None}
ODD: tuple[Any, ...] = (None, [], "x", 7, True, [[]], [{}], {"a": 1}, MADE_UP, 1e999)
"""Values to put in place of each value of `RESULTS`; 1e999 is written as Infinity."""


def paths(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in nested mappings and lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    inner = [path for name, one in items for path in paths(one, (*place, name))]
    return [place, *inner] if place else inner


def fine(ended: Ended) -> str:
    """The output of a command that may fail but not crash; an unexpected exception would propagate."""
    told = ended.out + ended.err
    assert ended.code in (0, 2), told
    assert "Traceback" not in told
    assert not STEERING.search(told)
    return told


@pytest.mark.parametrize("place", paths(RESULTS), ids=lambda place: ".".join(map(str, place)))
def test_malformed_results_give_a_page_or_an_error_that_names_the_file(
    place: tuple[Any, ...], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "suite.yaml").write_text("{}\n")
    write_trajectories(run / "trajectories.parquet", [LOOKED])
    for odd in ODD:
        results = json.loads(json.dumps(RESULTS))
        inside = results
        for name in place[:-1]:
            inside = inside[name]
        inside[place[-1]] = odd
        (run / "results.json").write_text(json.dumps(results))
        for words in (["report", run], ["report", run, "--html", tmp_path / "page.html"]):
            ended = vtune(*words)
            told = fine(ended)
            assert ended.code == 0 or "results.json" in told, (odd, told)


LINES: dict[str, str] = {
    "nan": '{"step": 0, "source": "all", "reward": NaN}\n',
    "infinite": '{"step": 0, "source": "all", "reward": 1e999}\n',
    "beyond": '{"step": 0, "source": "all", "reward": ' + "9" * 400 + "}\n",
    "nested": NESTED + "\n",
    "a list": "[]\n",
    "escapes": json.dumps({"step": 0, "source": ESCAPES, ESCAPES: 1.0}) + "\n",
    "steps": '{"step": 1, "source": "all", "reward": 1}\n{"step": -5, "source": "all", "reward": 1}\n',
}


@pytest.mark.parametrize("name", LINES)
def test_malformed_metrics_give_a_page_or_an_error(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {0: [LOOKED]})
    (run / "metrics.jsonl").write_text(LINES[name])
    for words in (["report", run, "--html", tmp_path / "page.html"], ["report", run], ["show", run]):
        fine(vtune(*words))


@pytest.mark.parametrize(
    "text", ["steps: " + "9" * 400, "model: [1]", "model: {a: b}", "- a", "data: [[1]]", ""]
)
def test_malformed_recipes_are_tolerated(text: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {0: [LOOKED]})
    (run / "recipe.yaml").write_text(text + "\n")
    for words in (["show", run], ["report", run], ["report", run, "--html", tmp_path / "page.html"]):
        fine(vtune(*words))
    page = viewer(run)
    assert page.get("api/0/run").status_code == 200
    assert page.get("api/0/tokens/step-000000/0").status_code == 200


def viewer(run: Path) -> TestClient:
    opened = [Opened(place, show=False) for place in find_places(run)]
    return TestClient(app_of(opened, TOKEN), base_url=f"{HERE}/{TOKEN}/")


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[:-100],
    "cut in data": lambda content: content[: len(content) // 3] + content[-2000:],
    "middle": lambda content: content[:200] + bytes(200) + content[400:],
    "footer": lambda content: content[:-8] + b"\xff\xff\xff\x7f" + content[-4:],
    "empty": lambda _: b"",
    "noise": lambda content: os.urandom(64) + content[64:-64] + os.urandom(64),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_file_damaged_while_the_viewer_runs_affects_nothing_else(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {0: [LOOKED, MISSED], 4: [LOOKED]})
    other = make_run(tmp_path / "other", {0: [LOOKED]})
    page = viewer(tmp_path)
    file = run / "trajectories" / "step-000004.parquet"
    whole = file.read_bytes()
    file.write_bytes(DAMAGES[name](whole))
    for _ in range(2):
        places = {place["name"]: place for place in page.get("api/places").json()}
        assert places["other"]["problem"] == ""
        number = places["run"]["number"]
        found = page.get(f"api/{number}/list").json()
        # Damage in the middle of the file may not affect the columns that the list needs.
        if found["found"] != 3:
            assert "step-000004.parquet" in places["run"]["problem"]
            assert "step-000004.parquet" in page.get(f"api/{number}/run").json()["problem"]
            assert found["found"] == 2
        assert page.get(f"api/{number}/one/step-000000/1").status_code == 200
    assert page.get(f"api/{number}/one/step-000004/0").status_code in (200, 422)
    file.write_bytes(whole)
    os.utime(file, ns=(1, 1))
    places = {place["name"]: place for place in page.get("api/places").json()}
    assert (places["run"]["problem"], places["run"]["rows"]) == ("", 3)
    assert other.is_dir()


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_reported_by_show_and_on_the_page(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {0: [LOOKED], 4: [LOOKED]})
    make_run(tmp_path / "other", {0: [LOOKED]})
    file = run / "trajectories" / "step-000004.parquet"
    file.write_bytes(DAMAGES[name](file.read_bytes()))
    ended = vtune("show", run)
    assert ended.code == 0 or "step-000004.parquet" in ended.err
    fine(ended)
    fine(vtune("show", run, "step-000000/0"))
    ended = vtune("report", tmp_path / "run", tmp_path / "other", "--html", tmp_path / "page.html")
    fine(ended)
    assert ended.code == 0


def test_a_link_that_appears_in_a_run_does_not_hide_the_others(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {0: [LOOKED]})
    make_run(tmp_path / "other", {0: [LOOKED]})
    page = viewer(tmp_path)
    (run / "trajectories" / "step-000009.parquet").symlink_to("/etc/passwd")
    places = {place["name"]: place for place in page.get("api/places").json()}
    assert "leads out of" in places["run"]["problem"]
    assert (places["other"]["problem"], places["run"]["rows"]) == ("", 1)


def test_a_run_removed_while_the_viewer_runs_is_said_to_be_gone(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {0: [LOOKED]})
    make_run(tmp_path / "other", {0: [LOOKED]})
    page = viewer(tmp_path)
    shutil.rmtree(run)
    places = {place["name"]: place for place in page.get("api/places").json()}
    # What was read from it stays.
    assert (places["run"]["rows"], places["other"]["rows"]) == (1, 1)
    assert "it is gone: it was moved or deleted" in places["run"]["problem"]
    assert places["other"]["problem"] == ""
    assert page.get(f"api/{places['run']['number']}/run").status_code in (200, 422)
