"""Web text search through the Serper API: responses are kept, and can be replayed without the web."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from vtune.errors import DataError, ServiceError
from vtune.files.json_text import parse_json
from vtune.files.reading import whole_lines
from vtune.files.writing import appending
from vtune.tools.engines import ENGINES, Hit, ask, outage
from vtune.tools.exchanges import UNREADABLE, Exchanges, Request
from vtune.tools.hosts import is_blocked
from vtune.tools.http import Patience, Poster
from vtune.tools.observation import encodable
from vtune.tools.passage import Passage
from vtune.tools.result_cache import ResultCache

SERPER = ENGINES["serper"]


class Web:
    """Searches the web, within a budget; the same query is sent only once.

    Args:
        key: API key; None sends no requests, and only recorded answers are returned.
        patience: How long to wait.
        record: JSONL file of this run's answers, created if missing, written by one process only.
        recorded: Files of other runs, whose answers are used as well.
        max_requests: Limit on this run's requests, including those in `record`; failed ones do not
            count.
        blocked: Hosts whose pages are not shown, whatever the web or a record says.
        url: URL of the API; None: the default.
    """

    def __init__(
        self,
        key: str | None,
        patience: Patience,
        *,
        record: Path,
        recorded: Sequence[Path],
        max_requests: int,
        blocked: Sequence[str] = (),
        url: str | None = None,
    ) -> None:
        place = url or SERPER.url
        assert place is not None
        headers = {} if key is None else {SERPER.key_header: key}
        self._poster = Poster(
            place, patience, headers=headers, name="the web search", outage=partial(outage, SERPER)
        )
        self._live = key is not None
        self._known: dict[tuple[str, int], list[Passage]] = {}
        for path in recorded:
            self._known |= _read(path)
        own = _read(record, repair=True) if record.exists() else {}
        self._known |= own
        self._spent = len(own)
        self._budget = max_requests
        self._blocked = tuple(blocked)
        self._path = record
        self._file: IO[str] | None = None
        self._once: ResultCache[list[Passage]] = ResultCache()

    async def search(self, query: str, top_k: int) -> list[Passage]:
        """The results from the web or the record.

        Raises:
            ServiceError: If there is no answer in time, the budget is spent, or there is no record.
        """
        return unblocked(await self.found(query, top_k), self._blocked)[:top_k]

    async def found(self, query: str, top_k: int) -> list[Passage]:
        """The same, including results from blocked hosts and spare ones, as recorded.

        Raises:
            ServiceError: As in `search`.
        """
        if (query, top_k) in self._known:
            return self._known[query, top_k]
        if not self._live:
            raise ServiceError(
                f"no answer to {query[:80]!r} is on record",
                fix="set tools.text_search.web.api_key_env, or add records",
            )
        return await self._once.get((query, top_k), lambda: self._ask(query, top_k))

    async def _ask(self, query: str, top_k: int) -> list[Passage]:
        if self._spent >= self._budget:
            raise ServiceError(
                f"the web search's budget of {self._budget} requests is spent",
                fix="raise tools.text_search.web.max_requests",
            )
        self._spent += 1
        try:
            found = [_passage(hit) for hit in await ask(SERPER, self._poster, query, top_k)]
        except ServiceError:
            self._spent -= 1
            raise
        self._known[query, top_k] = found
        results = [{"id": one.id, "title": one.title, "text": one.text} for one in found]
        line = {"query": query, "top_k": top_k, "results": results}
        with appending(self._path):
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("a", encoding="utf-8")
            self._file.write(json.dumps(line, ensure_ascii=True) + "\n")
            self._file.flush()
        return found

    async def aclose(self) -> None:
        """Cancel requests in progress, and close file and connections."""
        await self._once.clear()
        await self._poster.aclose()
        if self._file is not None:
            with appending(self._path):
                self._file.close()


class Snippets:
    """The same with the record that all tools of a run share (`--record`, `--replay`).

    Args:
        web: Asked for what is not in that record; None when replaying.
        exchanges: The record.
        blocked: Hosts whose pages are not shown, in addition to those blocked for all tools.
    """

    def __init__(self, web: Web | None, exchanges: Exchanges, *, blocked: Sequence[str]) -> None:
        self._web = web
        self._exchanges = exchanges
        self._blocked = (*blocked, *exchanges.rules.blocked)

    async def search(self, query: str, top_k: int) -> list[Passage]:
        """The results from the web or the record.

        Raises:
            ServiceError: As in `Web.search`, or if it is not in the replayed record.
        """
        facts = {"engine": "serper", "snippets": top_k}
        answer = await self._exchanges.get(Request("search", query, facts), lambda: self._ask(query, top_k))
        try:
            found = [Passage(*row) for row in answer]
        except TypeError:
            raise ServiceError(
                f"not results of a search: {str(answer)[:200]!r}", fix="record again"
            ) from None
        return unblocked(found, self._blocked)[:top_k]

    async def _ask(self, query: str, top_k: int) -> list[list[str]]:
        assert self._web is not None
        return [[one.id, one.title, one.text] for one in await self._web.found(query, top_k)]

    async def aclose(self) -> None:
        """Close the web client; the record belongs to its opener."""
        if self._web is not None:
            await self._web.aclose()


def unblocked(found: Sequence[Passage], blocked: Sequence[str]) -> list[Passage]:
    """Results not from a blocked host; one that a record only numbers is never blocked."""

    def is_shown(address: str) -> bool:
        if "://" in address:
            return not is_blocked(address, blocked)
        return "." not in address or not is_blocked(f"http://{address}", blocked)

    return [one for one in found if is_shown(one.id)]


def _passage(hit: Hit) -> Passage:
    """How a result is shown: its title, and its snippet with the address below."""
    text = f"{hit.snippet}\n{hit.url}".strip()
    return Passage(encodable(hit.url), encodable(hit.title), encodable(text))


def _read(path: Path, *, repair: bool = False) -> dict[tuple[str, int], list[Passage]]:
    """Recorded answers. A last line truncated by a kill is ignored; `repair` also cuts it from the file."""
    try:
        lines = whole_lines(path, repair=repair)
    except OSError as error:
        raise DataError(
            f"cannot read the record at {path}: {error.strerror}", fix="fix tools.text_search.web.recorded"
        ) from None
    found: dict[tuple[str, int], list[Passage]] = {}
    for number, line in enumerate(lines, start=1):
        try:
            row: Mapping[str, Any] = parse_json(line)
            found[row["query"], row["top_k"]] = [Passage(**result) for result in row["results"]]
        except (ValueError, KeyError, TypeError):
            raise DataError("not a recorded search", where=f"{path}:{number}", fix=UNREADABLE) from None
    return found
