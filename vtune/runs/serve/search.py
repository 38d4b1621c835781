"""`vtune serve search`: indexes of passages and pictures behind HTTP, for runs on other machines."""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp

from vtune.errors import DataError, RecipeError, VtuneError, first_failure
from vtune.reward.body import Bodies, Busy
from vtune.reward.guard import Guard, Packed
from vtune.reward.refusals import answer_errors
from vtune.runs.serve.listening import Binding, listen, serve_until_stopped, url_of
from vtune.runs.serve.rewards import check_token
from vtune.tools.observation import encodable
from vtune.tools.passages import Device, IndexEncoder, open_passages
from vtune.tools.picture_index import MIN_SCORE, PictureIndex
from vtune.tools.retrieve import ROUTE, packed
from vtune.tools.retrieve import TOP_K as DEFAULT_TOP_K
from vtune.tools.store import read_manifest
from vtune.tools.text_search import LONGEST_QUERY

if TYPE_CHECKING:
    from vtune.tools.bm25 import PassageIndex
    from vtune.tools.dense import DenseIndex

TOP_K = 100
"""Results per query at most; ours."""

QUERIES = 16384
"""Queries per request at most; ours: Search-R1 sends those of a step at once, e.g. of 1024 prompts with 8
rollouts each."""

ASKED = "POST /search, POST /retrieve, POST /images or GET /health"
"""The requests that the service answers."""

GONE = Response()
"""Response to a client that has hung up, so nobody reads it."""

T = TypeVar("T")


