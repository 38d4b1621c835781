"""Searches with a real service that answers, finds nothing, stalls or dies, and how each case is scored."""

import asyncio
import base64
import json
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import HANGS
from tests.models.rows import picture
from tests.reward.build import recipe as reward_recipe
from tests.rollout.build import ANSWER, SAMPLE, FakeSandbox, job, recipe
from tests.rollout.scripted import ScriptedEngine
from tests.runs.commands import rl, vtune
from tests.served import Served, serving
from tests.tools.encoders import build_encoder
from vtune.config import find, load_recipe
from vtune.errors import DataError, RecipeError, RunFailed, ServiceError, VtuneError
from vtune.models.policy import Policy
from vtune.reward.body import Busy
from vtune.reward.checking import check_unscored
from vtune.reward.score import Scorer
from vtune.rollout.agent import Agent
from vtune.runs.agent.tools import ToolsRecipe, check_asking, tools_of
from vtune.runs.data.dense import index_dense
from vtune.runs.data.indexing import index_passages, index_pictures
from vtune.runs.plan.checks import _searches as check_searches
from vtune.runs.serve.search import SearchService, app_of, status_of
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.schema.trajectory import Trajectory
from vtune.tools.calls import INVALID
from vtune.tools.http import Patience
from vtune.tools.passage import Passage
from vtune.tools.remote import RemotePassages, check_passages_service
from vtune.tools.retrieve import RetrievedPassages

