"""text_search_tool: answers a query with passages from an index or the web, or with their summary."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from vtune.errors import DataError
from vtune.judge.client import JudgeClient
from vtune.judge.endpoint import JudgeEndpoint
from vtune.judge.key import secret
from vtune.judge.prompts import Prompt
from vtune.sections import Strict
from vtune.tools import TOOLS
from vtune.tools.exchanges import Exchanges, Request
from vtune.tools.hosts import BlockedHost
from vtune.tools.http import Patience
from vtune.tools.observation import Observation, inert
from vtune.tools.passage import Passage, Searcher, numbered
from vtune.tools.passages import IndexEncoder, check_passages, open_passages
from vtune.tools.remote_settings import check_remote
from vtune.tools.similarity import QUERIES
from vtune.tools.tool import Mistake, Scene, Schema, ToolPart, check_names, function, shown
from vtune.tools.web_pages import PageSearch, WebPages

NAME = "text_search_tool"

NOTHING = "No matching passages were found."

LONGEST_QUERY = 1000
"""In characters; ours."""

CUT = " …"

Summarise = Callable[[str, str], Awaitable[str]]
"""(query, passages as text) -> a summary; raises ServiceError if it fails."""


SUMMARISE = """You read search results for somebody who asked for them.

Write down, in at most five sentences, what they say about the query: names, dates, numbers and places as \
they stand there. Use nothing but the results. If they say nothing about the query, write exactly that."""
"""Ours; SenseNova-MARS's code asks for at most five sentences, too."""


class WebSearch(Strict):
    """The Serper API, and its recorded answers."""

    api_key_env: str | None
    """Name of the environment variable that holds the key; null sends no request: recorded answers only."""
    max_requests: int = Field(ge=0)
    """Limit on requests by one process of a run; the answers are recorded in search-*.jsonl of its folder."""
    recorded: tuple[str, ...]
    """Such files of other runs: what they contain is not requested again."""
    blocked: tuple[BlockedHost, ...] = ()
    """Hosts whose pages are not shown; a suite's `blocked_hosts` are added to these."""


