"""Search engines with JSON interfaces: how each is queried, and where its response has the results."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from vtune.errors import ServiceError
from vtune.tools.http import Poster

EngineName = Literal["serper", "searxng"]


@dataclass(frozen=True, slots=True)
class Hit:
    """A search result: a page, or one with a picture that looks similar."""

    url: str
    title: str
    snippet: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One JSON format of queries and results."""

    url: str | None
    """Its URL, if there is only one."""
    key_header: str
    """Header that carries the key."""
    asks: Callable[[str, int], dict[str, Any]]
    """(query, how many) -> what is sent."""
    posts: bool
    """Whether JSON is posted; otherwise the same is sent as URL parameters."""
    results: str
    """Key of the list of results."""
    columns: tuple[str, str, str]
    """Keys of a result: address, title, snippet."""
    failed: str | None = None
    """Key of a list of failures that an answer without results may come from."""


ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        "serper": Engine(
            url="https://google.serper.dev/search",
            key_header="X-API-KEY",
            asks=lambda query, count: {"q": query, "num": count},
            posts=True,
            results="organic",
            columns=("link", "title", "snippet"),
        ),
        "searxng": Engine(
            url=None,
            key_header="Authorization",
            asks=lambda query, count: {"q": query, "format": "json"},
            posts=False,
            results="results",
            columns=("url", "title", "content"),
            failed="unresponsive_engines",
        ),
    }
)
"""Name -> engine."""

PICTURES = Engine(
    url=None,
    key_header="X-API-KEY",
    asks=lambda picture, count: {"image": picture, "num": count},
    posts=True,
    results="organic",
    columns=("link", "title", "snippet"),
)
"""Reverse image search: the picture is posted in base64, and the answer has the format of `serper`. Ours:
engines that accept only a picture's URL need a service in front of them that provides one."""


SPARE = 5
"""Results requested beyond those shown, so that blocked ones leave no gaps; ours."""


async def ask(engine: Engine, poster: Poster, what: str, count: int) -> list[Hit]:
    """The results of an engine, in its order, at most `count`.

    Raises:
        ServiceError: If there is no usable answer.
    """
    sent = engine.asks(what, count)
    answer = await (poster.post(sent) if engine.posts else poster.get(sent))
    return read_hits(engine, answer)[:count]


def outage(engine: Engine, answer: Any) -> str:
    """What failed behind an answer with status 200; "" if nothing did: it may still have found nothing."""
    if not isinstance(answer, dict):
        return ""
    if engine.results not in answer:
        return f"its answer has no `{engine.results}`: {answer!r:.200}"
    if answer[engine.results] == [] and engine.failed is not None and (failed := answer.get(engine.failed)):
        return f"it found nothing, and `{engine.failed}` are {failed!r:.200}"
    return ""


def read_hits(engine: Engine, answer: Any) -> list[Hit]:
    """The results of an answer; one without an address or a title is left out.

    Raises:
        ServiceError: If it is not in the format of this engine.
    """
    rows = answer.get(engine.results) if isinstance(answer, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ServiceError(
            f"not an answer of a search engine: {answer!r:.200}",
            fix="check `engine` and `url` of the tool",
        )
    found = [tuple(row.get(column) for column in engine.columns) for row in rows]
    return [
        Hit(url, title, snippet if isinstance(snippet, str) else "")
        for url, title, snippet in found
        if isinstance(url, str) and url and isinstance(title, str)
    ]