TOKEN = "a-token-of-some-length"
PATIENCE = {"timeout_s": 0.5, "retries": 1, "deadline_s": 1.0, "concurrency": 4}
ASKING = replace(SAMPLE, tools=("text_search_tool",))
FERRY, SKY = picture(64, 48, seed=1), picture(64, 48, seed=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    rows = [{"id": "f", "title": "Ferry", "text": "It sails to Sark."}, {"text": "The island of Sark."}]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    index_passages(folder / "corpus.jsonl", folder / "index")
    (folder / "photos").mkdir()
    (folder / "photos" / "a.png").write_bytes(FERRY)
    (folder / "photos" / "b.png").write_bytes(SKY)
    lines = [{"file_name": "a.png", "title": "A ferry", "text": "near Sark"}, {"file_name": "b.png"}]
    (folder / "photos" / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    index_pictures(folder / "photos", folder / "pictures")
    (folder / "token").write_text(TOKEN)
    return folder


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Served]:
    options = ("--pictures", str(folder / "pictures"), "--token-file", str(folder / "token"))
    with serving("search", str(folder / "index"), *options) as served:
        yield served


def remote(url: str, **changes: Any) -> ToolsRecipe:
    search = {"url": url, "token_env": "SEARCH_TOKEN", "top_k": 3, "max_chars": 500, "patience": PATIENCE}
    return ToolsRecipe.model_validate({"text_search": search | changes})


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_TOKEN", TOKEN)


def call(**arguments: Any) -> str:
    asked = json.dumps({"name": "text_search_tool", "arguments": arguments})
    return f"<think>I look.</think>\n<tool_call>\n{asked}\n</tool_call>"


def converse(policy: Policy, tools: ToolsRecipe, *script: str) -> Trajectory:
    """One conversation, scored."""

    async def main() -> Trajectory:
        async with tools_of(tools, Path("unused")) as toolbox, Scorer(reward_recipe()) as scorer:
            agent = Agent(
                ScriptedEngine(policy.chat, script),
                FakeSandbox(),  # type: ignore[arg-type]
                policy.chat,
                policy.pictures,
                recipe(max_new_tokens=400, max_tokens=3000),
                tools=toolbox,
            )
            drawn = await agent.run([job(ASKING)])
            (scored,) = await scorer.score([ASKING], drawn)
            return scored

    return asyncio.run(main())


def test_a_service_answers_and_reports_if_nothing_is_found(policy: Policy, service: Served) -> None:
    found = converse(policy, remote(service.url), call(query="ferry"), call(query="volcano"), ANSWER)
    texts = [message.content for message in found.messages[1:] if message.role == "user"]
    assert texts == [
        "<tool_response>\n1. Ferry\nIt sails to Sark.\n</tool_response>",
        "<tool_response>\nNo matching passages were found.\n</tool_response>",
    ]
    assert [one.status for one in found.calls] == ["ok", "ok"]
    assert found.reward is not None
    assert found.reward.total is not None


def test_a_malformed_call_never_reaches_the_service_and_is_the_models_mistake(
    policy: Policy, service: Served
) -> None:
    found = converse(policy, remote(service.url), call(text="x"), "<tool_call>{</tool_call>", ANSWER)
    assert [(one.tool, one.status) for one in found.calls] == [
        ("text_search_tool", "error"),
        (INVALID, "error"),
    ]
    assert found.reward is not None
    assert (found.reward.accuracy, found.reward.format) == (1.0, 0.0)


def unscored(found: Trajectory) -> None:
    """A failure on our side: nothing was made up or scored, and a run with more of these stops."""
    assert (found.stop_reason, [one.status for one in found.calls]) == ("error", ["infra"])
    assert found.messages[-1].role == "assistant"
    assert found.reward is not None
    assert found.reward.total is None
    with pytest.raises(Exception, match="unscored"):
        check_unscored([found], 0.05)


def test_a_stalling_service_is_awaited_only_until_the_deadline(policy: Policy, service: Served) -> None:
    service.process.send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        found = converse(policy, remote(service.url), call(query="ferry"), ANSWER)
        assert 0.5 <= found.calls[0].seconds <= 5
        assert time.monotonic() - began < 30
    finally:
        service.process.send_signal(signal.SIGCONT)
    unscored(found)
    patient = PATIENCE | {"timeout_s": 20.0, "deadline_s": 20.0}
    again = converse(policy, remote(service.url, patience=patient), call(query="ferry"), ANSWER)
    assert [one.status for one in again.calls] == ["ok"]


def test_a_dead_service_is_our_error(policy: Policy, folder: Path) -> None:
    with serving("search", str(folder / "index")) as served:
        tools = remote(served.url, token_env=None)
        assert converse(policy, tools, call(query="ferry"), ANSWER).calls[0].status == "ok"
        served.process.kill()
        served.process.wait()
        found = converse(policy, tools, call(query="ferry"), ANSWER)
    unscored(found)
    assert "the text search service gave no answer" in found.calls[0].error


def ask(url: str, body: Any, *, token: str | None = TOKEN) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.mark.parametrize(
    ("path", "body", "what"),
    [
        ("/search", {"query": "", "top_k": 1}, "`query` is empty"),
        ("/search", {"query": " ", "top_k": 1}, "`query` is empty"),
        ("/search", {"query": 7, "top_k": 1}, "`query` must be a text"),
        ("/search", {"query": "a \ud800 b", "top_k": 1}, "half a character"),
        ("/images", {"picture": "", "top_k": 1}, "`picture` is empty"),
        ("/images", {"picture": "data:image/png;base64,aGVsbG8=", "top_k": 1}, "base64"),
        ("/search", {"query": "ferry", "top_k": 0}, "top_k"),
        ("/search", {"query": "ferry", "top_k": True}, "top_k"),
        ("/search", {"query": "f" * 1001, "top_k": 1}, "characters"),
        ("/search", [], "query"),
        ("/images", {"picture": "?", "top_k": 1}, "base64"),
        ("/images", {"picture": "aGVsbG8=", "top_k": 1}, "cannot be decoded"),
    ],
)
def test_a_wrong_question_is_refused_with_its_reason(
    service: Served, path: str, body: Any, what: str
) -> None:
    status, answer = ask(service.url + path, body)
    assert status == 422
    assert what in answer["error"]["what"]
    assert answer["error"]["fix"]


def test_a_request_to_an_unknown_path_is_told_the_right_one(service: Served) -> None:
    status, answer = ask(f"{service.url}/find", {"query": "ferry", "top_k": 1})
    assert status == 404
    assert "POST /search" in answer["error"]["fix"]


def test_a_client_that_hangs_up_is_not_an_error(folder: Path) -> None:
    app = app_of(SearchService(folder / "index", None, threads=1), token=None, max_bytes=2**20)
    messages = [
        {"type": "http.request", "body": b'{"query": "fer', "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(_: Any) -> None:
        pass

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/search",
        "query_string": b"",
        "headers": [(b"content-length", b"40")],
    }
    asyncio.run(app(scope, receive, send))
    assert not messages


def test_without_the_token_only_health_is_answered(service: Served) -> None:
    assert ask(f"{service.url}/health", None, token=None) == (
        200,
        {"status": "ok", "passages": 2, "pictures": 2},
    )
    assert (
        ask(f"{service.url}/search", {"query": "ferry", "top_k": 1}, token="wrong-token-but-long")[0] == 401
    )


def test_the_service_finds_pictures_like_the_index(service: Served, folder: Path) -> None:
    sent = {"picture": base64.b64encode(FERRY).decode(), "top_k": 1}
    status, answer = ask(f"{service.url}/images", sent)
    assert status == 200
    (match,) = answer["results"]
    assert (match["title"], match["text"], round(match["score"], 3)) == ("A ferry", "near Sark", 1.0)


def doctor(tools: ToolsRecipe) -> list[tuple[str, str]]:
    return [(check.level, check.found) for check in check_searches(tools.model_dump(mode="json"))]


def test_a_service_uses_the_requested_minimum_score(folder: Path) -> None:
    picture = base64.b64encode(FERRY).decode()

    def found(min_score: float | None) -> list[str]:
        service = SearchService(None, folder / "pictures", threads=1, min_score=min_score)
        answer = asyncio.run(service.images({"picture": picture, "top_k": 5}))
        return [one["title"] for one in answer["results"]]

    assert found(None) == found(1) == ["A ferry"]
    assert found(0) == ["A ferry", "b"]
    with pytest.raises(RecipeError, match="are for an index of pictures"):
        SearchService(folder / "index", None, threads=1, min_score=0.5)


def test_doctor_says_what_is_wrong_with_a_search(
    service: Served, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctor(remote(service.url)) == [("ok", f"{service.url}: 2 passages")]
    assert doctor(remote(f"{service.url}/retrieve/")) == [("ok", f"{service.url}/retrieve/ answers")]
    for refused in (service.url, f"{service.url}/retrieve"):
        assert doctor(remote(refused, token_env=None))[0][0] == "fail"
    assert doctor(remote("http://127.0.0.1:1"))[0][0] == "fail"
    index = {"index": str(folder / "index"), "top_k": 3, "max_chars": 500}
    assert doctor(ToolsRecipe.model_validate({"text_search": index}))[0][0] == "ok"
    pictures = index | {"index": str(folder / "index"), "show": True}
    ((level, found),) = doctor(ToolsRecipe.model_validate({"image_search": pictures}))
    assert level == "fail"
    assert "not one of pictures" in found
    monkeypatch.delenv("SEARCH_TOKEN")
    assert doctor(remote(service.url)) == [("fail", "SEARCH_TOKEN is not set")]


def test_a_service_is_checked_before_a_run(service: Served, tiny: Path, lens: Path, tmp_path: Path) -> None:
    check_asking(remote(service.url))
    pictures = {"url": service.url, "token_env": "SEARCH_TOKEN", "patience": PATIENCE, "show": True}
    for url, key in ((f"{service.url}/none", "text_search"), ("http://127.0.0.1:1", "image_search")):
        section = remote(url).model_dump(mode="json", include={"text_search"})
        if key == "image_search":
            section = {key: pictures | {"top_k": 1, "max_chars": 9, "url": url}}
        else:
            check_asking(
                ToolsRecipe.model_validate({"image_search": pictures | {"top_k": 1, "max_chars": 9}})
            )
        with pytest.raises(ServiceError, match="search service") as told:
            check_asking(ToolsRecipe.model_validate(section))
        assert f"tools.{key}" in told.value.fix
        assert "vtune serve search" in told.value.fix
        words = rl(tiny, lens / "train.parquet", tmp_path / "run", "--set", f"tools={json.dumps(section)}")
        ended = vtune(*words)
        assert (ended.code, url in ended.err) == (1, True), ended.err
        assert not (tmp_path / "run").exists()
        planned = vtune(*words, "--dry-run", "--json")
        assert planned.code == 0, planned.err
        assert any(one.startswith(f"tools ({url}/") for one in json.loads(planned.out)["check"]["missing"])


SERPER = {"engine": "serper", "api_key_env": None, "read": 0, "page_chars": 9}


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"text_search": {"url": "URL"}}, "token_env"),
        ({"text_search": {"url": "URL/retrieve"}}, "token_env"),
        ({"text_search": {"pages": SERPER | {"url": "URL"}}}, "api_key_env"),
        ({"image_search": {"url": "URL", "show": False}}, "token_env"),
        ({"image_search": {"web": {"url": "URL", "api_key_env": None}}}, "api_key_env"),
    ],
)
@pytest.mark.parametrize("url", ["http://any:s3cret@host:8193", "any:s3cret@host:8193"])
def test_a_password_in_a_url_is_refused_and_never_repeated(
    section: dict[str, Any], key: str, url: str
) -> None:
    ((name, place),) = section.items()
    full = {name: {"top_k": 1, "max_chars": 9, "patience": PATIENCE} | place}
    text = json.dumps(full).replace("URL", url)
    with pytest.raises(RecipeError, match=f"holds a user or a password.*`{key}`") as told:
        load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe, [f"tools={text}"])
    assert "s3cret" not in str(told.value)


