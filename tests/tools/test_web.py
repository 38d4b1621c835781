"""The web search against a server that answers like Serper."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.listening import listening
from vtune.errors import DataError, ServiceError
from vtune.tools.engines import SPARE
from vtune.tools.http import Patience
from vtune.tools.passage import Passage
from vtune.tools.web import Web

PATIENCE = Patience(timeout_s=60, retries=2, deadline_s=60, concurrency=2)
FOUND = Passage("https://a.example", "A ferry", "It sails.\nhttps://a.example")


@contextmanager
def serper(
    *statuses: int, body: bytes | None = None, packed: str | None = None
) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """Run a server; yield its URL and (key, question) of every request. It answers with these statuses, then
    200.

    Args:
        statuses: Statuses of its first answers.
        body: Body of all answers; None: the search results.
        packed: Its `Content-Encoding`.
    """
    asked: list[tuple[str, Any]] = []
    left = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.headers["X-API-KEY"], question))
            self.send_response(left.pop(0) if left else 200)
            if packed is not None:
                self.send_header("Content-Encoding", packed)
            self.end_headers()
            found = [{"title": "A ferry", "link": "https://a.example", "snippet": "It sails."}] * 2
            answer = json.dumps({"organic": found if question["q"] == "ferry" else []}).encode()
            self.wfile.write(answer if body is None else body)

        def log_message(self, *_: object) -> None:
            pass

    with listening(Handler) as port:
        yield f"http://127.0.0.1:{port}", asked


def search(url: str, record: Path, *queries: str, key: str | None = "k", **changes: Any) -> list[Any]:
    """The results or the error of each query, all sent concurrently."""

    async def main() -> list[Any]:
        settings = {"recorded": (), "max_requests": 9} | changes
        web = Web(key, PATIENCE, record=record, url=url, **settings)
        try:
            return await asyncio.gather(*(web.search(query, 1) for query in queries), return_exceptions=True)
        finally:
            await web.aclose()

    return asyncio.run(main())


def test_the_web_is_asked_once_and_its_answers_are_recorded(tmp_path: Path) -> None:
    record = tmp_path / "run" / "search.jsonl"
    with serper() as (url, asked):
        assert search(url, record, "ferry", "ferry", "volcano") == [[FOUND], [FOUND], []]
        assert sorted(question["q"] for _, question in asked) == ["ferry", "volcano"]
        assert asked[0][0] == "k"
        assert search(url, record, "ferry") == [[FOUND]]
        assert len(asked) == 2
    # Without a key and without web access.
    assert search("http://127.0.0.1:1", tmp_path / "new.jsonl", "ferry", key=None, recorded=[record]) == [
        [FOUND]
    ]
    (missing,) = search("http://127.0.0.1:1", tmp_path / "new.jsonl", "island", key=None, recorded=[record])
    assert isinstance(missing, ServiceError)
    assert "on record" in missing.what


def test_blocked_hosts_are_never_shown_whether_live_or_recorded(tmp_path: Path) -> None:
    record = tmp_path / "search.jsonl"
    host = FOUND.id.split("/")[2]
    with serper() as (url, _):
        assert search(url, record, "ferry", blocked=(host,)) == [[]]
        assert search(url, record, "ferry", blocked=(f"other-{host}",)) == [[FOUND]]
    assert search("http://127.0.0.1:1", record, "ferry", key=None, blocked=(host,)) == [[]]


def test_blocked_results_leave_no_gaps(tmp_path: Path) -> None:
    record = tmp_path / "search.jsonl"
    rows = [{"title": name, "link": f"https://{name}.example", "snippet": "?"} for name in "abc"]
    with serper(body=json.dumps({"organic": rows}).encode()) as (url, asked):
        ((shown,),) = search(url, record, "ferry", blocked=("a.example",))
        assert asked[0][1] == {"q": "ferry", "num": 1 + SPARE}
        assert shown.title == "b"
    ((replayed,),) = search("http://127.0.0.1:1", record, "ferry", key=None)
    assert replayed.title == "a"


@pytest.mark.parametrize(("top_k", "asked_for"), [(3, 8), (5, 10), (8, 10), (10, 10), (12, 12)])
def test_spare_results_of_serper_do_not_cost_a_second_credit(
    tmp_path: Path, top_k: int, asked_for: int
) -> None:
    async def main(url: str) -> None:
        web = Web("k", PATIENCE, record=tmp_path / "s.jsonl", recorded=(), max_requests=1, url=url)
        await web.search("ferry", top_k)
        await web.aclose()

    with serper() as (url, asked):
        asyncio.run(main(url))
        assert [question["num"] for _, question in asked] == [asked_for]


def test_the_budget_applies_to_the_whole_run(tmp_path: Path) -> None:
    record = tmp_path / "search.jsonl"
    with serper() as (url, asked):
        found = search(url, record, "ferry", "a", "b", max_requests=2)
        assert sum(isinstance(one, ServiceError) for one in found) == 1
        assert len(asked) == 2
        (after_resume,) = search(url, record, "c", max_requests=2)
        assert "budget of 2" in str(after_resume)
        assert len(asked) == 2


def test_a_failed_query_costs_nothing(tmp_path: Path) -> None:
    async def main(url: str) -> list[list[Passage] | BaseException]:
        web = Web("k", PATIENCE, record=tmp_path / "s.jsonl", recorded=(), max_requests=1, url=url)
        try:
            return [
                (await asyncio.gather(web.search(query, 1), return_exceptions=True))[0]
                for query in ("ferry", "ferry", "ferry", "a")
            ]
        finally:
            await web.aclose()

    with serper(403, 403) as (url, asked):
        *failed, found, over = asyncio.run(main(url))
        assert ["HTTP 403" in str(error) for error in failed] == [True, True]
        assert found == [FOUND]
        assert "budget of 1 requests is spent" in str(over)
        assert len(asked) == 3


def test_a_busy_api_is_retried_but_a_refusal_is_not(tmp_path: Path) -> None:
    with serper(429, 500) as (url, asked):
        assert search(url, tmp_path / "a.jsonl", "ferry") == [[FOUND]]
        assert len(asked) == 3
    with serper(403) as (url, asked):
        (refused,) = search(url, tmp_path / "b.jsonl", "ferry")
        assert "HTTP 403" in str(refused)
        assert len(asked) == 1
    assert not (tmp_path / "b.jsonl").exists()


def test_an_unreadable_answer_is_a_service_error(tmp_path: Path) -> None:
    with serper(body=b"<html>a proxy</html>", packed="gzip") as (url, asked):
        (unpackable,) = search(url, tmp_path / "a.jsonl", "ferry")
        assert isinstance(unpackable, ServiceError)
        assert "DecodingError" in unpackable.what
        assert len(asked) == 3  # a proxy's error may be temporary
    for body in (b"[" * 200_000 + b"]" * 200_000, b'{"organic": "\xe9"}', b"<html>"):
        with serper(body=body) as (url, asked):
            (unreadable,) = search(url, tmp_path / "b.jsonl", "ferry")
            assert isinstance(unreadable, ServiceError)
            assert "did not answer with readable JSON" in unreadable.what
            assert len(asked) == 1


@pytest.mark.parametrize("packed", ["gzip", None])
def test_an_answer_without_end_is_given_up(
    tmp_path: Path, packed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtune.tools.http.LARGEST", 2**20)
    body = bytes(3 * 2**20)
    with serper(body=gzip.compress(body) if packed else body, packed=packed) as (url, asked):
        (large,) = search(url, tmp_path / "a.jsonl", "ferry")
        assert isinstance(large, ServiceError)
        assert "the web search answers with more than 1 MiB" in large.what
        assert len(asked) == 1


def test_an_answer_without_a_list_of_results_is_a_failure_and_not_an_empty_result(tmp_path: Path) -> None:
    with serper(body=b'{"message": "Not enough credits"}') as (url, asked):
        (failed,) = search(url, tmp_path / "a.jsonl", "ferry")
        assert isinstance(failed, ServiceError)
        assert "Not enough credits" in failed.what
        assert "credits" in failed.fix
        assert len(asked) == 3
    assert not (tmp_path / "a.jsonl").exists()


def test_serper_may_leave_its_list_out_where_it_finds_nothing(tmp_path: Path) -> None:
    with serper(body=b'{"searchParameters": {"q": "ferry"}, "credits": 1}') as (url, asked):
        assert search(url, tmp_path / "a.jsonl", "ferry") == [[]]
        assert search(url, tmp_path / "a.jsonl", "ferry") == [[]]
        assert len(asked) == 1


def test_a_truncated_record_loses_only_its_last_line(tmp_path: Path) -> None:
    record = tmp_path / "search.jsonl"
    with serper() as (url, asked):
        search(url, record, "ferry", "a")
        lines = record.read_text()
        record.write_text(lines[:-5])
        known = [json.loads(line)["query"] for line in record.read_text().split("\n")[:-1]]
        assert len(known) == 1
        search(url, record, "ferry", "a")
        assert len(asked) == 3
    assert record.read_text() == lines
    record.write_text("{}\n")
    with pytest.raises(DataError, match="not a recorded search"):
        search("http://127.0.0.1:1", record, "ferry")


def test_a_record_truncated_within_a_character_is_repaired(tmp_path: Path) -> None:
    record = tmp_path / "search.jsonl"
    with serper() as (url, _):
        search(url, record, "ferry")
        whole = record.read_bytes()
        record.write_bytes(whole + '{"query": "é'.encode()[:-1])
        assert search(url, record, "ferry") == [[FOUND]]
    assert record.read_bytes() == whole


def test_a_windows_record_is_read_and_one_that_is_not_utf_8_is_reported(tmp_path: Path) -> None:
    record = tmp_path / "search.jsonl"
    with serper() as (url, _):
        search(url, record, "ferry")
    lines = record.read_bytes()
    record.write_bytes(b"\xef\xbb\xbf" + lines.replace(b"\n", b"\r\n"))
    assert search("http://127.0.0.1:1", record, "ferry") == [[FOUND]]
    for damaged in (lines + lines.replace(b"ferry", b"\xe9t\xe9"), lines + gzip.compress(lines)):
        record.write_bytes(damaged)
        with pytest.raises(DataError, match=r"not a recorded search\n.*search\.jsonl:2\n.*decompress"):
            search("http://127.0.0.1:1", record, "ferry")


def test_a_record_is_ascii_so_that_truncation_breaks_no_character(tmp_path: Path) -> None:
    record = tmp_path / "search.jsonl"
    with serper() as (url, asked):
        assert search(url, record, "fête 塔") == [[]]
        assert search(url, record, "fête 塔") == [[]]
        assert len(asked) == 1
    assert record.read_bytes().isascii()
