"""Search that reads pages from a fake web on 127.0.0.1: records, budgets, blocks, and hostile pages."""

import asyncio
import gzip
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from tests.rollout.build import PHOTO, SAMPLE
from tests.tools.web_server import FACT, PAGES, FakeWeb, serve_web
from vtune.errors import DataError, MissingExtra, RecipeError, RunFailed, ServiceError
from vtune.files.locks import lock
from vtune.runs.agent.tools import ToolsRecipe, check_asking, check_indexes, tools_of
from vtune.runs.evaluate.suite import EvalSuite
from vtune.tools import fetch
from vtune.tools.calls import Asked
from vtune.tools.charsets import decoded
from vtune.tools.engines import ENGINES, PICTURES, outage, read_hits
from vtune.tools.exchanges import Budget, Exchanges, Request, WebRules
from vtune.tools.fetch import Fetcher, Limits, NotRead, _is_public
from vtune.tools.hosts import is_blocked
from vtune.tools.http import Patience, retry_after
from vtune.tools.passage import Passage
from vtune.tools.result_cache import ResultCache
from vtune.tools.text_search import WebSearch
from vtune.tools.tool import SOURCES, Scene
from vtune.tools.web_pages import PageSearch, WebPages

PATIENCE = Patience(timeout_s=60, retries=0, deadline_s=60, concurrency=2)


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with serve_web(tower=["/good", "/other"], island=["/other"], picture=["/good"]) as found:
        yield found


def limits(web: FakeWeb, **changes: Any) -> Limits:
    return Limits(
        **({"max_bytes": 1_000_000, "timeout_s": 60.0, "redirects": 3, "private": (web.host,)} | changes)
    )


def fetched(
    web: FakeWeb, path: str, *, blocked: tuple[str, ...] = (), retries: int = 0, **changes: Any
) -> str:
    """The text of a page, or why it was not read."""

    async def main() -> str:
        fetcher = Fetcher(limits(web, **changes), blocked, retries=retries)
        try:
            return (await fetcher.fetch(path if "://" in path else web.url(path))).text
        except NotRead as why:
            return f"not read: {why}"
        finally:
            await fetcher.aclose()

    return asyncio.run(main())


READ = ["/good", "/plain", "/packed", "/members", "/deflated", "/charset", "/letters", "/moved", "/said"]


@pytest.mark.parametrize("path", READ)
def test_a_page_is_read_whatever_its_compression_and_charset(web: FakeWeb, path: str) -> None:
    assert FACT in fetched(web, path)


def test_a_page_is_read_in_its_declared_charset(web: FakeWeb) -> None:
    assert "埃菲尔铁塔" in fetched(web, "/said")


CHINESE, FRENCH, JAPANESE = "乌尔姆大教堂是最高的", "L'été à Ulm – une « cathédrale »", "ウルム大聖堂の塔"
CHARSETS = {
    "a header": (FRENCH.encode("cp1252"), "windows-1252", FRENCH),
    "a header of Latin 1 as browsers read it": (FRENCH.encode("cp1252"), "ISO-8859-1", FRENCH),
    "a header before what the page says": (f"<meta charset=gbk>{FRENCH}".encode(), "utf-8", FRENCH),
    "a mark before a header": (FRENCH.encode("utf-8-sig"), "gbk", FRENCH),
    "a mark of UTF-16": (JAPANESE.encode("utf-16"), None, JAPANESE),
    "a mark of UTF-16, big end first": (b"\xfe\xff" + JAPANESE.encode("utf-16-be"), None, JAPANESE),
    "meta charset": (f'<meta charset="gb2312">{CHINESE}'.encode("gbk"), None, CHINESE),
    "meta http-equiv": (
        f"<META content='text/html; charset=Shift_JIS' http-equiv=Content-Type>{JAPANESE}".encode("cp932"),
        None,
        JAPANESE,
    ),
    "an XML declaration": (
        f"<?xml version='1.0' encoding='EUC-KR'?><p>한국어 {FRENCH[0]}".encode("cp949"),
        None,
        "한국어",
    ),
    "a name that Python does not know": (
        "<meta charset=windows-874>วิหาร".encode("cp874"),
        None,
        "วิหาร",
    ),
    "a meta in a comment": (f"<!-- <meta charset=gbk> -->{FRENCH}".encode(), None, FRENCH),
    "a meta of UTF-16 that is read as ASCII": (f"<meta charset=utf-16>{FRENCH}".encode(), None, FRENCH),
    "a meta of no charset": (f"<meta charset=punycode>{FRENCH}".encode(), None, FRENCH),
    "an unknown header, and a meta": (f"<meta charset=gbk>{CHINESE}".encode("gbk"), "klingon", CHINESE),
    "nothing, and UTF-8": (CHINESE.encode(), None, CHINESE),
    "nothing, and UTF-8 with a broken byte": (CHINESE.encode() + b"\xff", None, f"{CHINESE}\ufffd"),
    "nothing, and Western letters": (FRENCH.encode("cp1252"), None, FRENCH),
}


