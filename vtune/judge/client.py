"""The one client for every model that judges: an OpenAI-compatible endpoint, asked once for each question."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Self, TypeVar

from pydantic import Field

from vtune.config import Strict
from vtune.errors import DataError
from vtune.files.json_text import parse_json
from vtune.files.reading import MAX_DOCUMENT, read_text
from vtune.judge.completions import Completed, Completions, NoVerdict
from vtune.judge.pictures import data_url, read_bytes
from vtune.judge.prompts import Prompt, insisting
from vtune.schema.message import Picture

T = TypeVar("T")


class JudgeEndpoint(Strict):
    """Where the judge answers, and how it is asked."""

    base_url: str
    """E.g. http://localhost:18901/v1."""
    model: str
    temperature: float = Field(ge=0)
    """Not sent to a model that refuses it (GPT-5 and other models that reason)."""
    max_tokens: int = Field(gt=0)
    """Of a reply, thoughts included; sent as `max_completion_tokens` to a model that wants that name."""
    concurrency: int = Field(gt=0)
    """Requests under way at the same time."""
    retries: int = Field(ge=0)
    """Further attempts after a failed connection, a time-out or a status 408, 409, 429 or 5xx."""
    timeout_s: float = Field(gt=0)
    """For one attempt, in seconds."""
    api_key_env: str | None
    """Name of the environment variable that holds the key; null where the endpoint wants none."""


class JudgeClient:
    """Asks a judge; an async context manager.

    The same question (model, settings, text, pictures) is sent once: replies are kept in memory (the latest
    `most`) and, with a cache file, on disk; who asks while it is under way waits for the same reply. Failures
    are not kept.

    How an endpoint fails, and what a model refuses: see `Completions`.
    """

    def __init__(
        self, endpoint: JudgeEndpoint, *, cache: Path | None = None, most: int | None = None
    ) -> None:
        """Prepare, without connecting.

        Args:
            endpoint: The endpoint.
            cache: A JSONL file of replies, made if missing, written by one process only; None keeps them in
                memory only.
            most: Replies in memory, the oldest goes first; None keeps all, which a service that runs for
                months cannot.
        """
        self._endpoint = endpoint
        self._cache = cache
        self._most = most
        self._file: IO[str] | None = None
        self._replies: dict[str, str] = {}
        self._under_way: dict[str, asyncio.Task[str]] = {}
        self._room = asyncio.Semaphore(endpoint.concurrency)
        self._completions = Completions(
            "the judge",
            endpoint.base_url,
            endpoint.model,
            concurrency=endpoint.concurrency,
            retries=endpoint.retries,
            timeout_s=endpoint.timeout_s,
            api_key_env=endpoint.api_key_env,
            fix="see that the endpoint is up, and that `judge` in the recipe names it",
        )

    @property
    def refused(self) -> frozenset[str]:
        """Parameters that the model was found to refuse: `temperature`, `max_tokens`."""
        return self._completions.refused

    async def __aenter__(self) -> Self:
        """Open the endpoint and the cache.

        Raises:
            RecipeError: If the environment variable of the key is not set.
            DataError: If the cache file cannot be read.
        """
        await self._completions.__aenter__()
        if self._cache is not None:
            self._replies |= _read_cache(self._cache)
            self._cache.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._cache.open("a", encoding="utf-8")
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._under_way.values():
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
        await self._completions.__aexit__()
        if self._file is not None:
            self._file.close()

    async def ask(self, prompt: Prompt, pictures: Sequence[Picture]) -> str:
        """The judge's reply to a prompt with pictures.

        Raises:
            NoVerdict: If the judge refuses the question, or says nothing.
            ServiceError: If no reply came.
            DataError: If a picture cannot be read.
        """
        key = self._key(prompt, pictures)
        if key in self._replies:
            return self._replies[key]
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._fetch(key, prompt, pictures))
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        return await asyncio.shield(task)  # who gives up waiting takes no reply from the others

    async def ask_for(
        self, prompt: Prompt, pictures: Sequence[Picture], read: Callable[[str], T | None], wanted: str
    ) -> T:
        """What `read` finds in the judge's reply. A reply in which it finds nothing is asked for once more.

        Args:
            prompt: The question.
            pictures: They follow it.
            read: Returns None for a reply that cannot be read.
            wanted: What a reply should be, e.g. "TRUE or FALSE".

        Raises:
            NoVerdict: As `ask`, or if the second reply cannot be read either.
            ServiceError: As `ask`.
            DataError: As `ask`.
        """
        reply = ""
        for asked in (prompt, insisting(prompt, wanted)):
            reply = await self.ask(asked, pictures)
            found = read(reply)
            if found is not None:
                return found
        raise NoVerdict(f"the judge wrote {reply[:80]!r} instead of {wanted}, asked twice")

    async def _fetch(self, key: str, prompt: Prompt, pictures: Sequence[Picture]) -> str:
        async with self._room:
            reply = await self._complete(prompt, pictures)
        self._replies[key] = reply
        if self._most is not None and len(self._replies) > self._most:
            del self._replies[next(iter(self._replies))]
        if self._file is not None:
            self._file.write(json.dumps({"key": key, "reply": reply}) + "\n")
            self._file.flush()
        return reply

    async def _complete(self, prompt: Prompt, pictures: Sequence[Picture]) -> str:
        content: list[dict[str, Any]] = [{"type": "text", "text": prompt.text}]
        content += [{"type": "image_url", "image_url": {"url": data_url(picture)}} for picture in pictures]
        settings = {"temperature": self._endpoint.temperature, "max_tokens": self._endpoint.max_tokens}
        completion = await self._completions.create(
            [{"role": "system", "content": prompt.system}, {"role": "user", "content": content}], settings
        )
        return self._text(completion)

    def _text(self, completed: Completed) -> str:
        if completed.text:
            return completed.text
        cut = completed.finish == "length"
        raise NoVerdict(
            "the judge's reply is empty"
            + (f": its {self._endpoint.max_tokens} max_tokens went into thoughts" if cut else ""),
            where=self._completions.where,
            fix="raise `max_tokens` of the judge: a model that reasons needs some thousand" if cut else "",
        )

    def _key(self, prompt: Prompt, pictures: Sequence[Picture]) -> str:
        settings = (self._endpoint.model, self._endpoint.temperature, self._endpoint.max_tokens)
        digest = hashlib.sha256(json.dumps([*settings, prompt.system, prompt.text]).encode())
        for picture in pictures:
            digest.update(hashlib.sha256(read_bytes(picture)).digest())
        return digest.hexdigest()


def _read_cache(path: Path) -> dict[str, str]:
    """The replies in a cache file. A last line that a kill cut short is left out, and cut off."""
    if not path.exists():
        return {}
    text = read_text(path, limit=MAX_DOCUMENT)
    whole = text[: text.rfind("\n") + 1]
    if len(whole) < len(text):
        with path.open("r+b") as file:
            file.truncate(len(whole.encode()))
    replies: dict[str, str] = {}
    for number, line in enumerate(whole.split("\n")[:-1], start=1):
        try:
            row = parse_json(line)
            replies[row["key"]] = str(row["reply"])
        except (ValueError, KeyError, TypeError):
            raise DataError("not a cached reply", where=f"{path}:{number}", fix="delete the file") from None
    return replies