def run_search(
    passages: Path | None,
    pictures: Path | None,
    at: Binding,
    *,
    threads: int,
    encoders: "Encoders",
    min_score: float | None,
    ready: Callable[[dict[str, Any]], None],
) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP; running requests are answered first.

    Args:
        passages: Index for POST /search; None: not served.
        pictures: Index for POST /images; None: not served.
        at: Where it listens, and what it accepts there.
        threads: Queries that are answered at the same time.
        encoders: Models that embed queries and pictures.
        min_score: Pictures with a lower score are not returned; None: `MIN_SCORE`.
        ready: Called with `url`, `token` (whether one is needed) and what /health reports, once it listens.

    Raises:
        RecipeError: If there is nothing to serve, a required token is missing, or the address is unusable.
        DataError: If an index is incomplete.
    """
    check_token(at.host, at.token)
    service = SearchService(passages, pictures, threads=threads, encoders=encoders, min_score=min_score)
    app = app_of(service, token=at.token, max_bytes=at.max_bytes)
    with listen(at.host, at.port) as listener:
        facts = {"url": url_of(listener), "token": at.token is not None} | service.health()
        asyncio.run(serve_until_stopped(app, listener, lambda: ready(facts)))


@dataclass(frozen=True, slots=True)
class Encoders:
    """Where the models that embedded the indexes are now."""

    passages: str | None = None
    """Folder or hub name; None: as recorded in the index."""
    pictures: str | None = None
    device: Device | None = None
    """Device for all of them; None: the CPU."""

    def of(self, model: str | None, facts: Mapping[str, Any]) -> IndexEncoder | None:
        """The encoder to open an index with; a device alone means nothing to an index without a model."""
        if model is None and (self.device is None or facts.get("encoder") is None):
            return None
        return IndexEncoder(model=model, device=self.device or "cpu")


class SearchService:
    """Answers queries to its indexes; reading them uses threads, not the event loop.

    Each thread takes what has waited longest, and a batch of queries waits anew for each part of it. So
    requests take turns, whatever their size, and one that is cancelled leaves at most a part in each thread.
    """

    def __init__(
        self,
        passages: Path | None,
        pictures: Path | None,
        *,
        threads: int,
        encoders: Encoders = Encoders(),
        min_score: float | None = None,
    ) -> None:
        if passages is None and pictures is None:
            raise RecipeError("nothing to serve", fix="give an index, or --pictures DIR, or both")
        if encoders.passages is not None and passages is None:
            raise RecipeError(
                "--encoder is for an index of passages",
                fix="name the index, too; for pictures, give --picture-encoder",
            )
        if pictures is None and (min_score is not None or encoders.pictures is not None):
            raise RecipeError(
                "--min-score and --picture-encoder are for an index of pictures",
                fix="give --pictures DIR, too",
            )
        least = MIN_SCORE if min_score is None else min_score
        self._passages = self._pictures = text = image = None
        if passages is not None:
            text = encoders.of(encoders.passages, read_manifest(passages, "passages", "dense"))
            self._passages = open_passages(passages, text)
        if pictures is not None:
            image = encoders.of(encoders.pictures, read_manifest(pictures, "pictures"))
            self._pictures = PictureIndex(pictures, min_score=least, encoder=image)
        if encoders.device is not None and text is None and image is None:
            raise RecipeError("no index here uses a model", fix="leave --device out")
        self._lanes = threads
        self._threads = ThreadPoolExecutor(threads, "search")

    def health(self) -> dict[str, Any]:
        """What it can search; None for an index that it does not have."""
        return {
            "status": "ok",
            "passages": None if self._passages is None else self._passages.passages,
            "pictures": None if self._pictures is None else self._pictures.pictures,
        }

    async def search(self, asked: Any) -> dict[str, Any]:
        """Passages for {"query", "top_k"}.

        Raises:
            DataError: If the request is malformed.
        """
        index = self._index()
        query, top_k = _field(asked, "query"), _top_k(asked)
        if len(query) > LONGEST_QUERY:
            raise DataError(f"`query` has more than {LONGEST_QUERY} characters", fix="ask a shorter question")
        found = await self._in_turn(index.find, query, top_k)
        return {"results": [{"id": one.id, "title": one.title, "text": one.text} for one in found]}

    async def retrieve(self, asked: Any) -> dict[str, Any]:
        """Passages for each query of {"queries", "topk", "return_scores"}, in Search-R1's protocol.

        A batch of a training step must not fail because of one query: an empty one finds nothing, and of a
        longer one the first `LONGEST_QUERY` characters count.

        Raises:
            DataError: If it is not such a request.
        """
        index = self._index()
        queries, top_k, scores = _batch(asked)
        result: list[list[dict[str, Any]]] = [[] for _ in queries]
        full = [number for number, query in enumerate(queries) if query.strip()]
        parts = iter([full[start : start + index.together] for start in range(0, len(full), index.together)])

        async def lane() -> None:
            for part in parts:
                cut = [encodable(queries[number][:LONGEST_QUERY]) for number in part]
                found = await self._in_turn(index.find_scored, cut, top_k)
                for number, best in zip(part, found, strict=True):
                    result[number] = packed(best, scores=scores)

        with first_failure():
            async with asyncio.TaskGroup() as lanes:
                for _ in range(self._lanes):
                    lanes.create_task(lane())
        return {"result": result}

    async def _in_turn(self, search: Callable[..., T], *given: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(search, *given))

    def _index(self) -> "PassageIndex | DenseIndex":
        if self._passages is None:
            raise DataError("there is no index of passages here", fix="start the service with one")
        return self._passages

    async def images(self, asked: Any) -> dict[str, Any]:
        """Matches for {"picture": base64, "top_k"}.

        Raises:
            DataError: If the request is malformed.
        """
        if self._pictures is None:
            raise DataError("there is no index of pictures here", fix="start the service with --pictures")
        text, top_k = _field(asked, "picture"), _top_k(asked)
        try:
            picture = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            fix = "send the file's bytes in base64; of a data URL, only what follows the comma"
            raise DataError("`picture` is not base64", fix=fix) from None
        found = await self._in_turn(self._pictures.find, picture, top_k)
        return {
            "results": [
                {
                    "title": one.title,
                    "text": one.text,
                    "score": one.score,
                    "thumbnail": None
                    if one.thumbnail is None
                    else base64.b64encode(one.thumbnail).decode("ascii"),
                }
                for one in found
            ]
        }


def app_of(service: SearchService, *, token: str | None, max_bytes: int) -> ASGIApp:
    """The ASGI application of a service.

    Args:
        service: Answers the queries.
        token: Required in every request; None accepts all requests.
        max_bytes: Size limit of a request.
    """
    app = FastAPI(title="vtune search service")
    bodies = Bodies()

    async def answered(request: Request, found: Callable[[Any], Awaitable[dict[str, Any]]]) -> Response:
        async def by(body: bytes) -> Response:
            return Packed(await found(await bodies.parse(body, lambda value: value)))

        return await bodies.read(request.receive, by) or GONE

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return service.health()

    @app.post("/search")
    async def search(request: Request) -> Response:
        return await answered(request, service.search)

    @app.post(ROUTE)
    async def retrieve(request: Request) -> Response:
        return await answered(request, service.retrieve)

    @app.post("/images")
    async def images(request: Request) -> Response:
        return await answered(request, service.images)

    answer_errors(app, asked=ASKED, status_of=status_of)
    return Guard(app, token=token, max_bytes=max_bytes)


def status_of(error: VtuneError) -> int:
    """The HTTP status of an error; clients retry from 500 on, but not what they asked wrongly."""
    if isinstance(error, Busy):
        return 503
    return 422 if isinstance(error, DataError) else 500


def _field(asked: Any, name: str) -> str:
    value = asked.get(name) if isinstance(asked, dict) else None
    fix = 'send {"query": "…", "top_k": 3} or {"picture": "…", "top_k": 5}'
    if not isinstance(value, str):
        raise DataError(f"`{name}` must be a text", fix=fix)
    if not value.strip():
        raise DataError(f"`{name}` is empty", fix=fix)
    if value != encodable(value):
        raise DataError(
            f"`{name}` holds half a character, which no encoder reads",
            fix="send both halves of a surrogate pair, or neither",
        )
    return value


def _batch(asked: Any) -> tuple[list[str], int, bool]:
    """Queries, passages per query and whether scores are wanted."""
    asked = asked if isinstance(asked, dict) else {}
    queries, top_k, scores = asked.get("queries"), asked.get("topk"), asked.get("return_scores")
    top_k = DEFAULT_TOP_K if top_k is None else top_k
    fix = 'send {"queries": ["…"], "topk": 3, "return_scores": true}'
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise DataError("`queries` must be a list of texts", fix=fix)
    if len(queries) > QUERIES:
        raise DataError(f"`queries` has {len(queries)}, the limit is {QUERIES}", fix="send fewer at once")
    if type(top_k) is not int or not 1 <= top_k <= TOP_K:
        raise DataError(f"`topk` must be a whole number from 1 to {TOP_K}", fix=fix)
    if not isinstance(scores, bool | None):
        raise DataError("`return_scores` must be true or false", fix=fix)
    return queries, top_k, bool(scores)


def _top_k(asked: dict[str, Any]) -> int:
    value = asked.get("top_k")
    if type(value) is not int or not 1 <= value <= TOP_K:
        raise DataError(
            f"`top_k` must be given, a whole number from 1 to {TOP_K}", fix='send {"query": "…", "top_k": 3}'
        )
    return value