@pytest.mark.parametrize("case", CHARSETS)
def test_the_charset_of_a_page_is_recognised(case: str) -> None:
    data, header, text = CHARSETS[case]
    assert text in decoded(data, header, html=True)


def test_plain_text_declares_no_charset() -> None:
    assert decoded(f"<meta charset=gbk>{FRENCH}".encode(), None, html=False).endswith(FRENCH)


@given(st.binary(max_size=60), st.text(max_size=12) | st.sampled_from(["idna", "utf-7", "base64", "\0"]))
def test_any_bytes_decode_to_text_whatever_the_header(data: bytes, charset: str) -> None:
    assert isinstance(decoded(data, charset, html=True), str)
    assert isinstance(decoded(b"<meta charset=" + data + b">", None, html=True), str)


HOSTILE = {
    "/huge": "larger than 1000000 bytes",
    "/bomb": "larger than 1000000 bytes",
    "/notgzip": "it is not gzip",
    "/cut": "its gzip ends too early",
    "/pdf": "it is not text, although it is sent as text/html",
    "/binary": "it is not text, although it is sent as text/plain",
    "/brotli": "packed as br",
    "/slow": "nothing within 1 s",
    "/image": "image/png is not text",
    "/untyped": "application/octet-stream is not text",
    "/gone": "HTTP 404",
    "/home": "127.0.0.1 is not a public address",
    "/metadata": "169.254.169.254 is not a public address",
    "/v6": "::1 is not a public address",
    "/mapped": "is not a public address",
    "/number": "2130706433 is a number, not the name of a host",
    "/octal": "017700000001 is a number",
    "/short": "127.1 is a number",
    "/hex": "0x7f.1 is a number",
    "/name": "not a public address",
    "/file": "not an address of the web",
    "/login": "holds a name or a password",
    "/leak": "data.huggingface.co is blocked",
    "/loop": "more than 3 redirects",
    "/nowhere": "HTTP 302 without an address",
}


@pytest.mark.parametrize("path", HOSTILE)
def test_a_hostile_page_is_refused_with_a_reason(web: FakeWeb, path: str) -> None:
    assert len(HOSTILE) > 15
    told = fetched(web, path, blocked=("huggingface.co",), timeout_s=1.0)
    assert told.startswith("not read: ")
    assert HOSTILE[path] in told


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_busy_page_is_retried_while_there_is_time(
    web: FakeWeb, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "FIRST_WAIT", 0.01)
    web.busy["/good"] = [status] * 2
    assert FACT in fetched(web, "/good", retries=2)
    web.busy["/good"] = [status] * 3
    assert fetched(web, "/good", retries=2) == f"not read: HTTP {status}"
    assert len(web.asked) == 6
    monkeypatch.setattr(fetch, "FIRST_WAIT", 60)
    web.busy["/good"] = [status]
    assert fetched(web, "/good", retries=1, timeout_s=0.3) == f"not read: HTTP {status}"


