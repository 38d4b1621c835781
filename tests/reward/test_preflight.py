import contextlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.listening import listening
from tests.reward.build import recipe
from vtune.errors import RecipeError, ServiceError
from vtune.reward.preflight import ping_services
from vtune.reward.wire import settings_of
from vtune.runs.plan.plan import _services
from vtune.runs.train.rl import check_service

NOBODY = "http://127.0.0.1:9"


@contextlib.contextmanager
def answering(status: int, body: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Run a server; yield its URL and the requests that it received."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(request | {"token": self.headers.get("Authorization")})
            packed = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(packed)))
            self.end_headers()
            self.wfile.write(packed)

        def log_message(self, *_: object) -> None:
            """Discard the log."""

    with listening(Handler) as port:
        yield f"http://127.0.0.1:{port}", asked


def test_a_service_is_pinged_with_an_empty_request_and_the_runs_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_TOKEN", "open-sesame")
    with answering(200, {"results": []}) as (url, asked):
        own = recipe(service={"urls": [url, NOBODY], "token_env": "MY_TOKEN"})
        (silent,) = ping_services(own)
        check_service(own)
    assert silent.startswith(f"{NOBODY}: ClientConnectorError")
    assert f"the others take over: {NOBODY}" in capsys.readouterr().err
    told = {"reward": json.loads(json.dumps(settings_of(own))), "items": [], "token": "Bearer open-sesame"}
    assert asked == [told, told]


@pytest.mark.parametrize(
    ("status", "said", "remedy"),
    [
        (
            401,
            {"fix": "send `Authorization: Bearer TOKEN`"},
            "set reward.service.token_env to the variable",
        ),
        (422, {"fix": "start it with the file"}, "start it with the file"),
        (422, {}, "start it with the --recipe of the run"),
    ],
)
def test_a_refusing_service_stops_a_run_before_it_begins(
    status: int, said: dict[str, str], remedy: str
) -> None:
    with answering(status, {"error": {"what": "not you"} | said}) as (url, _):
        own = recipe(service=[NOBODY, url])
        for check in (ping_services, check_service, _services):
            with pytest.raises(RecipeError, match=f"{url}: .*HTTP {status}: not you") as found:
                check(own)
            assert found.value.fix.startswith(remedy)


def test_if_no_service_answers_a_run_stops_and_a_plan_names_what_is_missing() -> None:
    with answering(500, {}) as (url, _):
        own = recipe(service=[NOBODY, url])
        with pytest.raises(ServiceError, match="no reward service answers") as found:
            check_service(own)
        assert f"{url}: HTTP 500" in found.value.where
        assert [line.split(": ")[0] for line in _services(own)] == [
            f"reward service {NOBODY}",
            f"reward service {url}",
        ]


def test_a_plan_needs_no_token_and_says_that_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_TOKEN", raising=False)
    own = recipe(service={"urls": [NOBODY], "token_env": "MY_TOKEN"})
    assert _services(own) == ["token of the reward service: no environment variable MY_TOKEN"]


def test_without_a_service_nothing_is_pinged(tmp_path: Path) -> None:
    assert ping_services(recipe()) == _services(recipe()) == []
    check_service(recipe())
