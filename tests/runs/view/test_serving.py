import asyncio
import json
import socket
import threading
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import httpx2
import pytest
from PIL import Image
from starlette.testclient import TestClient

from tests.runs.view.test_show import hostile
from tests.view.runs import LOOKED, MISSED, make_run
from vtune.errors import RecipeError
from vtune.runs.view import serving
from vtune.runs.view.opened import Opened
from vtune.runs.view.serving import app_of, run_view
from vtune.schema.labels import read_labels
from vtune.schema.message import Picture
from vtune.schema.parquet import write_trajectories
from vtune.view.gate import HEADERS, refused
from vtune.view.place import find_places

TOKEN = "the-token"
HERE = "http://127.0.0.1:8195"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    broken = replace(MISSED, images=(Picture(data=b"\xff\xd8broken"), Picture(path="/etc/passwd")))
    return make_run(tmp_path / "run", {0: [LOOKED, MISSED], 4: [hostile(), broken]})


@pytest.fixture
def page(run: Path) -> TestClient:
    opened = [Opened(place, show=False) for place in find_places(run)]
    return TestClient(app_of(opened, TOKEN), base_url=f"{HERE}/{TOKEN}/")


def test_a_list_a_trajectory_and_its_pictures_are_served(page: TestClient) -> None:
    (place,) = page.get("api/places").json()
    assert (place["rows"], place["facets"]["step"]) == (4, ["0", "4"])
    found = page.get("api/0/list", params={"q": "right:no sort:step"}).json()
    assert [row["key"] for row in found["trajectories"]] == [
        "step-000000/1",
        "step-000004/0",
        "step-000004/1",
    ]
    assert page.get("api/0/one/step-000000/0").json()["calls"][0]["score"] == 1.0
    picture = page.get("api/0/picture/1/step-000000/0")
    assert picture.headers["content-type"] == "image/png"
    assert Image.open(BytesIO(picture.content)).size == (16, 12)


