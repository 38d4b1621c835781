"""Web text search that reads the pages it finds, and reverse image search, sharing one record."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from vtune.errors import MissingExtra, ServiceError
from vtune.judge.key import check_no_login, secret
from vtune.sections import Strict
from vtune.tools.engines import ENGINES, PICTURES, SPARE, Engine, EngineName, Hit, ask, outage
from vtune.tools.exchanges import Exchanges, ForNow, Request
from vtune.tools.fetch import Fetcher, Limits, NotRead
from vtune.tools.hosts import is_blocked
from vtune.tools.http import Patience, Poster
from vtune.tools.observation import encodable
from vtune.tools.page_text import PageText
from vtune.tools.passage import Passage
from vtune.tools.pictures import Match

NO_WEB = "pip install 'vtune[web]'"


class WebPages(Strict):
    """A search engine, and how its results are read."""

    engine: EngineName
    url: str | None = None
    """URL of the engine; null: its default, for an engine with a fixed address."""
    api_key_env: str | None
    """Name of the environment variable that holds the key; null if it needs none."""
    read: int = Field(ge=0)
    """How many of the first results are read as pages; for the others (0: for all) the engine's text is
    shown."""
    page_chars: int = Field(gt=0)
    """Characters of a page's text that are shown, or summarised."""
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _has_a_place(self) -> Self:
        if self.url is None and ENGINES[self.engine].url is None:
            raise ValueError(f"`{self.engine}` needs a url: it has no default address")
        if self.url is not None:
            check_no_login(self.url, "api_key_env")
        return self


class WebPictures(Strict):
    """A service for reverse image search."""

    url: str
    api_key_env: str | None

    @field_validator("url")
    @classmethod
    def _holds_no_login(cls, url: str) -> str:
        check_no_login(url, "api_key_env")
        return url


def poster_of(engine: Engine, url: str | None, key_env: str | None, patience: Patience, name: str) -> Poster:
    """The client for an engine.

    Raises:
        RecipeError: If its key is not set.
    """
    key = secret(key_env, f"the key of {name}")
    place = url or engine.url
    assert place is not None
    headers = {} if key is None else {engine.key_header: key}
    return Poster(place, patience, headers=headers, name=name, outage=partial(outage, engine))


class PageSearch:
    """Finds pages, and reads the first of them.

    Args:
        section: Engine, and how many results are read.
        patience: For the engine; pages have `limits`, and the same number of retries.
        exchanges: Record, budget and blocked hosts.

    Raises:
        RecipeError: If the engine's key is not set.
        MissingExtra: If pages are to be read, and the package that extracts their text is not installed.
    """

    def __init__(self, section: WebPages, patience: Patience, exchanges: Exchanges) -> None:
        self._section = section
        self._exchanges = exchanges
        self._engine = ENGINES[section.engine]
        self._poster: Poster | None = None
        if not exchanges.replays:
            self._poster = poster_of(
                self._engine,
                section.url,
                section.api_key_env,
                patience,
                f"the search engine {section.engine}",
            )
            if section.read:
                check_extractor()
        self._fetcher = Fetcher(section.limits, exchanges.rules.blocked, retries=patience.retries)
        self._text = PageText(section.limits.timeout_s)

    async def search(self, query: str, top_k: int) -> list[Passage]:
        """The results from the web; the text of each page that could be read, else the engine's snippet.

        Raises:
            ServiceError: If the engine does not answer in time, the budget is spent, or it is not on record.
        """
        # Records name searches by this count, whatever the engine is asked for.
        count = top_k + SPARE
        facts = {"engine": self._section.engine, "url": self._section.url, "count": count}
        answer = await self._exchanges.get(Request("search", query, facts), lambda: self._ask(query, top_k))
        hits = allowed(answer, self._exchanges.rules.blocked)[:top_k]
        # One at a time: where a budget ends must not depend on the web's speed.
        return [await self._passage(hit, read=place < self._section.read) for place, hit in enumerate(hits)]

    async def _ask(self, query: str, top_k: int) -> list[list[str]]:
        assert self._poster is not None
        return [
            [hit.url, hit.title, hit.snippet] for hit in await ask(self._engine, self._poster, query, top_k)
        ]

    async def _passage(self, hit: Hit, *, read: bool) -> Passage:
        found = Passage(
            encodable(hit.url), encodable(hit.title), encodable(hit.snippet), f"{hit.url} (not read)"
        )
        if not read:
            return found
        limits = self._section.limits.model_dump(mode="json")
        request = Request("page", hit.url, {"limits": limits})
        page = _checked(await self._exchanges.get(request, lambda: self._read(hit.url)))
        if "problem" in page:
            return replace(found, source=f"{hit.url} (not read: {page['problem']})")
        if is_blocked(page["url"], self._exchanges.rules.blocked):
            return replace(found, source=f"{hit.url} (not read: {page['url']} is blocked)")
        text = encodable(page["text"])[: self._section.page_chars].rstrip()
        return replace(found, text=text, source=f"{page['url']} (read, {len(text)} characters)")

    async def _read(self, url: str) -> dict[str, str] | ForNow:
        """The text of a page, or why there is none; both are recorded."""
        try:
            page = await self._fetcher.fetch(url)
            text = await self._text.of(page.text) if page.html else page.text
        except NotRead as why:
            problem = {"problem": str(why)}
            return ForNow(problem) if why.passing else problem
        text = text.strip()
        return {"url": page.url, "text": text} if text else {"problem": "no text was found in it"}

    async def aclose(self) -> None:
        """Close the connections; the record belongs to its opener."""
        await self._text.aclose()
        await self._fetcher.aclose()
        if self._poster is not None:
            await self._poster.aclose()


