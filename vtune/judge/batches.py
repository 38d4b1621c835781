"""Questions sent as batches to an OpenAI-compatible server (`/v1/batches`): slower, and cheaper."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from vtune.errors import DataError, ServiceError
from vtune.files.json_text import parse_json, read_record
from vtune.files.writing import write_atomically
from vtune.judge.budget import Tokens
from vtune.judge.completed import Completed
from vtune.judge.completions import Completions, Rejected, Unknown

ENDPOINT: Literal["/v1/chat/completions"] = "/v1/chat/completions"
WINDOW: Literal["24h"] = "24h"
"""The only completion window that OpenAI offers."""
MOST_QUESTIONS, MOST_BYTES = 50_000, 64 * 2**20
"""Limits per batch: OpenAI's, and ours (OpenAI's is 200 MB), because batches are built in memory."""
TRIES = 3
"""Limit on questions that are asked individually before a batch; ours."""
_FIX = (
    "if it expired, --resume asks the rest again; otherwise check what the endpoint reports; for an "
    "endpoint without batches, set `batch: false`"
)
_DELETE = "delete the file: its questions are asked again"
Tell = Callable[[str], object]
"""Shows a line to whoever is waiting."""
ENDED = ("completed", "failed", "expired", "cancelled")


@dataclass(slots=True)
class _Sent:
    """A batch in progress."""

    file: str
    """ID of its file of questions at the endpoint."""
    batch: str | None
    """ID of the batch; None if it was requested but no answer has arrived."""
    questions: int
    held: Tokens
    """Upper bound on its token usage."""

    @property
    def share(self) -> Tokens:
        """Average upper bound on the usage of one of its questions."""
        return Tokens(-(-self.held.input // self.questions), 0, -(-self.held.output // self.questions))


@dataclass(slots=True)
class _Outcome:
    """The outcome of a batch."""

    found: list[tuple[str, Completed]] = field(default_factory=list)
    failure: str | None = None


class Batches:
    """Questions waiting for a batch, and batches in progress, which a file remembers after a kill.

    Args:
        completions: The endpoint, open.
        state: The file; it exists while a batch is in progress. Batches of another endpoint in it are
            forgotten.
        poll_s: Seconds between polls of a batch.
        tell: Called with a message for each batch that the endpoint no longer knows.

    Raises:
        DataError: If the file cannot be read.
    """

    def __init__(self, completions: Completions, state: Path, poll_s: float, tell: Tell) -> None:
        self._completions = completions
        self._tell = tell
        self._state = state
        self._poll_s = poll_s
        self._lines: list[bytes] = []
        self._size = 0
        self._held = Tokens()
        self._under_way: list[_Sent] = []
        self.names: set[str] = set()
        """Names of the questions added so far."""
        self.tries = TRIES
        """Questions that may still be asked individually, to learn which settings the model refuses."""
        self.turn = asyncio.Lock()
        """Questions are added one at a time, so that no more than one batch is in memory."""
        self.failed: ServiceError | None = None
        """Why no more can be added."""
        if state.exists():
            self._restore()

    def _restore(self) -> None:
        """Load the batches that an earlier session started."""
        facts = read_record(self._state, "of", "batches", fix=_DELETE)
        if facts["of"] == self._completions.where:
            try:
                self._under_way = [
                    _Sent(one["file"], one["batch"], int(one["questions"]), Tokens(**one["held"]))
                    for one in facts["batches"]
                ]
            except (KeyError, TypeError, ValueError):
                raise DataError("it names no batches", where=str(self._state), fix=_DELETE) from None
        self._write()

    def add(self, name: str, body: Mapping[str, Any], held: Tokens) -> None:
        """Add a question.

        Args:
            name: Identifies its reply.
            body: Body of its request.
            held: Upper bound on its token usage.
        """
        row = {"custom_id": name, "method": "POST", "url": ENDPOINT, "body": body}
        line = json.dumps(row).encode() + b"\n"
        self._lines.append(line)
        self._size += len(line)
        self._held.add(held)
        self.names.add(name)

    @property
    def full(self) -> bool:
        """Whether the added questions must be sent before more are added."""
        return len(self._lines) >= MOST_QUESTIONS or self._size >= MOST_BYTES

    async def send(self) -> bool:
        """Send the added questions as a batch; returns whether any batch is in progress now.

        Raises:
            ServiceError: If the endpoint does not accept it.
        """
        if not self._lines:
            return bool(self._under_way)
        client = self._completions.opened
        with self._failing():
            file = await client.files.create(file=("batch.jsonl", b"".join(self._lines)), purpose="batch")
        sent = _Sent(file.id, None, len(self._lines), self._held)
        self._lines, self._size, self._held = [], 0, Tokens()
        self._under_way.append(sent)
        self._write()  # if the process is killed from here on, the batch can be found by its file
        try:
            with self._failing():
                # No retry: the first attempt may have started a batch.
                batch = await client.with_options(max_retries=0).batches.create(
                    input_file_id=file.id, endpoint=ENDPOINT, completion_window=WINDOW
                )
        except Rejected:
            self._forget(sent)
            raise
        sent.batch = batch.id
        self._write()
        return True

    async def replies(self) -> AsyncIterator[tuple[str, Completed, Tokens]]:
        """Each reply of the batches in progress: name of its question, completion, average usage bound.

        Questions that a batch does not answer are left out, as are those of a batch that the endpoint no
        longer knows. A batch is forgotten once its replies have been consumed.

        Raises:
            ServiceError: After all have ended, if one of them failed; or if the endpoint cannot be reached.
        """
        failures = []
        for sent in list(self._under_way):
            with self._failing():
                outcome = await self._outcome(sent)
            for name, completed in outcome.found:
                yield name, completed, sent.share
            if outcome.failure is not None:
                failures.append(outcome.failure)
            self._forget(sent)
        if failures:
            raise ServiceError(failures[0], where=self._completions.where, fix=_FIX)

    def _failing(self) -> AbstractContextManager[None]:
        return self._completions.failing("the batch failed", _FIX)

    def _forget(self, sent: _Sent) -> None:
        self._under_way.remove(sent)
        self._write()

    def _write(self) -> None:
        if not self._under_way:
            self._state.unlink(missing_ok=True)
            return
        facts = {"of": self._completions.where, "batches": [asdict(sent) for sent in self._under_way]}
        write_atomically(self._state, json.dumps(facts) + "\n")

    async def _outcome(self, sent: _Sent) -> _Outcome:
        """The outcome of a batch: nothing if it never started, or the endpoint no longer knows it."""
        name = sent.batch or await self._begun_with(sent.file)
        if name is None:
            return _Outcome()
        try:
            with self._failing():
                return await self._outcome_of(name, sent)
        except Unknown:
            self._tell(
                f"{self._completions.where} no longer knows the batch {name}: its questions are asked again"
            )
            return _Outcome()

    async def _outcome_of(self, name: str, sent: _Sent) -> _Outcome:
        batch = await self._ended(name)
        answers = await self._lines_of(batch.output_file_id)
        found = _read(self._completions, answers)
        if batch.status == "completed" and found:
            return _Outcome(found)
        why = _complaint(batch, [*await self._lines_of(batch.error_file_id), *answers])
        count = f"{sent.questions - len(found)} of {sent.questions} replies" if found else "a reply"
        failure = f"the batch {name} ended as {batch.status} without {count}{why}"
        return _Outcome(found, failure)

    async def _begun_with(self, file: str) -> str | None:
        """The ID of the batch that was started with a file of questions, if any."""
        async for batch in self._completions.opened.batches.list():
            if batch.input_file_id == file:
                return batch.id
        return None

    async def _ended(self, name: str) -> Any:
        while True:
            batch = await self._completions.opened.batches.retrieve(name)
            if batch.status in ENDED:
                return batch
            await asyncio.sleep(self._poll_s)

    async def _lines_of(self, file: str | None) -> list[str]:
        if file is None:
            return []
        # Not `splitlines`: a reply may contain other line separators unescaped.
        text = (await self._completions.opened.files.content(file)).text
        return [line for line in text.split("\n") if line.strip()]


def _read(completions: Completions, lines: list[str]) -> list[tuple[str, Completed]]:
    """(name, completion) of each line that has one.

    If two lines with the same name differ, neither is known to be the reply: none counts, both are charged.
    """
    found: dict[str, Completed] = {}
    for line in lines:
        try:
            row = parse_json(line)
            response = row["response"]
            if response is not None and response["status_code"] == 200:
                name, read = str(row["custom_id"]), completions.read(response["body"])
                first = found.setdefault(name, read)
                found[name] = first if first.text == read.text else _no_reply(first, read)
        except (ValueError, KeyError, TypeError):
            continue  # treated as a failed line
    return list(found.items())


def _no_reply(first: Completed, second: Completed) -> Completed:
    """The result of two replies that differ: no text, and the tokens of both, if known."""
    return replace(
        first,
        text="",
        input=_sum(first.input, second.input),
        cached=first.cached + second.cached,
        output=_sum(first.output, second.output),
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _complaint(batch: Any, lines: list[str]) -> str:
    """The endpoint's message on a failed batch: about the whole, else about its first question; or none."""
    errors = batch.errors.data if batch.errors is not None else None
    said = [error.message for error in errors or () if error.message]
    for line in lines[:1]:
        try:
            row = parse_json(line)
            error = row.get("error") or row["response"]["body"]["error"]
            said.append(str(error["message"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # no readable message
    return f": {said[0]}" if said else ""
