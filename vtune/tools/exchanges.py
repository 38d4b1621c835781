"""A record of web requests: every response is kept under its request's hash, and can be replayed.

The file contains JSON lines sorted by key, so that it does not depend on who asked first. New lines go
to `FILE.journal`; closing merges both and replaces the file atomically. After a kill the journal is
recovered, without a truncated last line.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import Field

from vtune.errors import DataError, RecipeError, ServiceError
from vtune.files.json_text import parse_json
from vtune.files.locks import lock
from vtune.files.reading import MAX_DOCUMENT, check_input, read_bytes, whole_lines, why_unread
from vtune.files.writing import appending, write_atomically
from vtune.sections import Strict
from vtune.tools.hosts import BlockedHost
from vtune.tools.result_cache import ResultCache

Kind = Literal["search", "page", "picture", "summary"]
PRICED: Mapping[str, str] = {"search": "per_search", "page": "per_page", "picture": "per_picture"}
"""Kind of exchange -> key of its price; summaries have no price, since the user's own model writes them."""

UNREADABLE = "delete the line, or decompress the file if it is compressed"
"""What to do about an unreadable line of a record."""


class Budget(Strict):
    """What web requests may cost one process of a run, including what its record already holds.

    Failed requests cost nothing.
    """

    requests: int = Field(ge=0)
    """Searches, pages and pictures together."""
    money: float | None = Field(default=None, ge=0)
    """In the currency of the prices; null: no limit."""
    per_search: float = Field(default=0.0, ge=0)
    per_page: float = Field(default=0.0, ge=0)
    per_picture: float = Field(default=0.0, ge=0)