def test_retry_after_is_respected(web: FakeWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For engine and pages, in seconds or as a date; if longer than the time left, it gives up at once."""
    slept: list[float] = []
    sleep = asyncio.sleep

    async def sleeps(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", sleeps)
    web.busy = {"/search": [429], "/good": [503]}
    web.busy_headers = {"Retry-After": "20"}
    patience = PATIENCE.model_copy(update={"retries": 1})
    (passages,) = searched(section(web), tmp_path / "web.jsonl", "tower", patience=patience)
    assert FACT in found(passages)[0].text
    assert [seconds for seconds in slept if seconds >= 1] == [20.0, 20.0]

    slept.clear()
    web.busy = {"/good": [429]}
    web.busy_headers = {"Retry-After": format_datetime(datetime.now(UTC) + timedelta(seconds=40))}
    assert FACT in fetched(web, "/good", retries=1)
    assert 30 < max(slept) <= 40

    slept.clear()
    web.busy = {"/search": [429], "/good": [429]}
    web.busy_headers = {"Retry-After": "3600"}
    assert fetched(web, "/good", retries=1) == "not read: HTTP 429"
    (refused,) = searched(section(web), tmp_path / "web2.jsonl", "tower", patience=patience)
    assert isinstance(refused, ServiceError)
    assert "HTTP 429" in str(refused)
    assert not [seconds for seconds in slept if seconds >= 1]


@pytest.mark.parametrize(
    "said",
    [
        "",
        "soon",
        "-3",
        "1.5",
        "²",
        "Mon, 99 Xyz 2024",
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "Wed, 21 Oct 2015 07:28:00 +99999999999999999999",
        "Wed, 21 Oct 99999999999999999999 07:28:00 GMT",
        "Wed, 21 Oct 2099 99999999999999999999:28:00 GMT",
    ],
)
def test_an_unreadable_or_past_retry_after_means_no_wait(said: str) -> None:
    assert retry_after({"Retry-After": said}) == 0


def test_a_missing_page_is_requested_once(web: FakeWeb) -> None:
    for path in ("/gone", "/image", "/metadata", "/number", "/huge"):
        assert fetched(web, path, retries=5).startswith("not read: ")
    assert len(web.asked) == 5


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.example/",
        "javascript:1",
        "http://",
        "http://[",
        "//a.example",
        "http://10.0.0.1/",
        "http://0/",
    ],
)
def test_an_address_outside_the_public_web_is_refused(web: FakeWeb, url: str) -> None:
    assert fetched(web, url if "://" in url else f"{url}://").startswith("not read: ")
    assert web.asked == []


@pytest.mark.parametrize("host", ["１２７.0.0.1", "127。0。0。1", "①②⑦.0.0.1"])
def test_a_host_is_parsed_like_the_connection_parses_it(web: FakeWeb, host: str) -> None:
    port = web.url("").rsplit(":", 1)[-1].strip("/")
    assert "public address" in fetched(web, f"http://{host}:{port}/good", private=())
    assert web.asked == []


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("64:ff9b::5db8:d822", True),
        ("64:ff9b::a9fe:a9fe", False),
        ("64:ff9b:1::5db8:d822", False),
        ("::127.0.0.1", False),
        ("fec0::1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("2002:7f00:1::", False),
    ],
)
def test_public_addresses_are_recognised(address: str, public: bool) -> None:
    assert _is_public(address) == public


def test_the_local_machine_is_refused_unless_allowed(web: FakeWeb) -> None:
    assert "not a public address" in fetched(web, "/good", private=())
    assert web.asked == []


@pytest.mark.parametrize("url", ["http://][é@/", "https://a][٠b@/"])
def test_an_address_that_breaks_the_parser_is_malformed(web: FakeWeb, url: str) -> None:
    assert is_blocked(url, ())
    assert fetched(web, url) == "not read: not an address of the web"
    assert fetched(web, "/brackets") == "not read: ValueError"


@given(st.text(max_size=60))
def test_any_text_is_blocked_or_has_a_host(url: str) -> None:
    assert is_blocked(url, ()) in (True, False)
    assert is_blocked(f"http://a.example/{url.replace(chr(92), '')}", ("a.example",))


def test_a_block_covers_all_subdomains_and_nothing_else() -> None:
    assert is_blocked("https://sub.Example.org:8443/x", ("example.org",))
    assert is_blocked("https://example.org./x", ("EXAMPLE.org",))
    assert is_blocked("https://ｅxample。org/x", ("example.org",))
    assert is_blocked("https://bücher.example/", ("xn--bcher-kva.example",))
    assert not is_blocked("https://notexample.org/", ("example.org",))
    assert not is_blocked("https://example.org.evil/", ("example.org",))


@pytest.mark.parametrize(
    "written",
    [
        "huggingface.co",
        "https://huggingface.co",
        "http://huggingface.co/",
        "https://huggingface.co/datasets/x?y=1",
        "huggingface.co/datasets",
        "huggingface.co:443",
        "//huggingface.co",
        "*.huggingface.co",
        "https://*.huggingface.co/",
        ".huggingface.co",
        " HuggingFace.co. ",
    ],
)
def test_a_blocked_host_may_be_written_in_common_forms(written: str) -> None:
    searches = WebSearch(api_key_env=None, max_requests=0, recorded=(), blocked=(written,))
    suite = TypeAdapter(EvalSuite.model_fields["blocked_hosts"].annotation).validate_python([written])
    for blocked in (WebRules(blocked=(written,)).blocked, searches.blocked, suite):
        assert tuple(blocked) == ("huggingface.co",)
    assert is_blocked("https://data.huggingface.co/x", (written,))
    assert not is_blocked("https://huggingface.co.example/x", (written,))


def test_a_numeric_address_can_be_blocked() -> None:
    for written in ("::1", "[::1]", "http://[::1]:80/"):
        assert WebRules(blocked=(written,)).blocked == ("::1",)
    assert is_blocked("http://[::1]:8080/x", ("::1",))


@pytest.mark.parametrize(
    "written", ["", " ", "https://", "*", "*.", "/datasets", "a*.example", "hugging face.co", "http://["]
)
def test_text_that_names_no_host_cannot_be_blocked(written: str) -> None:
    with pytest.raises(ValidationError, match="names no host"):
        WebRules(blocked=("example.org", written))


def section(web: FakeWeb, engine: str = "searxng", **changes: Any) -> WebPages:
    values = {
        "engine": engine,
        "url": web.url("/search" if engine == "searxng" else "/serper"),
        "api_key_env": None,
        "read": 1,
        "page_chars": 200,
        "limits": limits(web),
    }
    return WebPages(**(values | changes))


def searched(
    where: WebPages, file: Path, *queries: str, top_k: int = 2, patience: Patience = PATIENCE, **rules: Any
) -> list[list[Passage] | BaseException]:
    async def main() -> list[list[Passage] | BaseException]:
        exchanges = Exchanges(file, WebRules(**rules))
        searcher = PageSearch(where, patience, exchanges)
        try:
            found = [searcher.search(query, top_k) for query in queries]
            return await asyncio.gather(*found, return_exceptions=True)
        finally:
            await searcher.aclose()
            await exchanges.aclose()

    return asyncio.run(main())


def found(result: list[Passage] | BaseException) -> list[Passage]:
    assert isinstance(result, list), result
    return result


@pytest.mark.parametrize("engine", ["searxng", "serper"])
def test_the_first_results_are_read_and_the_others_show_their_snippets(
    web: FakeWeb, tmp_path: Path, engine: str
) -> None:
    first, second = found(searched(section(web, engine), tmp_path / "web.jsonl", "tower")[0])
    assert FACT in first.text
    assert "Home" not in first.text  # navigation is not text
    assert first.source == f"{web.url('/good')} (read, {len(first.text)} characters)"
    assert second.text in ("S 1", "S")
    assert second.source == f"{web.url('/other')} (not read)"


def test_parameters_in_the_engines_url_are_sent_too(web: FakeWeb, tmp_path: Path) -> None:
    where = section(web, url=web.url("/search?language=de&engines=a&engines=b&format=html"), read=0)
    assert len(found(searched(where, tmp_path / "web.jsonl", "tower")[0])) == 2
    assert web.sent == [{"language": ["de"], "engines": ["a", "b"], "format": ["json"], "q": ["tower"]}]


def test_an_unreadable_page_leaves_its_snippet_and_is_not_a_failure(web: FakeWeb, tmp_path: Path) -> None:
    web.found["bad"] = ["/gone", "/empty", "/metadata"]
    passages = found(searched(section(web, read=3), tmp_path / "web.jsonl", "bad", top_k=3)[0])
    assert [passage.text for passage in passages] == ["S 0", "S 1", "S 2"]
    assert "HTTP 404" in passages[0].source
    assert "no text was found" in passages[1].source
    assert "169.254.169.254" in passages[2].source


def test_a_run_is_replayed_exactly_without_the_web(web: FakeWeb, tmp_path: Path) -> None:
    file, where = tmp_path / "web.jsonl", section(web, read=2)
    web.found["bad"] = ["/gone", "/bomb"]
    asked = ("tower", "island", "bad", "nothing")
    before = searched(where, file, *asked)
    kept, sent = file.read_bytes(), len(web.asked)
    again = searched(where, tmp_path / "none.jsonl", *reversed(asked), replay=(str(file),))
    assert list(reversed(again)) == before
    assert (len(web.asked), file.read_bytes()) == (sent, kept)
    assert not (tmp_path / "none.jsonl").exists()
    (missing,) = searched(where, tmp_path / "none.jsonl", "volcano", replay=(str(file),))
    assert isinstance(missing, ServiceError)
    assert "the search 'volcano' is not on record" in missing.what
    # Another order of queries gives the same file.
    searched(where, tmp_path / "other.jsonl", *reversed(asked))
    assert (tmp_path / "other.jsonl").read_bytes() == kept


@pytest.mark.parametrize(
    ("changes", "top_k", "what"),
    [
        (
            {},
            3,
            r"search 'tower' is on record, but not with these settings of the tool \(engine, url, count\)",
        ),
        ({"limits": Limits()}, 2, r"page '.*/good' is on record, but not with .* \(limits\)"),
    ],
)
def test_a_replay_with_other_settings_says_so(
    web: FakeWeb, tmp_path: Path, changes: dict[str, Any], top_k: int, what: str
) -> None:
    file = tmp_path / "web.jsonl"
    searched(section(web), file, "tower")
    (missing,) = searched(section(web, **changes), tmp_path / "x", "tower", top_k=top_k, replay=(str(file),))
    assert isinstance(missing, ServiceError)
    assert re.search(what, missing.what)


@pytest.mark.parametrize(
    ("kind", "answer", "why"),
    [
        ("search", {}, "not results of a search"),
        ("search", [["http://a.example/", 1, "S"]], "not results of a search"),
        ("page", None, "not a page"),
        ("page", {"url": "http://a.example/"}, "not a page"),
        ("page", {"url": "http://a.example/", "text": 1}, "not a page"),
    ],
)
def test_a_record_with_an_answer_of_another_kind_is_our_error(
    web: FakeWeb, tmp_path: Path, kind: str, answer: Any, why: str
) -> None:
    file, where = tmp_path / "web.jsonl", section(web)
    searched(where, file, "tower")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    changed = [line | {"answer": answer} if line["kind"] == kind else line for line in lines]
    file.write_text("".join(json.dumps(line) + "\n" for line in changed))
    (wrong,) = searched(where, tmp_path / "x", "tower", replay=(str(file),))
    assert isinstance(wrong, ServiceError)
    assert why in wrong.what


def test_a_temporary_failure_is_recorded_for_the_run_and_its_replay_only(
    web: FakeWeb, tmp_path: Path
) -> None:
    file, budget = tmp_path / "web.jsonl", Budget(requests=2)
    where = section(web)
    web.busy["/other"] = [503]
    failed = searched(where, file, "island", budget=budget)
    assert "HTTP 503" in found(failed[0])[0].source
    assert searched(where, tmp_path / "x", "island", replay=(str(file),)) == failed
    read = searched(where, file, "island", budget=budget)
    assert "An island" in found(read[0])[0].text
    assert searched(where, tmp_path / "x", "island", replay=(str(file),)) == read
    sent, kept = len(web.asked), file.read_bytes()
    assert searched(where, file, "island", budget=budget) == read
    assert (len(web.asked), file.read_bytes()) == (sent, kept)
    assert b'"again"' not in kept
    (over,) = searched(where, file, "tower", budget=budget)
    assert "budget of 2 requests is spent" in str(over)


def test_a_page_does_not_change_within_a_run(web: FakeWeb, tmp_path: Path) -> None:
    file = tmp_path / "web.jsonl"
    web.busy["/other"] = [503]

    async def main() -> list[str]:
        exchanges = Exchanges(file, WebRules())
        searcher = PageSearch(section(web), PATIENCE, exchanges)
        web.found["again"] = ["/other"]
        try:
            return [(await searcher.search(query, 1))[0].source for query in ("island", "again")]
        finally:
            await searcher.aclose()
            await exchanges.aclose()

    first, second = asyncio.run(main())
    assert first == second
    assert "HTTP 503" in first
    assert len([path for path in web.asked if path == "GET /other"]) == 1


def test_a_permanent_refusal_is_recorded(web: FakeWeb, tmp_path: Path) -> None:
    web.found["bad"] = ["/gone"]
    before = searched(section(web), tmp_path / "web.jsonl", "bad")
    sent = len(web.asked)
    assert searched(section(web), tmp_path / "web.jsonl", "bad") == before
    assert len(web.asked) == sent


def test_recorded_queries_are_not_repeated_and_a_kill_loses_at_most_a_line(
    web: FakeWeb, tmp_path: Path
) -> None:
    file, where = tmp_path / "web.jsonl", section(web)
    searched(where, file, "tower", "island")
    whole, sent = file.read_bytes(), len(web.asked)
    searched(where, file, "tower", "island")
    assert (file.read_bytes(), len(web.asked)) == (whole, sent)
    # As if killed while writing its last line.
    lines = whole.splitlines(keepends=True)
    file.unlink()
    (tmp_path / "web.jsonl.journal").write_bytes(b"".join(lines[:-1]) + lines[-1][:-9])
    searched(where, file, "tower", "island")
    assert file.read_bytes() == whole
    assert len(web.asked) == sent + 1
    assert sorted(tmp_path.iterdir()) == [file, file.with_name("web.jsonl.lock")]


def test_a_replay_knows_what_a_killed_run_left_in_its_journal(web: FakeWeb, tmp_path: Path) -> None:
    file, where, journal = tmp_path / "web.jsonl", section(web), tmp_path / "web.jsonl.journal"
    before = searched(where, file, "tower", "island")
    whole = file.read_bytes()
    first, *others = whole.splitlines(keepends=True)
    journal.write_bytes(b"".join(others) + b'{"key": "cut')
    left = journal.read_bytes()
    for record in (first, None):
        file.unlink()
        if record is not None:
            file.write_bytes(record)
        journal.write_bytes(left if record else whole)
        check_asking(recipe(web, replay=[str(file)]))
        assert searched(where, tmp_path / "x", "tower", "island", replay=(str(file),)) == before
        # A replay cuts nothing off: the run may be going on.
        assert journal.read_bytes() == (left if record else whole)


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe"])
def test_a_record_that_cannot_be_opened_is_reported_with_the_reason(
    web: FakeWeb, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "web.jsonl"
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    reason = {"missing": "No such file", "folder": "it is a folder", "pipe": "it is a named pipe"}[kind]
    with pytest.raises(DataError, match=f"cannot read the record of the web at {file}: {reason}"):
        check_asking(recipe(web, replay=[str(file)]))


def test_a_damaged_record_is_an_error_that_names_the_line(web: FakeWeb, tmp_path: Path) -> None:
    file = tmp_path / "web.jsonl"
    file.write_text('{"key": "a", "kind": "page", "what": "x", "answer": {}}\n{"key": "b"}\n')
    for rules in ({}, {"replay": (str(file),)}):
        with pytest.raises(DataError, match=r"web\.jsonl:2"):
            searched(section(web), file, "tower", **rules)
    with pytest.raises(DataError, match="cannot read the record of the web"):
        searched(section(web), file, "tower", replay=(str(tmp_path / "absent"),))


def test_a_windows_page_record_is_read_and_one_that_is_not_utf_8_is_reported(
    web: FakeWeb, tmp_path: Path
) -> None:
    file, where = tmp_path / "web.jsonl", section(web)
    before, lines = searched(where, file, "tower"), file.read_bytes()
    file.write_bytes(b"\xef\xbb\xbf" + lines.replace(b"\n", b"\r\n"))
    assert searched(where, tmp_path / "x", "tower", replay=(str(file),)) == before
    for damaged in (lines.replace(b"tower", b"\xe9t\xe9"), gzip.compress(lines)):
        file.write_bytes(damaged)
        for rules in ({}, {"replay": (str(file),)}):
            with pytest.raises(
                DataError, match=r"not an exchange with the web\n.*web\.jsonl:\d+\n.*decompress"
            ):
                searched(where, file, "tower", **rules)


def test_a_journal_truncated_within_a_character_is_continued_and_a_folder_reported(
    web: FakeWeb, tmp_path: Path
) -> None:
    file, where = tmp_path / "web.jsonl", section(web)
    searched(where, file, "tower")
    whole, sent, journal = file.read_bytes(), len(web.asked), tmp_path / "web.jsonl.journal"
    journal.write_bytes(whole + '{"key": "é'.encode()[:-1])
    file.unlink()
    searched(where, file, "tower")
    assert (file.read_bytes(), len(web.asked)) == (whole, sent)
    journal.mkdir()
    with pytest.raises(DataError, match="cannot read the record of the web"):
        searched(where, file, "tower")


def test_the_budget_counts_searches_pages_and_the_cost_of_the_record(web: FakeWeb, tmp_path: Path) -> None:
    file, where = tmp_path / "web.jsonl", section(web)
    tight = Budget(requests=3)
    first, second = (searched(where, file, query, budget=tight)[0] for query in ("tower", "island"))
    assert isinstance(first, list)
    assert isinstance(second, ServiceError)  # its page would be the fourth
    assert "budget of 3 requests is spent" in str(second)
    dear = Budget(requests=99, money=0.02, per_search=0.01, per_page=0.005)
    (third,) = searched(where, tmp_path / "dear.jsonl", "tower", budget=dear)
    (fourth,) = searched(where, tmp_path / "dear.jsonl", "island", budget=dear)
    assert isinstance(third, list)
    assert isinstance(fourth, ServiceError)
    assert "would cost more than the web's budget of 0.02" in str(fourth)


def test_failed_requests_cost_nothing(web: FakeWeb, tmp_path: Path) -> None:
    budget = Budget(requests=1, money=0.3, per_search=0.3)

    async def main() -> list[str]:
        exchanges = Exchanges(tmp_path / "web.jsonl", WebRules(budget=budget))
        searcher, said = PageSearch(section(web, read=0), PATIENCE, exchanges), []
        try:
            for status, query in ((503, "tower"), (403, "tower"), (200, "tower"), (200, "island")):
                web.engine_status = status
                (result,) = await asyncio.gather(searcher.search(query, 1), return_exceptions=True)
                said.append(str(result))
            return said
        finally:
            await searcher.aclose()
            await exchanges.aclose()

    busy, refused, answered, over = asyncio.run(main())
    assert "HTTP 503" in busy
    assert "HTTP 403" in refused
    assert web.url("/good") in answered
    assert "budget of 1 requests is spent" in over


def asked_often(tmp_path: Path, budget: Budget, times: int) -> list[str]:
    """What so many searches are answered, or why they are refused."""

    async def found() -> str:
        return "found"

    async def main() -> list[str]:
        async with aclosing(Exchanges(tmp_path / "web.jsonl", WebRules(budget=budget))) as exchanges:
            asked = [exchanges.get(Request("search", str(i), {}), found) for i in range(times)]
            return [str(answer) for answer in await asyncio.gather(*asked, return_exceptions=True)]

    return asyncio.run(main())


def test_a_request_costs_no_more_time_the_more_were_made(tmp_path: Path) -> None:
    reads: list[str] = []

    class Watched(Budget):
        def __getattribute__(self, name: str) -> Any:
            if name == "per_search":
                reads.append(name)
            return super().__getattribute__(name)

    assert asked_often(tmp_path, Watched(requests=200, per_search=0.1), 200) == ["found"] * 200
    assert len(reads) <= 2 * 200


@pytest.mark.parametrize("times", [3, 6, 7])
def test_a_budget_pays_for_as_many_requests_as_it_is_a_multiple_of(tmp_path: Path, times: int) -> None:
    budget = Budget(requests=9, money=times / 10, per_search=0.1)
    answers = asked_often(tmp_path, budget, times + 1)
    assert answers[:times] == ["found"] * times
    assert f"cost more than the web's budget of {times / 10:g}" in answers[times]


def test_blocked_pages_are_replaced_by_others_and_never_read(web: FakeWeb, tmp_path: Path) -> None:
    web.found["leak"] = ["http://data.huggingface.co/answers", "/good", "/other"]
    passages = found(searched(section(web), tmp_path / "web.jsonl", "leak", blocked=("huggingface.co",))[0])
    assert [passage.id for passage in passages] == [web.url("/good"), web.url("/other")]
    # A record made without the block does not circumvent it.
    web.found["way"] = ["/moved"]
    searched(section(web), tmp_path / "open.jsonl", "way")
    (around,) = found(
        searched(
            section(web),
            tmp_path / "x",
            "way",
            replay=(str(tmp_path / "open.jsonl"),),
            blocked=("127.0.0.1",),
        )[0]
    ) or [None]
    assert around is None


def test_a_failing_engine_is_our_error_and_nothing_is_recorded(web: FakeWeb, tmp_path: Path) -> None:
    web.engine_status = 503
    (failed,) = searched(section(web), tmp_path / "web.jsonl", "tower")
    assert isinstance(failed, ServiceError)
    assert not (tmp_path / "web.jsonl").exists()
    web.engine_status = 200
    assert isinstance(searched(section(web), tmp_path / "web.jsonl", "tower")[0], list)


def test_nothing_found_by_engines_that_failed_is_our_error(web: FakeWeb, tmp_path: Path) -> None:
    file, patience = tmp_path / "web.jsonl", PATIENCE.model_copy(update={"retries": 1})
    web.unresponsive = [["google", "timeout"], ["bing", "CAPTCHA"]]
    towers, nothing = searched(section(web, read=0), file, "tower", "nothing", patience=patience)
    assert len(found(towers)) == 2
    assert isinstance(nothing, ServiceError)
    assert "['google', 'timeout']" in nothing.what
    assert "disable engines that never answer" in nothing.fix
    assert web.asked.count("GET /search") == 3
    web.unresponsive = [["google", "Suspended: too many requests"], ["bing", "access denied"]]
    (nothing,) = searched(section(web, read=0), file, "nothing", patience=patience)
    assert isinstance(nothing, ServiceError)
    assert web.asked.count("GET /search") == 4  # a retry cannot help
    web.unresponsive = []
    assert searched(section(web), file, "nothing") == [[]]


@pytest.mark.parametrize("answer", [None, [], "x", {"results": 7}, {"results": ["x"]}])
def test_an_invalid_engine_answer_is_our_error(answer: Any) -> None:
    with pytest.raises(ServiceError):
        read_hits(ENGINES["searxng"], answer)


ENGINES_FAILED = {"results": [], "unresponsive_engines": [["bing", "timeout"]]}


@pytest.mark.parametrize(
    ("engine", "answer", "works"),
    [
        ("searxng", {}, False),
        ("searxng", {"results": []}, True),
        ("searxng", ENGINES_FAILED, False),
        ("searxng", ENGINES_FAILED | {"answers": [{"answer": "42"}]}, True),
        ("searxng", ENGINES_FAILED | {"infoboxes": [{"infobox": "Ulm"}]}, True),
        ("searxng", ENGINES_FAILED | {"answers": [], "infoboxes": []}, False),
        ("serper", {}, False),
        ("serper", {"organic": []}, True),
        ("serper", {"searchParameters": {"q": "a"}, "credits": 1}, True),
        ("serper", {"searchParameters": {"q": "a"}, "message": "Not enough credits"}, False),
        ("serper", {"message": "Not enough credits", "statusCode": 400}, False),
        ("pictures", {}, True),
        ("pictures", {"message": "no quota"}, False),
    ],
)
def test_an_empty_result_is_told_from_an_outage(engine: str, answer: dict[str, Any], works: bool) -> None:
    format_ = PICTURES if engine == "pictures" else ENGINES[engine]
    assert (outage(format_, answer) is None) == works
    if works:
        assert read_hits(format_, answer) == []


def test_a_result_without_address_or_title_is_left_out() -> None:
    rows = [
        {"url": "u", "title": "t"},
        {"url": 7, "title": "t"},
        {"url": "u"},
        {"title": "t"},
        {"url": "", "title": ""},
    ]
    assert [(hit.url, hit.snippet) for hit in read_hits(ENGINES["searxng"], {"results": rows})] == [("u", "")]


def recipe(web: FakeWeb, **rules: Any) -> ToolsRecipe:
    patience = PATIENCE.model_dump()
    pages = section(web).model_dump()
    return ToolsRecipe.model_validate(
        {
            "text_search": {"pages": pages, "top_k": 1, "max_chars": 500, "patience": patience},
            "image_search": {
                "web": {"url": web.url("/lens"), "api_key_env": None},
                "top_k": 2,
                "max_chars": 500,
                "patience": patience,
            },
            "web": rules,
        }
    )


def called(tools: ToolsRecipe, record: Path, *asked: Asked) -> list[Any]:
    async def main() -> list[Any]:
        async with tools_of(tools, record) as toolbox:
            scene = Scene(SAMPLE, (PHOTO,), ())
            return [await toolbox.run(one, scene, 0, ResultCache()) for one in asked]

    return asyncio.run(main())


TEXT = Asked("text_search_tool", {"query": "tower"}, "", 0)
PICTURE = Asked("image_search_tool", {}, "", 0)


def test_both_tools_share_a_record_and_record_the_addresses_read(web: FakeWeb, tmp_path: Path) -> None:
    text, picture = called(recipe(web), tmp_path / "search.jsonl", TEXT, PICTURE)
    assert (text.status, picture.status) == ("ok", "ok")
    assert FACT in text.text
    assert web.url("/good") not in text.text
    assert text.output.partition(f"\n{SOURCES}\n")[2].startswith(f"{web.url('/good')} (read")
    assert picture.text == "1. T\nS"
    assert picture.output == f"1. T\nS\n{SOURCES}\n{web.url('/good')}"
    file = tmp_path / "search-web.jsonl"
    kinds = sorted(json.loads(line)["kind"] for line in file.read_text().splitlines())
    assert kinds == ["page", "picture", "search"]
    sent = len(web.asked)
    again = called(recipe(web, replay=[str(file)]), tmp_path / "x.jsonl", TEXT, PICTURE)
    assert [replace(one, seconds=0) for one in again] == [replace(one, seconds=0) for one in (text, picture)]
    assert len(web.asked) == sent


def test_our_failures_and_the_models_mistakes_are_distinguished(web: FakeWeb, tmp_path: Path) -> None:
    web.engine_status = 500
    ours, model = called(
        recipe(web), tmp_path / "s.jsonl", TEXT, Asked("text_search_tool", {"query": " "}, "", 0)
    )
    assert (ours.status, ours.text) == ("infra", "")
    assert model.status == "error"


def test_a_record_without_a_web_tool_is_refused(web: FakeWeb, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="nothing to record"):
        check_indexes(ToolsRecipe.model_validate({"web": {"record": "web.jsonl"}}))


def test_reading_pages_needs_an_extractor_and_a_replay_does_not(
    web: FakeWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "web.jsonl"
    before = searched(section(web), file, "tower")
    monkeypatch.setitem(sys.modules, "trafilatura", None)
    with pytest.raises(MissingExtra, match="trafilatura"):
        check_indexes(recipe(web))
    check_indexes(recipe(web, replay=[str(file)]))
    assert searched(section(web), tmp_path / "x", "tower", replay=(str(file),)) == before


def test_two_runs_cannot_write_one_record(tmp_path: Path) -> None:
    file = tmp_path / "web.jsonl"
    one = Exchanges(file, WebRules())
    with pytest.raises(RecipeError, match="another process is writing the record"):
        Exchanges(file, WebRules())
    asyncio.run(one.aclose())
    asyncio.run(Exchanges(file, WebRules()).aclose())
    assert [left.name for left in tmp_path.iterdir()] == ["web.jsonl.lock"]


def test_a_process_that_opened_the_lock_before_it_was_released_keeps_others_out(tmp_path: Path) -> None:
    file = tmp_path / "web.jsonl"
    one = Exchanges(file, WebRules())
    with (tmp_path / "web.jsonl.lock").open() as second:
        asyncio.run(one.aclose())
        lock(second)
        with pytest.raises(RecipeError, match="another process is writing the record"):
            Exchanges(file, WebRules())


def test_a_record_that_cannot_be_written_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise RunFailed("no space left")

    file = tmp_path / "web.jsonl"
    file.with_name("web.jsonl.journal").write_text("")
    one = Exchanges(file, WebRules())
    monkeypatch.setattr("vtune.tools.exchanges.write_atomically", full)
    with pytest.raises(RunFailed):
        asyncio.run(one.aclose())
    monkeypatch.undo()
    asyncio.run(Exchanges(file, WebRules()).aclose())


def test_a_full_disk_is_reported_with_the_file(tmp_path: Path) -> None:
    async def found() -> int:
        return 7

    async def main() -> None:
        exchanges = Exchanges(tmp_path / "web.jsonl", WebRules())
        (tmp_path / "web.jsonl.journal").symlink_to("/dev/full")
        try:
            with pytest.raises(RunFailed, match=r"web\.jsonl\.journal cannot be written: No space left"):
                await exchanges.get(Request("search", "x", {}), found)
        finally:
            with pytest.raises(RunFailed, match="No space left"):
                await exchanges.aclose()

    asyncio.run(main())
    (tmp_path / "web.jsonl.journal").unlink()
    asyncio.run(Exchanges(tmp_path / "web.jsonl", WebRules()).aclose())  # it is released


def test_a_failed_request_is_not_recorded(tmp_path: Path) -> None:
    async def main(ask: Callable[[], Awaitable[Any]]) -> Any:
        exchanges = Exchanges(tmp_path / "web.jsonl", WebRules())
        try:
            return await exchanges.get(Request("search", "x", {}), ask)
        finally:
            await exchanges.aclose()

    async def fails() -> Any:
        raise ServiceError("down")

    async def works() -> Any:
        return 7

    with pytest.raises(ServiceError):
        asyncio.run(main(fails))
    assert asyncio.run(main(works)) == 7
    assert asyncio.run(main(fails)) == 7


def test_every_hostile_page_of_the_server_is_tested() -> None:
    assert set(PAGES) <= {*HOSTILE, *READ, "/other", "/empty", "/brackets"}
