"""Search engines with JSON interfaces: how each is queried, and where its response has the results."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from vtune.errors import ServiceError
from vtune.tools.http import Outage, Poster

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
    page: int | None = None
    """Results per page, if those of a second one cost more; None if not."""
    outage: Callable[[Mapping[str, Any]], Outage | None]
    """What failed behind an answer; None if nothing did: it may still have found nothing."""


def _serper_outage(answer: Mapping[str, Any]) -> Outage | None:
    """Serper may leave `organic` out where it found nothing, but then repeats the search."""
    if "organic" in answer or ("searchParameters" in answer and _picture_outage(answer) is None):
        return None
    return Outage(f"its answer has no `organic`: {answer!r:.200}", "check the key, and its credits")


def _picture_outage(answer: Mapping[str, Any]) -> Outage | None:
    """A service of the user's own may answer `{}` where it found nothing."""
    if "organic" in answer or not {"message", "statusCode"} & answer.keys():
        return None
    return Outage(f"its answer has no `organic`: {answer!r:.200}", "check the service, and what it logs")


LASTING = ("suspended", "captcha", "access denied")
"""How the reasons of SearXNG begin that hold for hours."""


def _searxng_outage(answer: Mapping[str, Any]) -> Outage | None:
    """Where engines failed, whether they would have found something is unknown."""
    if "results" not in answer:
        return Outage(f"its answer has no `results`: {answer!r:.200}", "check `engine` and `url` of the tool")
    failed = answer.get("unresponsive_engines")
    if answer["results"] != [] or answer.get("answers") or answer.get("infoboxes") or not failed:
        return None
    rows = failed if isinstance(failed, list) else []
    reasons = [str(row[-1]).lower() for row in rows if isinstance(row, list) and row]
    return Outage(
        f"it found nothing, and `unresponsive_engines` are {failed!r:.200}",
        "disable engines that never answer in SearXNG's settings, or name others in `url` of the tool: "
        "…/search?engines=NAME,NAME",
        passing=not reasons or not all(reason.startswith(LASTING) for reason in reasons),
    )


ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        "serper": Engine(
            url="https://google.serper.dev/search",
            key_header="X-API-KEY",
            asks=lambda query, count: {"q": query, "num": count},
            posts=True,
            results="organic",
            columns=("link", "title", "snippet"),
            page=10,
            outage=_serper_outage,
        ),
        "searxng": Engine(
            url=None,
            key_header="Authorization",
            asks=lambda query, count: {"q": query, "format": "json"},
            posts=False,
            results="results",
            columns=("url", "title", "content"),
            outage=_searxng_outage,
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
    outage=_picture_outage,
)
"""Reverse image search: the picture is posted in base64, and the answer has the format of `serper`. Ours:
engines that accept only a picture's URL need a service in front of them that provides one."""


SPARE = 5
"""Results requested beyond those shown, so that blocked ones leave no gaps; ours."""


async def ask(engine: Engine, poster: Poster, what: str, top_k: int) -> list[Hit]:
    """The results of an engine, in its order: `top_k`, and up to `SPARE` more that cost nothing.

    Raises:
        ServiceError: If there is no usable answer.
    """
    count = top_k + SPARE
    if engine.page is not None:
        count = max(top_k, min(count, engine.page))
    sent = engine.asks(what, count)
    answer = await (poster.post(sent) if engine.posts else poster.get(sent))
    return read_hits(engine, answer)[:count]


def outage(engine: Engine, answer: Any) -> Outage | None:
    """What failed behind an answer with status 200; None if nothing did, or it is no answer of an engine."""
    return engine.outage(answer) if isinstance(answer, dict) else None


def read_hits(engine: Engine, answer: Any) -> list[Hit]:
    """The results of an answer without an outage; one without an address or a title is left out.

    Raises:
        ServiceError: If it is not in the format of this engine.
    """
    rows = answer.get(engine.results, []) if isinstance(answer, dict) else None
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
