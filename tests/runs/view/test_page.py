import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.runs.commands import vtune
from tests.runs.view.test_show import hostile
from tests.schema.records import SAMPLE
from tests.view.runs import LOOKED, MISSED, make_run, png
from vtune.cli.main import app
from vtune.errors import DataError, RecipeError
from vtune.runs.view import page
from vtune.runs.view.page import write_page
from vtune.schema.message import Picture
from vtune.schema.parquet import write_samples, write_trajectories
from vtune.view.bundle import bundled


def held(page: Path) -> dict[str, object]:
    found = re.search(r'<script id="held" type="application/json">(.*?)</script>', page.read_text())
    assert found
    return json.loads(found[1])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", {0: [MISSED, *[LOOKED] * 6], 4: [hostile(), LOOKED]})


def test_a_page_holds_a_limited_number_and_says_so(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    result = json.loads(vtune("report", str(run), "--html", str(out), "--trajectories", "3", "--json").out)
    values = held(out)
    assert (result["trajectories"], result["of"]) == (len(values["ones"]), 9)
    assert result["trajectories"] < 9
    assert f"{result['trajectories']} of 9 trajectories" in values["note"]
    (film,) = values["films"]
    assert [frame["step"] for frame in film["frames"]] == [0, 4]
    assert {f"0/{frame['key']}" for frame in film["frames"]} <= set(values["ones"])
    assert values["places"][0]["there"] == 9
    assert {document["rollouts"] for name, document in values["ones"].items() if "/step-000000/" in name} == {
        7
    }
    siblings = [one["key"] for document in values["ones"].values() for one in document["siblings"]]
    assert {f"0/{key}" for key in siblings} <= set(values["ones"])


def test_every_run_of_a_page_keeps_its_best_film(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "FILMS", 1)
    monkeypatch.setattr(page, "OWN_FRAMES", 8)
    for number in range(4):
        # The film over all places is of the first two, and the last two share another one.
        sample = "lens/a" if number < 2 else "lens/b"
        missed, looked = (replace(one, sample_id=sample) for one in (MISSED, LOOKED))
        steps = {0: [missed], 1: [missed], 2: [looked], 3: [looked]}
        make_run(tmp_path / "runs" / str(number), steps if number < 2 else {**steps, 4: [looked]})
    write_page([tmp_path / "runs"], tmp_path / "page.html", trajectories=0)
    values: Any = held(tmp_path / "page.html")
    frames = [frame for one in values["films"] for frame in one["frames"]]
    steps_of = [[frame["step"] for frame in frames if frame["place"] == place] for place in range(4)]
    assert steps_of == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 4], [0, 4]]
    assert [one["sample"] for one in values["films"]] == ["lens/a", "lens/b"]
    assert {f"{frame['place']}/{frame['key']}" for frame in frames} <= set(values["ones"])


