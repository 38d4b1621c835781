"""The one client for every model that judges: an OpenAI-compatible endpoint, asked once for each question."""

import asyncio
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from pydantic import Field

from vtune.config import Strict
from vtune.errors import DataError, RecipeError, ServiceError
from vtune.files.json_text import parse_json
from vtune.files.reading import MAX_DOCUMENT, read_text
from vtune.judge.pictures import data_url, read_bytes
from vtune.judge.prompts import Prompt
from vtune.schema.message import Picture

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAIError
    from openai.types.chat import ChatCompletionContentPartParam


RETRIED = frozenset({408, 409, 429})
"""Statuses below 500 that the `openai` client tries again: time-out, conflict, too many requests."""


class JudgeEndpoint(Strict):
    """Where the judge answers, and how it is asked."""

    base_url: str
    """E.g. http://localhost:18901/v1."""
    model: str
    temperature: float = Field(ge=0)
    max_tokens: int = Field(gt=0)
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

    After as many failures in a row as there may be requests under way the judge counts as down: then a
    question gets one attempt, without waiting between retries, until one succeeds. So an outage stops a
    run in minutes instead of hours. A status that refuses the question itself (4xx, but none that is worth
    a retry) is no such failure: it says nothing about the next question.
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
        self._failures = 0
        self._client: AsyncOpenAI | None = None

    async def __aenter__(self) -> Self:
        """Open the endpoint and the cache.

        Raises:
            RecipeError: If the environment variable of the key is not set.
            DataError: If the cache file cannot be read.
        """
        from openai import AsyncOpenAI

        name = self._endpoint.api_key_env
        if name is not None and name not in os.environ:
            raise RecipeError(
                f"the judge's key is not set: no environment variable {name}", fix=f"export {name}=…"
            )
        self._client = AsyncOpenAI(
            base_url=self._endpoint.base_url,
            api_key=os.environ[name] if name is not None else "none",
            timeout=self._endpoint.timeout_s,
            max_retries=self._endpoint.retries,  # the client backs off exponentially, with jitter
        )
        if self._cache is not None:
            self._replies |= _read_cache(self._cache)
            self._cache.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._cache.open("a", encoding="utf-8")
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._under_way.values():
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
        if self._client is not None:
            await self._client.close()
        if self._file is not None:
            self._file.close()

    async def ask(self, prompt: Prompt, pictures: Sequence[Picture]) -> str:
        """The judge's reply to a prompt with pictures.

        Raises:
            ServiceError: If no usable reply came.
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
        from openai import OpenAIError

        if self._client is None:
            raise RuntimeError("the judge client is used outside its `async with`")
        down = self._failures >= self._endpoint.concurrency
        client = self._client.with_options(max_retries=0) if down else self._client
        content: list[ChatCompletionContentPartParam] = [{"type": "text", "text": prompt.text}]
        content += [{"type": "image_url", "image_url": {"url": data_url(picture)}} for picture in pictures]
        try:
            completion = await client.chat.completions.create(
                model=self._endpoint.model,
                temperature=self._endpoint.temperature,
                max_tokens=self._endpoint.max_tokens,
                messages=[{"role": "system", "content": prompt.system}, {"role": "user", "content": content}],
            )
        except OpenAIError as error:
            if not _refused(error):
                self._failures += 1
            raise ServiceError(
                f"the judge gave no reply: {type(error).__name__}: {error}",
                where=f"{self._endpoint.base_url}, model {self._endpoint.model}",
                fix="see that the endpoint is up, and that `judge` in the recipe names it",
            ) from None
        self._failures = 0
        reply = completion.choices[0].message.content if completion.choices else None
        if not reply:
            raise ServiceError("the judge's reply is empty", where=self._endpoint.base_url)
        return reply

    def _key(self, prompt: Prompt, pictures: Sequence[Picture]) -> str:
        settings = (self._endpoint.model, self._endpoint.temperature, self._endpoint.max_tokens)
        digest = hashlib.sha256(json.dumps([*settings, prompt.system, prompt.text]).encode())
        for picture in pictures:
            digest.update(hashlib.sha256(read_bytes(picture)).digest())
        return digest.hexdigest()


def _refused(error: "OpenAIError") -> bool:
    """Whether the judge is up and will not answer this question, however often it is asked."""
    from openai import APIStatusError

    return (
        isinstance(error, APIStatusError)
        and 400 <= error.status_code < 500
        and error.status_code not in RETRIED
    )


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
