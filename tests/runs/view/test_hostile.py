"""A trajectory cannot control the program that shows it: server, HTML file, terminal, trackers."""

import re
import time
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.runs.commands import vtune
from tests.runs.view.test_page import held
from tests.runs.view.test_tokens import client
from tests.view.hostile import LONG, STEERING, TEXT, hostile_trajectories, make_hostile_run
from vtune.metrics.trackers import Tracker
from vtune.runs.view.page import write_page

BROKEN = 8
"""Number of pictures that cannot be shown."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_hostile_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def page(run: Path) -> TestClient:
    return client(run)


def test_the_viewer_sends_texts_as_json_and_pictures_only_as_png(page: TestClient) -> None:
    for path in ("api/places", "api/0/run", "api/0/list", "api/films", "api/0/one/step-000000/0"):
        answer = page.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("application/json")
        assert answer.content.isascii()
    one = page.get("api/0/one/step-000000/0").json()
    assert one["calls"][0]["error"] == TEXT
    pictures = page.get("api/0/one/step-000000/2").json()["pictures"]
    assert [bool(picture["problem"]) for picture in pictures] == [True] * BROKEN + [False]
    began = time.monotonic()
    for index, picture in enumerate(pictures):
        found = page.get(f"api/0/picture/{index}/step-000000/2")
        assert found.status_code == (422 if picture["problem"] else 200)
        assert found.headers["content-type"] in ("application/json", "image/png", "image/jpeg")
    assert time.monotonic() - began < 30


def test_a_line_of_10_mb_is_shown_by_its_beginning_and_end(page: TestClient) -> None:
    answer = page.get("api/0/one/step-000000/1")
    assert len(answer.content) < 1_000_000
    (text,) = (
        part["text"]
        for turn in answer.json()["turns"]
        for part in turn["parts"]
        if "AAAA" in part.get("text", "")
    )
    assert f"[… {LONG - 20_000} characters are left out …]" in text
    listed = page.get("api/0/list")
    assert len(listed.content) < 1_000_000
    assert page.get("api/0/list", params={"q": "AAAAAAAAAA"}).json()["found"] == 1


def test_an_html_file_holds_hostile_content_as_text(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    write_page([run], out)
    text = out.read_text()
    body = text.split("<body>")[1]
    assert len(re.findall(r"<script\b", body)) == 2
    values = body.split('id="held"')[1].split("</script>")[0]
    assert "<" not in values
    assert not set(text) & STEERING
    assert any(one["calls"] and one["calls"][0]["error"] == TEXT for one in held(out)["ones"].values())
    assert len(text) < 5_000_000


def test_no_command_lets_it_control_the_terminal(run: Path, tmp_path: Path) -> None:
    file = run / "trajectories" / "step-000000.parquet"
    for words in (
        ("show", str(run)),
        ("show", str(run), "step-000000/0"),
        ("show", str(run), "step-000000/1"),
        ("show", str(run), "step-000000/2"),
        ("data", "inspect", str(file)),
        ("watch", str(run), "--once"),
        ("report", str(run)),
        ("report", str(run), "--all"),
    ):
        shown = vtune(*words)
        assert shown.code == 0, shown.err
        assert not set(shown.out + shown.err) & STEERING, words
        assert "http://evil.example" not in shown.out or "\\x1b]8;;" in shown.out
        assert len(shown.out) < 1_000_000


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb", "trackio"])
def test_trackers_get_it_as_text_and_broken_pictures_affect_no_others(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"TRACKIO_DIR": str(tmp_path / "trackio"), "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    settings |= {"MLFLOW_TRACKING_URI": (tmp_path / "store").as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}
    for key, value in {**settings, "HF_HUB_OFFLINE": "1"}.items():
        monkeypatch.setenv(key, value)
    pytest.importorskip(name)
    told: list[str] = []
    with Tracker(name, tmp_path, {}, first_step=0, warn=told.append) as tracker:
        tracker.numbers(0, {TEXT: {"reward": 1.0}, "all": {"reward": 0.5}})
        tracker.trajectories(0, hostile_trajectories(), tmp_path / "trajectories" / "step-000000.parquet")
    assert (tracker.failures, told) == (0, [])
    for text in {"tensorboard": from_tensorboard, "mlflow": from_mlflow}.get(name, lambda _: [])(tmp_path):
        assert not set(text) & STEERING
        assert "evil" not in text or "\\u202eevil" in text


def from_tensorboard(folder: Path) -> list[str]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.text.text_plugin import text_array_to_html
    from tensorboard.util import tensor_util

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    said = []
    for tag in events.Tags()["tensors"]:
        for event in events.Tensors(tag):
            html = text_array_to_html(tensor_util.make_ndarray(event.tensor_proto), True)
            # What TensorBoard's page shows: Markdown converted to HTML.
            assert not re.search(r"<(?:img|a|script|svg|iframe|style)\b", html)
            said.append(html)
    assert len(said) > 3
    return said


def from_mlflow(folder: Path) -> list[str]:
    texts = [file.read_text() for file in (folder / "store").rglob("*.txt")]
    assert len(texts) > 3
    return texts