def test_curves_of_a_long_run_are_thinned_and_those_of_a_short_one_are_not(
    page: TestClient, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [{"step": step, "source": "all", "reward": step / 3} for step in range(8)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    short = page.get("api/0/run").json()["sources"]["all"]["reward"]
    assert short == {"steps": list(range(8)), "values": [step / 3 for step in range(8)]}
    monkeypatch.setattr(serving, "POINTS", 3)
    long = page.get("api/0/run").json()["sources"]["all"]["reward"]
    assert long == {"steps": [3, 7], "values": [0.5, 1.83333], "width": 4}


def test_long_texts_are_compressed_if_accepted_and_pictures_are_not(
    page: TestClient, monkeypatch: pytest.MonkeyPatch, run: Path
) -> None:
    place = page.get("api/places")
    assert "content-encoding" not in place.headers
    monkeypatch.setattr(serving, "PACKED", len(place.content))
    opened = [Opened(found, show=False) for found in find_places(run)]
    packing = TestClient(app_of(opened, TOKEN), base_url=f"{HERE}/{TOKEN}/")
    packed = packing.get("api/places")
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(place.content)
    assert packed.json()[0]["facets"] == place.json()[0]["facets"]
    assert HEADERS.items() <= dict(packed.headers).items()
    plain = packing.get("api/places", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    monkeypatch.setattr(serving, "PACKED", 1)
    packing = TestClient(app_of(opened, TOKEN), base_url=f"{HERE}/{TOKEN}/")
    assert "content-encoding" not in packing.get("api/0/picture/1/step-000000/0").headers


def test_additions_to_a_run_appear_at_the_next_request(page: TestClient, run: Path) -> None:
    before = page.get("api/places").json()[0]["revision"]
    write_trajectories(run / "trajectories" / "step-000009.parquet", [LOOKED])
    (place,) = page.get("api/places").json()
    assert place["rows"] == 5
    assert place["revision"] != before


def test_a_step_being_repeated_is_missing_without_a_viewer_error(page: TestClient, run: Path) -> None:
    keys = [row["key"] for row in page.get("/api/0/list").json()["trajectories"]]
    for file in (run / "trajectories").glob("*.parquet"):
        file.unlink()
    answered = page.get(f"/api/0/one/{keys[0]}")
    assert answered.status_code == 422
    assert "cannot be opened any more" in answered.json()["error"]
    assert answered.json()["fix"]


def test_a_label_goes_to_the_file_beside_the_run(page: TestClient, run: Path) -> None:
    said = {"label": "judge erred", "note": "it says 4"}
    assert page.post("api/0/label/step-000000/1", json=said, headers={"origin": HERE}).status_code == 200
    (label,) = read_labels(run / "labels.jsonl").values()
    assert (label.key, label.sample_id, label.label, label.note) == (
        "step-000000/1",
        "lens/7",
        *said.values(),
    )
    assert page.get("api/0/one/step-000000/1").json()["label"] == said
    for wrong in ({"label": "great", "note": ""}, {"label": "right"}, [], {"label": ["right"], "note": ""}):
        sent = page.post("api/0/label/step-000000/1", json=wrong, headers={"origin": HERE})
        assert sent.status_code == 422
    assert len(read_labels(run / "labels.jsonl")) == 1
    cut = b'{"label": "wrong", "note": "half of it: \\ud83d"}'
    sent = page.post(
        "api/0/label/step-000000/1",
        content=cut,
        headers={"origin": HERE, "content-type": "application/json"},
    )
    assert sent.status_code == 200
    assert read_labels(run / "labels.jsonl")["step-000000/1"].note == "half of it: ?"


def test_other_pages_are_answered_while_a_label_waits_for_its_file(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, answered = threading.Event(), threading.Event()

    def write(*_: object) -> None:
        waiting.set()
        assert answered.wait(5), "nothing else is answered meanwhile"

    monkeypatch.setattr(serving, "append_label", write)
    app = app_of([Opened(place, show=False) for place in find_places(run)], TOKEN)

    async def label_and_list() -> tuple[int, int]:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url=f"{HERE}/{TOKEN}/") as page:
            said = {"label": "wrong", "note": ""}
            sending = page.post("api/0/label/step-000000/1", json=said, headers={"origin": HERE})
            label = asyncio.create_task(sending)
            await asyncio.to_thread(waiting.wait, 5)
            listed = await page.get("api/0/list")
            answered.set()
            return listed.status_code, (await label).status_code

    assert asyncio.run(label_and_list()) == (200, 200)


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"host": "evil.example"}, 421),
        ("GET", {"host": "127.0.0.1.evil.example:8195"}, 421),
        ("GET", {"host": "[::1"}, 421),
        ("GET", {}, 421),
        ("GET", {"host": "localhost:9000"}, None),
        ("GET", {"host": "127.0.0.1:1", "origin": "http://evil.example"}, 403),
        ("GET", {"host": "127.0.0.1:1", "origin": "http://127.0.0.1:2"}, 403),
        ("GET", {"host": "127.0.0.1:1", "origin": "null"}, 403),
        ("GET", {"host": "127.0.0.1:1", "sec-fetch-site": "cross-site"}, 403),
        ("GET", {"host": "127.0.0.1:1", "sec-fetch-site": "same-site"}, 403),
        ("POST", {"host": "127.0.0.1:1", "content-type": "application/json", "content-length": "2"}, 403),
        ("POST", {"host": "127.0.0.1:1", "origin": "http://127.0.0.1:1", "content-length": "2"}, 403),
    ],
)
def test_other_hosts_and_origins_are_refused(
    method: str, headers: dict[str, str], status: int | None
) -> None:
    found = refused(method, headers)
    assert (None if found is None else found[0]) == status


def test_without_the_token_nothing_is_served(page: TestClient) -> None:
    for path in (f"{HERE}/", f"{HERE}/api/places", f"{HERE}/the-toke/api/places", f"{HERE}/app.js"):
        assert page.get(path).status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e/recipe.yaml",
        "static/app.js",
        "recipe.yaml",
        "docs",
    ],
)
def test_no_path_leads_to_a_file(page: TestClient, path: str) -> None:
    answer = page.get(f"{HERE}/{TOKEN}/{path}")
    assert answer.status_code in (403, 404)
    assert b"root:" not in answer.content


def test_broken_and_foreign_pictures_are_refused_with_a_reason(page: TestClient) -> None:
    one = page.get("api/0/one/step-000004/1").json()
    assert all(picture["problem"] for picture in one["pictures"])
    for index in (0, 1, 7, -1):
        answer = page.get(f"api/0/picture/{index}/step-000004/1")
        assert answer.status_code == 422
        assert answer.headers["content-type"] == "application/json"


def test_every_answer_is_guarded_and_in_ascii(page: TestClient) -> None:
    for path in ("", "app.js", "api/places", "api/0/one/step-000004/0", "api/0/list?q=rihgt:no"):
        answer = page.get(path)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert answer.content.isascii() or answer.headers["content-type"].startswith("text/")
    assert b"<script>alert" in page.get("api/0/one/step-000004/0").content  # as JSON, which is never executed
    assert json.loads(page.get("api/0/list?q=rihgt:no").content)["fix"] == "did you mean `right`?"


def test_a_port_in_use_is_reported_with_the_right_option(run: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(RecipeError) as refused:
        run_view([run], taken.getsockname()[1], data=(), ready=lambda facts: None)
    assert "cannot listen on" in refused.value.what
    assert refused.value.fix == "choose another --port (0 takes a free one)"
