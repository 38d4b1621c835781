"""text_search_tool: a query, answered by the passages that an index or the web finds, or by their summary."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from vtune.tools.observation import Observation, inert
from vtune.tools.passage import Passage, Searcher, numbered
from vtune.tools.tool import Mistake, Scene, Schema, check_names, function, shown

NAME = "text_search_tool"

NOTHING = "No matching passages were found."

LONGEST_QUERY = 1000
"""Characters; ours."""

CUT = " …"

Summarise = Callable[[str, str], Awaitable[str]]
"""(query, passages as text) -> what they say about it; raises ServiceError where it cannot."""


class TextSearch:
    """Asks a searcher.

    Args:
        searcher: Finds passages.
        top_k: How many to show at most.
        max_chars: Of an answer; the rest is cut off.
        summarise: Shown instead of the passages, where there are any; None shows them.
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
        """Its name and argument are those of SenseNova-MARS."""
        return function(
            NAME,
            "Search for facts with a text query and read what was found.",
            {"query": {"type": "string", "description": "What to search for, in a few words."}},
            ["query"],
        )

    def key(self, arguments: Mapping[str, Any], scene: Scene) -> str:
        """The query, without needless spaces."""
        return self._query(arguments)

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Observation:
        """Search, and summarise where that is asked for."""
        query = self._query(arguments)
        passages = await self._searcher.search(query, self._top_k)
        return shown(inert(await self._answer(query, passages)))

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