class PictureSearch:
    """Finds pages with similar pictures; a searcher of pictures without thumbnails.

    Raises:
        RecipeError: If the service's key is not set.
    """

    def __init__(self, section: WebPictures, patience: Patience, exchanges: Exchanges) -> None:
        self._section = section
        self._exchanges = exchanges
        self._poster: Poster | None = None
        if not exchanges.replays:
            self._poster = poster_of(
                PICTURES, section.url, section.api_key_env, patience, "the reverse image search"
            )

    async def search(self, picture: bytes, top_k: int) -> list[Match]:
        """What the web knows about similar pictures.

        Raises:
            ServiceError: As in `PageSearch.search`.
        """
        name = hashlib.sha256(picture).hexdigest()
        count = top_k + SPARE
        answer = await self._exchanges.get(
            Request("picture", name, {"url": self._section.url, "count": count}),
            lambda: self._ask(picture, top_k),
        )
        return [
            Match(
                title=encodable(hit.title),
                text=encodable(hit.snippet),
                score=1.0 - place / count,
                thumbnail=None,
                source=hit.url,
            )
            for place, hit in enumerate(allowed(answer, self._exchanges.rules.blocked)[:top_k])
        ]

    async def _ask(self, picture: bytes, top_k: int) -> list[list[str]]:
        assert self._poster is not None
        coded = base64.b64encode(picture).decode("ascii")
        return [[hit.url, hit.title, hit.snippet] for hit in await ask(PICTURES, self._poster, coded, top_k)]

    async def aclose(self) -> None:
        """Close the connections; the record belongs to its opener."""
        if self._poster is not None:
            await self._poster.aclose()


def allowed(answer: Any, blocked: Sequence[str]) -> list[Hit]:
    """The recorded results that are not from a blocked host.

    Raises:
        ServiceError: If the record contains something other than results.
    """
    if not isinstance(answer, list) or not all(_is_hit(row) for row in answer):
        raise ServiceError(f"not results of a search: {str(answer)[:200]!r}", fix="record again")
    hits = [Hit(*row) for row in answer]
    return [hit for hit in hits if not is_blocked(hit.url, blocked)]


def _is_hit(row: Any) -> bool:
    return isinstance(row, list) and len(row) == 3 and all(isinstance(text, str) for text in row)


def _checked(page: Any) -> dict[str, str]:
    """The answer to a request for a page.

    Raises:
        ServiceError: If the record contains something else.
    """
    keys = page.keys() if isinstance(page, dict) else set()
    if keys not in ({"problem"}, {"url", "text"}) or not all(isinstance(one, str) for one in page.values()):
        raise ServiceError(f"not a page: {str(page)[:200]!r}", fix="record again")
    return dict(page)


def check_extractor() -> None:
    """Check that the text of pages can be extracted.

    Raises:
        MissingExtra: If the package for it is not installed.
    """
    try:
        import trafilatura  # noqa: F401
    except ImportError as error:
        raise MissingExtra(
            f"pages cannot be read: {error.name or 'trafilatura'} is missing", fix=NO_WEB
        ) from None