def test_a_page_of_a_long_run_has_means_of_steps_and_says_so(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "POINTS", 3)
    rewards = [0.0, 1.0, 2.0, 4.0, 5.0, 9.0, 7.0]
    lines = [{"step": step, "source": "all", "reward": reward} for step, reward in enumerate(rewards)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_page([run], tmp_path / "page.html")
    values: Any = held(tmp_path / "page.html")
    shown = {"steps": [3, 6], "values": [1.75, 7.0], "width": 4}
    assert values["runs"][0]["sources"]["all"]["reward"] == shown


def test_a_page_of_many_curves_has_fewer_points_of_each(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "NUMBERS", 12)
    monkeypatch.setattr(page, "FEWEST", 2)
    lines = [
        {"step": step, "source": source, "reward": 1.0, "accuracy": 1.0}
        for step in range(8)
        for source in ("a", "all")
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_page([run], tmp_path / "page.html")
    values: Any = held(tmp_path / "page.html")
    curves = [one for source in values["runs"][0]["sources"].values() for one in source.values()]
    assert [one["steps"] for one in curves] == [[3, 7]] * 4


def test_a_page_in_the_folder_of_its_run_can_be_written_again(run: Path) -> None:
    page, data = run / "page.html", next(run.glob("trajectories/*.parquet"))
    for _ in range(2):
        assert write_page([run], page, trajectories=1)["trajectories"] >= 1
    with pytest.raises(RecipeError, match="an input of this command"):
        write_page([run], data)


def test_evidence_comes_from_the_data_that_are_named(tmp_path: Path) -> None:
    out, data, file = (tmp_path / name for name in ("page.html", "data.parquet", "stored.parquet"))
    write_samples(data, [replace(SAMPLE, id="lens/7", images=(Picture(data=png()),))])
    write_trajectories(file, [LOOKED])
    assert vtune("report", str(file), "--html", str(out), "--data", str(data)).code == 0
    (one,) = held(out)["ones"].values()
    assert one["asked"]["evidence"] == [{"label": "sign", "picture": 0, "box": [1.0, 2.0, 30.0, 40.0]}]


@pytest.mark.parametrize(
    "words",
    [
        ("report", "runs/x", "--all", "--html", "page.html"),
        ("report", "runs/x", "--all", "--credit"),
        ("report", "runs/x", "--trajectories", "3"),
        ("report", "runs/x", "--data", "some.parquet"),
        ("faithfulness", "runs/x", "--all", "--csv"),
        ("faithfulness", "runs/x", "--all", "--latex"),
    ],
)
def test_an_option_without_effect_is_refused(words: tuple[str, ...]) -> None:
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 2
    assert "Invalid value for" in ended.output


def test_equal_pictures_are_stored_once(run: Path, tmp_path: Path) -> None:
    write_page([run], tmp_path / "page.html")
    values = held(tmp_path / "page.html")
    assert len(values["shown"]) == 18
    assert len(values["pictures"]) == 2


def test_trajectory_text_is_never_markup(run: Path, tmp_path: Path) -> None:
    write_page([run], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "alert(1)" in text
    assert "<script>alert" not in text
    assert len(re.findall(r"<script\b", text.split("<body>")[1])) == 2
    assert not set(text) & {"\x1b", "\x07", "\u202e"}


def test_a_page_makes_no_requests(run: Path, tmp_path: Path) -> None:
    write_page([run], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "default-src 'none'" in text
    assert not re.search(r'(?:src|href)="(?!data:|#)[^"]', text)


def test_a_broken_picture_is_reported(tmp_path: Path) -> None:
    broken = replace(LOOKED, images=(replace(LOOKED.images[0], data=b"\x89PNG broken"), LOOKED.images[1]))
    run = make_run(tmp_path / "run", {0: [broken]})
    write_page([run], tmp_path / "page.html")
    (document,) = held(tmp_path / "page.html")["ones"].values()
    assert document["pictures"][0]["problem"]


def test_a_damaged_run_does_not_stop_the_page(run: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", {0: [LOOKED]})
    (other / "metrics.jsonl").write_text("broken\n{}\n")
    write_page([run, other], tmp_path / "page.html")
    assert ["metrics.jsonl" in one["problem"] for one in held(tmp_path / "page.html")["runs"]] == [
        False,
        True,
    ]


def test_a_damaged_file_does_not_hide_others(run: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    first, *_ = files = sorted((run / "trajectories").glob("*.parquet"))
    first.write_bytes(first.read_bytes()[:-100])
    write_page([run], page)
    assert first.name in held(page)["runs"][0]["problem"]
    assert held(page)["ones"]
    for file in files:
        file.write_bytes(b"PAR1")
    with pytest.raises(DataError, match="the Parquet file is cut short") as caught:
        write_page([run], page)
    assert str(run) in caught.value.where
    assert caught.value.fix


def test_a_page_overwrites_no_input(run: Path) -> None:
    with pytest.raises(RecipeError):
        write_page([run], run / "metrics.jsonl")


def test_modules_are_bundled_once_each_before_their_users() -> None:
    script = bundled("app.js")
    order = re.findall(r"^const module_(\w+) = await", script, re.MULTILINE)
    assert len(order) == len(set(order)) > 5
    assert order[-1] == "app"
    assert order.index("dom") < order.index("chart") < order.index("run")
    assert not re.search(r"^(?:import|export) ", script, re.MULTILINE)