def test_an_unset_token_is_reported_before_anything_starts(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SEARCH_TOKEN")

    async def main() -> None:
        async with tools_of(remote(service.url), Path("unused")):
            raise AssertionError("never open")

    with pytest.raises(RecipeError, match="no environment variable SEARCH_TOKEN"):
        asyncio.run(main())


@pytest.mark.parametrize(("value", "why"), [("", "SEARCH_TOKEN is empty"), ("a\n", "holds a space, a line")])
def test_a_token_that_does_not_fit_a_header_is_reported_before_anything_starts(
    value: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH_TOKEN", value)
    with pytest.raises(RecipeError, match=why):
        check_asking(remote("http://127.0.0.1:9"))
    if value:
        return
    service = {"url": "http://127.0.0.1:9", "token_env": "SEARCH_TOKEN", "index": None}
    (found,) = check_searches({"text_search": service | {"web": None}})
    assert (found.level, found.found) == ("fail", why)


def test_a_refused_token_is_our_error(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        searcher = RemotePassages(service.url, Patience.model_validate(PATIENCE), token="another-long-token")
        try:
            await searcher.search("ferry", 1)
        finally:
            await searcher.aclose()

    with pytest.raises(ServiceError, match="refuses: HTTP 401"):
        asyncio.run(main())


def test_a_retrieval_servers_url_finds_what_the_own_protocol_finds(policy: Policy, service: Served) -> None:
    own, foreign = remote(service.url), remote(f"{service.url}/retrieve/")
    check_asking(foreign)
    script = call(query="ferry"), call(query="volcano"), call(query="island"), ANSWER
    assert converse(policy, foreign, *script).messages == converse(policy, own, *script).messages


def retrieve(service: Served, **asked: Any) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    request = urllib.request.Request(f"{service.url}/retrieve", json.dumps(asked).encode(), headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_retrieve_answers_as_search_r1_does(service: Served) -> None:
    code, answer = retrieve(service, queries=["ferry", "volcano", " ", "sark"], topk=1, return_scores=True)
    assert code == 200
    ferry, volcano, nothing, sark = answer["result"]
    assert [row["document"] for row in ferry] == [{"id": "f", "contents": '"Ferry"\nIt sails to Sark.'}]
    assert ferry[0]["score"] > 0
    assert (volcano, nothing, len(sark)) == ([], [], 1)
    code, answer = retrieve(service, queries=["island"])
    assert code == 200
    # Clients take the first line for the title.
    assert [row["contents"] for row in answer["result"][0]] == ['""\nThe island of Sark.']


def test_a_batch_does_not_fail_because_of_one_long_query(service: Served) -> None:
    code, answer = retrieve(service, queries=["ferry " + "x" * 2000, "ferry \ud800"], topk=1)
    assert code == 200
    assert [rows[0]["id"] for rows in answer["result"]] == ["f", "f"]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({}, "`queries` must be a list of texts"),
        ({"queries": "ferry"}, "`queries` must be a list of texts"),
        ({"queries": [1]}, "`queries` must be a list of texts"),
        ({"queries": ["a"] * 16385}, "`queries` has 16385, the limit is 16384"),
        ({"queries": ["a"], "topk": 0}, "`topk` must be a whole number from 1 to 100"),
        ({"queries": ["a"], "topk": True}, "`topk` must be a whole number from 1 to 100"),
        ({"queries": ["a"], "return_scores": 1}, "`return_scores` must be true or false"),
    ],
)
def test_a_wrong_batch_is_refused_with_a_reason(service: Served, asked: dict[str, Any], why: str) -> None:
    code, answer = retrieve(service, **asked)
    assert (code, answer["error"]["what"]) == (422, why)


class Held:
    """An index that answers one query after the other, once `go` is set; `seen` are those it was asked."""

    together = 1

    def __init__(self) -> None:
        self.go, self.seen = threading.Event(), list[str]()

    def find(self, query: str, top_k: int) -> list[Passage]:
        self.find_scored([query], top_k)
        return []

    def find_scored(self, queries: list[str], top_k: int) -> list[list[tuple[Passage, float]]]:
        self.seen += queries
        self.go.wait(HANGS)
        return [[] for _ in queries]


async def started(folder: Path, batch: list[str]) -> tuple[Held, SearchService, "asyncio.Task[Any]"]:
    """A batch whose first query is being answered by the only thread."""
    index, service = Held(), SearchService(folder / "index", None, threads=1)
    service._passages = index  # type: ignore[assignment]
    task = asyncio.create_task(service.retrieve({"queries": batch}))
    while not index.seen:
        await asyncio.sleep(0.001)
    return index, service, task


def test_a_single_query_does_not_wait_for_a_whole_batch(folder: Path) -> None:
    async def main() -> list[str]:
        index, service, batch = await started(folder, ["a", "b", "c"])
        single = asyncio.create_task(service.search({"query": "single", "top_k": 1}))
        await asyncio.sleep(0)
        index.go.set()
        await asyncio.gather(batch, single)
        return index.seen

    assert asyncio.run(main()) == ["a", "single", "b", "c"]


def test_an_index_that_fails_in_a_batch_is_named_in_the_answer(folder: Path) -> None:
    class Damaged(Held):
        def find_scored(self, queries: list[str], top_k: int) -> list[list[tuple[Passage, float]]]:
            raise DataError("the index is damaged", fix="build it again")

    service = SearchService(folder / "index", None, threads=2)
    service._passages = Damaged()  # type: ignore[assignment]
    with pytest.raises(DataError, match="the index is damaged"):
        asyncio.run(service.retrieve({"queries": ["a", "b", "c"]}))


@pytest.mark.parametrize(
    ("error", "status"),
    [(Busy("full"), 503), (DataError("none"), 422), (ServiceError("gone"), 500), (RunFailed("x"), 500)],
)
def test_only_a_wrong_request_is_the_fault_of_the_client(error: VtuneError, status: int) -> None:
    assert status_of(error) == status


def test_a_cancelled_batch_asks_no_more(folder: Path) -> None:
    async def main() -> list[str]:
        index, service, batch = await started(folder, ["a", "b", "c"])
        batch.cancel()
        await asyncio.wait({batch})
        index.go.set()
        await service.search({"query": "next", "top_k": 1})
        return index.seen

    assert asyncio.run(main()) == ["a", "next"]


def test_a_client_that_hangs_up_ends_its_batch(folder: Path) -> None:
    service = SearchService(folder / "index", None, threads=1)
    service._passages = index = Held()  # type: ignore[assignment]
    app = app_of(service, token=None, max_bytes=2**20)
    body = json.dumps({"queries": ["a", "b", "c"]}).encode()
    messages = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(_: Any) -> None:
        pass

    async def main() -> None:
        headers = [(b"content-length", b"40")]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/retrieve",
            "query_string": b"",
            "headers": headers,
        }
        await app(scope, receive, send)
        index.go.set()

    asyncio.run(main())
    assert index.seen == ["a"]


def test_a_dense_batch_finds_what_each_query_finds_alone(folder: Path) -> None:
    build_encoder(folder / "encoder", ["ferry", "sark", "island", "sails", "to"], seed=0)
    index_dense(folder / "corpus.jsonl", folder / "dense", encoder=str(folder / "encoder"), family="e5")
    service = SearchService(folder / "dense", None, threads=2)
    queries = [f"ferry {'sark ' * (number % 7)}island" for number in range(70)] + [" "]

    def asked(queries: list[str]) -> list[Any]:
        sent = {"queries": queries, "topk": 2, "return_scores": True}
        return list(asyncio.run(service.retrieve(sent))["result"])

    section = {"index": str(folder / "dense"), "top_k": 1, "max_chars": 9}
    assert doctor(ToolsRecipe.model_validate({"text_search": section}))[0][0] == "ok"
    together = asked(queries)
    assert together[-1] == []
    for one, query in zip(together, queries, strict=True):
        (alone,) = asked([query])
        assert [row["document"] for row in one] == [row["document"] for row in alone]
        assert [row["score"] for row in one] == pytest.approx([row["score"] for row in alone], abs=1e-5)


def test_the_remedy_for_a_server_that_fails_fits_its_protocol() -> None:
    def remedy(url: str) -> str:
        with pytest.raises(ServiceError) as told:
            check_passages_service(url, Patience.model_validate(PATIENCE), None)
        return str(told.value.fix)

    own, foreign = remedy("http://127.0.0.1:1"), remedy("http://127.0.0.1:1/retrieve/")
    assert own.startswith("start it (`vtune serve search`)")
    assert own.endswith("the url of a server with Search-R1's protocol ends with /retrieve")
    assert foreign == "start it, see what it logs, or fix url and token_env of tools.text_search"


def retrieved(answer: Any) -> list[Passage]:
    async def post(_: Any) -> Any:
        return answer

    searcher = RetrievedPassages("http://host/retrieve", Patience.model_validate(PATIENCE), token=None)
    searcher._poster.post = post  # type: ignore[method-assign]
    return asyncio.run(searcher.search("steps", 3))


STEPS = {"id": "1", "contents": '"Ulm"\nThe minster has 768 steps.'}


@pytest.mark.parametrize(
    ("row", "passage"),
    [
        (STEPS, Passage("1", "Ulm", "The minster has 768 steps.")),
        ({"document": STEPS, "score": 1}, Passage("1", "Ulm", "The minster has 768 steps.")),
        ({"document": STEPS | {"id": 5.0}}, Passage("5", "Ulm", "The minster has 768 steps.")),
        ({"document": "768 steps.", "score": 1}, Passage("", "", "768 steps.")),
        ("768 steps.", Passage("", "", "768 steps.")),
    ],
)
def test_documents_of_other_servers_are_read_and_empty_ones_left_out(row: Any, passage: Passage) -> None:
    empty = [{"document": {"id": "0", "contents": text}, "score": 2} for text in (" ", None, '""', '""\n ')]
    assert retrieved({"result": [[*empty, '""\n', row]]}) == [passage]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({}, "not the answer of a retrieval server: {}"),
        ([], "not the answer of a retrieval server"),
        ({"result": []}, "not the answer of a retrieval server"),
        ({"result": [STEPS]}, "not the answer of a retrieval server"),
        ({"result": ["768 steps."]}, "not the answer of a retrieval server"),
        ({"result": [[{"document": 1}]]}, "not the answer of a retrieval server"),
        (
            {"result": [[STEPS, {"id": "1"}]]},
            "document 1 of a retrieval server's answer: a passage has no text",
        ),
        ({"result": [[{"id": [1], "contents": "a"}]]}, r"document 0 .*: `id` must be .* and is \[1\]"),
    ],
)
def test_an_answer_that_cannot_be_read_is_our_error_with_the_reason(answer: Any, why: str) -> None:
    with pytest.raises(ServiceError, match=why) as told:
        retrieved(answer)
    assert "contents" in told.value.fix
