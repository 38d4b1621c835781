"""Text search on the web through the Serper API: answers are kept, and can be replayed without the web."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from vtune.errors import DataError, ServiceError
from vtune.files.json_text import parse_json
from vtune.files.reading import MAX_DOCUMENT, read_text
from vtune.tools.http import Patience, Poster
from vtune.tools.once import Once
from vtune.tools.passage import Passage, passage_from

URL = "https://google.serper.dev/search"


class Web:
    """Asks the web, within a budget; the same query is asked once.

    Args:
        key: Of the API; None asks nothing, and only recorded answers are given.
        patience: How long to wait.
        record: JSONL file of this run's own answers, made if missing, written by one process only.
        recorded: Files of other runs, whose answers count as well.
        max_requests: Questions that this run may ask, those in `record` included; an attempt after a failed
            one is not a further question.
        url: Of the API.
    """

    def __init__(
        self,
        key: str | None,
        patience: Patience,
        *,
        record: Path,
        recorded: Sequence[Path],
        max_requests: int,
        url: str = URL,
    ) -> None:
        headers = {} if key is None else {"X-API-KEY": key}
        self._poster = Poster(url, patience, headers=headers, name="the web search")
        self._live = key is not None
        self._known: dict[tuple[str, int], list[Passage]] = {}
        for path in recorded:
            self._known |= _read(path)
        own = _read(record, repair=True) if record.exists() else {}
        self._known |= own
        self._spent = len(own)
        self._budget = max_requests
        self._path = record
        self._file: IO[str] | None = None
        self._once: Once[list[Passage]] = Once()

    async def search(self, query: str, top_k: int) -> list[Passage]:
        """What the web says, or once said.

        Raises:
            ServiceError: If it gives no answer in time, the budget is spent, or nothing is on record.
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
        found = _organic(await self._poster.post({"q": query, "num": top_k}))[:top_k]
        self._known[query, top_k] = found
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", encoding="utf-8")
        results = [{"id": one.id, "title": one.title, "text": one.text} for one in found]
        line = {"query": query, "top_k": top_k, "results": results}
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._file.flush()
        return found

    async def aclose(self) -> None:
        """End requests under way, and close file and connections."""
        await self._once.clear()
        await self._poster.aclose()
        if self._file is not None:
            self._file.close()


def _organic(answer: Any) -> list[Passage]:
    """The results in an answer of Serper; title, link and snippet of each."""
    try:
        return [
            passage_from(
                {
                    "id": r["link"],
                    "title": r["title"],
                    "text": f"{r.get('snippet', '')}\n{r['link']}".strip(),
                },
                "",
            )
            for r in answer.get("organic", [])
        ]
    except (KeyError, TypeError, AttributeError, DataError):
        raise ServiceError(f"not an answer of Serper: {str(answer)[:200]!r}") from None


def _read(path: Path, *, repair: bool = False) -> dict[tuple[str, int], list[Passage]]:
    """Recorded answers. A last line that a kill cut short is left out and, to `repair` the file, cut off."""
    try:
        text = read_text(path, limit=MAX_DOCUMENT)
    except OSError as error:
        raise DataError(
            f"no record can be read at {path}: {error.strerror}", fix="fix tools.text_search.web.recorded"
        ) from None
    whole = text[: text.rfind("\n") + 1]
    if repair and len(whole) < len(text):
        with path.open("r+b") as file:
            file.truncate(len(whole.encode()))
    found: dict[tuple[str, int], list[Passage]] = {}
    for number, line in enumerate(whole.split("\n")[:-1], start=1):
        try:
            row: Mapping[str, Any] = parse_json(line)
            found[row["query"], row["top_k"]] = [Passage(**result) for result in row["results"]]
        except (ValueError, KeyError, TypeError):
            raise DataError(
                "not a recorded search", where=f"{path}:{number}", fix="delete the line"
            ) from None
    return found