class TextSearchRecipe(Strict):
    """Where text is searched: exactly one of `index`, `url`, `web` and `pages`."""

    index: str | None = None
    """Folder that `vtune data index` wrote: searched in this process."""
    url: str | None = None
    """URL of a `vtune serve search`; one that ends with `/retrieve` is asked in Search-R1's protocol."""
    token_env: str | None = None
    """Name of the environment variable that holds its token; null if it needs none."""
    web: WebSearch | None = None
    pages: WebPages | None = None
    """The web through any search engine, with pages read; record, budget and blocks are those of `tools.web`.
    """
    encoder: IndexEncoder | None = None
    """With a dense `index`: the model that embeds queries; null: the one that the index names, on the CPU."""
    top_k: int = Field(gt=0, le=100)
    """Passages per answer (3 in SenseNova-MARS's training)."""
    max_chars: int = Field(gt=0)
    """Per answer."""
    patience: Patience | None = None
    """With `url`, `web` and `pages`: how long to wait for an answer."""
    summariser: JudgeEndpoint | None = None
    """A model that reads the passages and summarises them; null shows the passages."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if sum(place is not None for place in (self.index, self.url, self.web, self.pages)) != 1:
            raise ValueError("give exactly one of index, url, web and pages")
        if self.encoder is not None and self.index is None:
            raise ValueError("encoder is for index: a service has its own")
        check_remote(self.url, self.token_env, self.patience, local=self.index is not None)
        return self


class TextSearch:
    """Text search with any searcher.

    Args:
        searcher: Finds passages.
        top_k: Limit on the passages shown.
        max_chars: Limit on the characters of an answer; the rest is cut off.
        summarise: Its summary is shown instead of the passages, if there are any; None shows the passages.
    """

    def __init__(
        self, searcher: Searcher, *, top_k: int, max_chars: int, summarise: Summarise | None = None
    ) -> None:
        self._searcher = searcher
        self._top_k = top_k
        self._max_chars = max_chars
        self._summarise = summarise

    @property
    def schema(self) -> Schema:
        """Name and argument are those of SenseNova-MARS."""
        return function(
            NAME,
            "Search for facts with a text query and read what was found.",
            {"query": {"type": "string", "description": "What to search for, in a few words."}},
            ["query"],
        )

    def key(self, arguments: Mapping[str, Any], scene: Scene) -> str:
        """The query with whitespace normalised."""
        return self._query(arguments)

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Observation:
        """Search, and summarise if configured."""
        query = self._query(arguments)
        passages = await self._searcher.search(query, self._top_k)
        sources = [inert(passage.source) for passage in passages if passage.source]
        return shown(inert(await self._answer(query, passages)), sources=sources)

    async def _answer(self, query: str, passages: Sequence[Passage]) -> str:
        if not passages:
            return NOTHING
        text = numbered(passages)
        if self._summarise is not None:
            text = (await self._summarise(query, text)).strip()
        return text if len(text) <= self._max_chars else text[: self._max_chars].rstrip() + CUT

    def _query(self, arguments: Mapping[str, Any]) -> str:
        check_names(arguments, self.schema)
        query = arguments["query"]
        if not isinstance(query, str) or not query.strip():
            raise Mistake("query is a text with at least one word")
        if len(query) > LONGEST_QUERY:
            raise Mistake(f"the query is longer than {LONGEST_QUERY} characters")
        return " ".join(query.split())


def _searcher(recipe: TextSearchRecipe, record: Path) -> Searcher:
    if recipe.index is not None:
        return open_passages(Path(recipe.index), recipe.encoder)
    assert recipe.patience is not None
    if recipe.url is not None:
        from vtune.tools.remote import remote_passages

        token = secret(recipe.token_env, "the search service's token")
        return remote_passages(recipe.url, recipe.patience, token)
    from vtune.tools.web import Web

    assert recipe.web is not None
    return Web(
        secret(recipe.web.api_key_env, "the web search's key"),
        recipe.patience,
        record=record,
        recorded=[Path(name) for name in recipe.web.recorded],
        max_requests=recipe.web.max_requests,
        blocked=recipe.web.blocked,
    )


def _summariser(client: JudgeClient) -> Summarise:
    async def summarise(query: str, passages: str) -> str:
        quoted = json.dumps(query, ensure_ascii=False)  # as data, so that it cannot give instructions
        return await client.ask(Prompt(SUMMARISE, f"Query: {quoted}\n\nResults:\n{passages}"), [])

    return summarise


@asynccontextmanager
async def _opened(section: TextSearchRecipe, record: Path) -> AsyncIterator[TextSearch]:
    async with AsyncExitStack() as stack:
        searcher = await stack.enter_async_context(aclosing(_searcher(section, record)))
        summarise = None
        if section.summariser is not None:
            client = await stack.enter_async_context(JudgeClient(section.summariser, section="summariser"))
            summarise = _summariser(client)
        yield TextSearch(searcher, top_k=section.top_k, max_chars=section.max_chars, summarise=summarise)


@asynccontextmanager
async def _on_web(section: TextSearchRecipe, exchanges: Exchanges, record: Path) -> AsyncIterator[TextSearch]:
    async with AsyncExitStack() as stack:
        searcher = _recorded(section, record, exchanges)
        await stack.enter_async_context(aclosing(searcher))
        summarise = None
        if section.summariser is not None:
            ask = None
            if not exchanges.replays:
                ask = _summariser(
                    await stack.enter_async_context(JudgeClient(section.summariser, section="summariser"))
                )
            summarise = _kept(ask, section.summariser, exchanges)
        yield TextSearch(searcher, top_k=section.top_k, max_chars=section.max_chars, summarise=summarise)


def _recorded(section: TextSearchRecipe, record: Path, exchanges: Exchanges) -> Searcher:
    """The searcher that uses the web and the shared record of all tools."""
    assert section.patience is not None
    if section.pages is not None:
        return PageSearch(section.pages, section.patience, exchanges)
    from vtune.tools.web import Snippets, Web

    assert section.web is not None
    web = None if exchanges.replays else _searcher(section, record)
    assert web is None or isinstance(web, Web)
    return Snippets(web, exchanges, blocked=section.web.blocked)


def _kept(ask: Summarise | None, endpoint: JudgeEndpoint, exchanges: Exchanges) -> Summarise:
    """Summaries are recorded, too, so that a replay asks no model."""

    async def summarise(query: str, passages: str) -> str:
        async def asked() -> str:
            assert ask is not None
            return await ask(query, passages)

        settings = {"model": endpoint.model, "temperature": endpoint.temperature, "system": SUMMARISE}
        facts = {**settings, "max_tokens": endpoint.max_tokens, "passages": passages}
        return str(await exchanges.get(Request("summary", query, facts), asked))

    return summarise


def _check(section: TextSearchRecipe) -> None:
    if section.index is not None:
        check_passages(Path(section.index), section.encoder)


def _check_asking(section: TextSearchRecipe) -> None:
    token = secret(section.token_env, "the search service's token")
    if section.url is not None:
        from vtune.tools.remote import check_passages_service

        assert section.patience is not None
        check_passages_service(section.url, section.patience, token)
    if section.pages is not None:
        secret(section.pages.api_key_env, "the key of the search engine")
    if section.web is not None:
        secret(section.web.api_key_env, "the web search's key")
        for path in section.web.recorded:
            if not Path(path).is_file():
                raise DataError(
                    f"there are no recorded searches at {path}", fix="fix tools.text_search.web.recorded"
                )


def _indexed(folder: Path) -> dict[str, Any]:
    """An index with two passages."""
    from vtune.tools.bm25_build import build_index

    texts = {"Ulm": "The minster has 768 steps.", "Bern": "The bears live by the river."}
    passages = [Passage(id=title, title=title, text=text) for title, text in texts.items()]
    (folder / "passages").mkdir()
    build_index(passages, folder / "passages", lambda: None)
    return {"index": str(folder / "passages"), "top_k": 1, "max_chars": 200}


TOOLS.add(
    NAME,
    ToolPart(
        "Search an index or the web for passages.",
        opened=_opened,
        on_web=_on_web,
        asks_web=lambda section, web: (
            section.pages is not None or (section.web is not None and web.asked_for)
        ),
        section="text_search",
        recipe=TextSearchRecipe,
        check=_check,
        check_asking=_check_asking,
        example={"query": "steps of the minster"},
        settings=_indexed,
        nothing=NOTHING,
        credit=QUERIES,
    ),
)