class WebRules(Strict):
    """Settings for all tools that use the web."""

    record: str | None = None
    """File in which exchanges are recorded; null: one in the run's folder."""
    replay: tuple[str, ...] = ()
    """Such files to replay: only their contents are used, and no request is sent."""
    blocked: tuple[BlockedHost, ...] = ()
    """Hosts whose pages are neither shown nor read, including subdomains; a suite's own hosts are added."""
    budget: Budget = Budget(requests=5000)

    @property
    def asked_for(self) -> bool:
        """Whether a record was requested, for writing or for replay."""
        return self.record is not None or bool(self.replay)


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the web; equal requests share one exchange."""

    kind: Kind
    what: str
    """How errors name it: a query, an address, a picture's hash."""
    facts: Mapping[str, Any]
    """Everything that the answer depends on; no secrets."""

    @property
    def key(self) -> str:
        """SHA-256 of the request."""
        text = json.dumps({"kind": self.kind, "what": self.what, **self.facts}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ForNow:
    """An answer that a later run may improve on: it is valid only for this run and its replay."""

    answer: Any


class Exchanges:
    """Sends each request once, and remembers the answer.

    Args:
        file: Record of exchanges, written by one process only. Not written when replaying.
        rules: Those of the run.

    Raises:
        DataError: If a record cannot be read.
        RecipeError: If another process is writing it.
    """

    def __init__(self, file: Path, rules: WebRules) -> None:
        self._file = Path(rules.record) if rules.record is not None else file
        self._rules = rules
        self._replays = bool(rules.replay)
        self._known: dict[str, dict[str, Any]] = {}
        for path in map(Path, rules.replay):
            self._known |= _held(path, repair=False)
        self._lock: IO[str] | None = None
        if not self._replays:
            self._lock = _locked(self._file)
            try:
                self._known = _held(self._file, repair=True) if _begun(self._file) else {}
            except DataError:
                self._release()
                raise
        paid = [line for line in self._known.values() if line["kind"] in PRICED and "again" not in line]
        self._spent = Counter(line["kind"] for line in paid)
        self._again = {key for key, line in self._known.items() if "again" in line and not self._replays}
        self._out: IO[str] | None = None
        self._once: ResultCache[Any] = ResultCache()

    @property
    def rules(self) -> WebRules:
        """The rules of the run."""
        return self._rules

    @property
    def replays(self) -> bool:
        """Whether exchanges are only replayed."""
        return self._replays

    async def get(self, request: Request, ask: Callable[[], Awaitable[Any]]) -> Any:
        """The answer to a request, as JSON: a recorded one, else the result of `ask`, which is recorded.

        Answers that an earlier run recorded as `ForNow` are requested again.

        Raises:
            ServiceError: If it is not in the replayed record, the budget is spent, or `ask` fails.
            RunFailed: If there is no room to record it.
        """
        line = self._known.get(request.key)
        if line is not None and request.key not in self._again:
            return line["answer"]
        if self._replays:
            raise self._missing(request)
        return await self._once.get(request.key, lambda: self._ask(request, ask))

    def _missing(self, request: Request) -> ServiceError:
        """Why a request cannot be replayed: it may have been made with other settings of the tool."""
        if (request.kind, request.what) in self._replayed:
            known = f"on record, but not with these settings of the tool ({', '.join(request.facts)})"
        else:
            known = "not on record"
        return ServiceError(
            f"the {request.kind} {request.what[:200]!r} is {known}",
            where=", ".join(self._rules.replay),
            fix="replay with the settings of the run that was recorded, or ask the web with --record",
        )

    @cached_property
    def _replayed(self) -> frozenset[tuple[str, str]]:
        """(kind, what) of all that is replayed."""
        return frozenset((line["kind"], line["what"]) for line in self._known.values())

    async def _ask(self, request: Request, ask: Callable[[], Awaitable[Any]]) -> Any:
        if request.kind in PRICED:
            self._pay(request.kind)
        try:
            answer = await ask()
        except ServiceError:
            self._pay_back(request.kind)
            raise
        line = {"key": request.key, "kind": request.kind, "what": request.what, "answer": answer}
        if isinstance(answer, ForNow):
            self._pay_back(request.kind)
            answer = answer.answer
            line |= {"answer": answer, "again": True}
        self._known[request.key] = line
        self._again.discard(request.key)
        with self._appending():
            if self._out is None:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                self._out = _beside(self._file).open("a", encoding="utf-8")
            self._out.write(_text(line))
            self._out.flush()
        return answer

    def _appending(self) -> AbstractContextManager[None]:
        return appending(_beside(self._file), option=None if self._rules.record is None else "--record")

    def _pay(self, kind: str) -> None:
        budget = self._rules.budget
        spent = self._spent + Counter([kind])
        # As decimals, so that three requests at 0.1 fit into 0.3.
        cost = sum(n * Decimal(str(getattr(budget, PRICED[one]))) for one, n in spent.items())
        if spent.total() > budget.requests:
            raise ServiceError(
                f"the web's budget of {budget.requests} requests is spent",
                fix="raise tools.web.budget.requests",
            )
        if budget.money is not None and cost > Decimal(str(budget.money)):
            raise ServiceError(
                f"a further {kind} would cost more than the web's budget of {budget.money:g}",
                fix="raise tools.web.budget.money",
            )
        self._spent = spent

    def _pay_back(self, kind: str) -> None:
        if kind in PRICED:
            self._spent[kind] -= 1

    async def aclose(self) -> None:
        """Cancel requests in progress, and merge the journal into the file.

        Raises:
            RunFailed: If there is no room for it; the journal stays.
        """
        try:
            await self._once.clear()
            if self._out is not None:
                with self._appending():  # closing writes what there was no room for before
                    self._out.close()
            if not self._replays and _beside(self._file).exists():
                lines = sorted(self._known.values(), key=lambda line: str(line["key"]))
                write_atomically(self._file, "".join(map(_text, lines)))
                _beside(self._file).unlink()
        finally:
            self._release()

    def _release(self) -> None:
        """Unlock the record; the lock file stays: a process may have opened it to lock it next."""
        if self._lock is not None:
            self._lock.close()


def _locked(file: Path) -> IO[str]:
    """Acquire the lock of a record: with two processes, one would lose the answers of the other.

    Raises:
        RecipeError: If another process holds it.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    held = file.with_name(f"{file.name}.lock").open("w", encoding="utf-8")
    try:
        lock(held)
    except BlockingIOError:
        held.close()
        raise RecipeError(
            f"another process is writing the record {file}",
            fix="give each run, and each rank, its own record",
        ) from None
    return held


def _text(line: Mapping[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=True) + "\n"


def check_record(path: Path) -> None:
    """Check that a record to replay can be opened.

    Raises:
        DataError: If it cannot; says why.
    """
    try:
        if path.exists() or not _begun(path):
            check_input(path)
        if _beside(path).exists():
            check_input(_beside(path))
    except OSError as error:
        raise _unopened(path, error) from None


def _beside(path: Path) -> Path:
    """The journal of a record, with what a run that was killed, or still runs, has added."""
    return path.with_name(f"{path.name}.journal")


def _begun(path: Path) -> bool:
    return path.exists() or _beside(path).exists()


def _held(path: Path, *, repair: bool) -> dict[str, dict[str, Any]]:
    """What a record and its journal hold.

    Args:
        path: The record; it may be missing if there is a journal.
        repair: Whether to cut off a truncated last line of the journal, in order to append to it.

    Raises:
        DataError: If there is neither, or one cannot be read.
    """
    journal = _beside(path)
    try:
        # First the journal: a run that ends meanwhile moves its lines into the record.
        try:
            late = _lines(whole_lines(journal, repair=repair), journal)
        except FileNotFoundError:
            late = None
        if late is not None and not path.exists():
            return late
        return _lines(read_bytes(path, limit=MAX_DOCUMENT).splitlines(), path) | (late or {})
    except OSError as error:
        raise _unopened(path, error) from None


def _unopened(path: Path, error: OSError) -> DataError:
    place = error.filename or path
    return DataError(
        f"cannot read the record of the web at {place}: {why_unread(error)}", fix="check the path"
    )


def _lines(lines: Sequence[bytes], path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for number, text in enumerate(lines, start=1):
        try:
            line = parse_json(text)
            found[line["key"]] = {name: line[name] for name in ("key", "kind", "what", "answer")}
            if line.get("again") is True:
                found[line["key"]]["again"] = True
        except (ValueError, KeyError, TypeError):
            raise DataError(
                "not an exchange with the web", where=f"{path}:{number}", fix=UNREADABLE
            ) from None
    return found
