"""The one client for every model that judges: an OpenAI-compatible endpoint, asked once for each question."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Annotated, Any, Self, TypeVar

from pydantic import Field, model_validator

from vtune.config import Strict
from vtune.errors import DataError, ServiceError
from vtune.files.json_text import parse_json
from vtune.files.reading import whole_lines
from vtune.judge.batches import run_batch
from vtune.judge.budget import Budget, OverBudget, Prices, Purse, Tokens
from vtune.judge.completions import Completed, Completions, NoAnswer, NoVerdict
from vtune.judge.pictures import data_url, read_bytes
from vtune.judge.prompts import Prompt, insisting
from vtune.schema.message import Picture

T = TypeVar("T")

TRIES = 3
"""Questions that are asked alone before a batch, at most; ours."""


def _has_no_limit(budget: Budget) -> bool:
    return budget == Budget()


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
    prices: Annotated[Prices | None, Field(exclude_if=lambda prices: prices is None)] = None
    """Null: no cost is reported, and no limit may be in money."""
    budget: Annotated[Budget, Field(exclude_if=_has_no_limit)] = Budget()
    """What may exceed it is not asked: it is unscored."""

    @model_validator(mode="after")
    def _money_has_prices(self) -> Self:
        if self.budget.money is not None and self.prices is None:
            raise ValueError("`budget.money` needs `prices`")
        return self


class JudgeClient:
    """Asks a judge; an async context manager.

    The same question (model, settings, text, pictures) is sent once: replies are kept in memory (the latest
    `most`) and, with a cache file, on disk; who asks while it is under way waits for the same reply. Failures
    are not kept.

    How an endpoint fails, and what a model refuses: see `Completions`.
    """

    def __init__(
        self,
        endpoint: JudgeEndpoint,
        *,
        cache: Path | None = None,
        most: int | None = None,
        purse: Purse | None = None,
    ) -> None:
        """Prepare, without connecting.

        Args:
            endpoint: The endpoint.
            cache: A JSONL file of replies, made if missing, written by one process only; None keeps them in
                memory only.
            most: Replies in memory, the oldest goes first; None keeps all, which a service that runs for
                months cannot.
            purse: Pays; what a cache file says was spent is taken from it first. None: one with the budget
                of the endpoint.
        """
        self._endpoint = endpoint
        self._cache = cache
        self._most = most
        self._purse = Purse(endpoint.budget, endpoint.prices) if purse is None else purse
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
            fix="check that the endpoint is up, and that `judge` in the recipe names it",
        )

    @property
    def refused(self) -> frozenset[str]:
        """Parameters that the model was found to refuse: `temperature`, `max_tokens`."""
        return self._completions.refused

    def facts(self) -> dict[str, Any]:
        """`model`, and what its replies took, those before this session included (`Purse.facts`)."""
        return {"model": self._endpoint.model, **self._purse.facts()}

    @property
    def was_asked(self) -> bool:
        """Whether it has given a reply, or kept one of before."""
        return bool(self._replies)

    async def __aenter__(self) -> Self:
        """Open the endpoint and the cache.

        Raises:
            RecipeError: If the environment variable of the key is not set.
            DataError: If the cache file cannot be read.
        """
        await self._completions.__aenter__()
        if self._cache is not None:
            kept = _read_cache(self._cache)
            self._replies |= kept.replies
            self._purse.spent.add(kept.spent)
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
            OverBudget: If it may cost more than is left.
            NoReply: If no reply came.
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

    def kept(self, prompt: Prompt) -> str | None:
        """The reply to a prompt without pictures that was given before."""
        return self._replies.get(self._key(prompt, ()))

    async def ask_in_batch(self, prompts: Sequence[Prompt], *, state: Path, poll_s: float) -> None:
        """Ask many prompts without pictures in one batch of the endpoint; `ask` then finds the replies.

        The first question of a client is asked alone: what the model refuses is then known, and no batch is
        sent in vain. What a batch does not answer, and what the budget does not allow, is left to `ask`.

        Args:
            prompts: Those that were answered before are not asked again.
            state: Holds the name of a batch under way, so that a run that was killed goes on with it.
            poll_s: Between two looks at it.

        Raises:
            ServiceError: If the endpoint takes no batches, or the batch fails.
        """
        if not state.exists() and not self._completions.has_answered:
            await self._try(prompts[:TRIES])
        asked: dict[str, dict[str, Any]] = {}
        held: dict[str, Tokens] = {}
        for prompt in prompts:
            key = self._key(prompt, ())
            if key in self._replies or key in asked:
                continue
            try:
                held[key] = self._hold(prompt, ())
            except OverBudget:
                break
            asked[key] = self._completions.body(self._messages(prompt, ()), self._settings())
        try:
            found = await run_batch(self._completions, asked, state=state, poll_s=poll_s)
        finally:
            for tokens in held.values():
                self._purse.settle(tokens, Tokens())
        for key, completed in found.items():
            used = _tokens(completed, held.get(key))
            self._purse.spent.add(used)
            self._keep(key, completed.text, used)
        state.unlink(missing_ok=True)

    async def _try(self, prompts: Sequence[Prompt]) -> None:
        """Ask prompts alone, until the model has answered one: what it refuses is then known.

        What fails here is asked again, in the batch or alone, and fails there for all to see.
        """
        for prompt in prompts:
            try:
                await self.ask(prompt, ())
            except NoVerdict:
                if not self._completions.has_answered:
                    continue
            except ServiceError:
                pass
            return

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
            held = self._hold(prompt, pictures)
            used = Tokens()
            try:
                completed = await self._completions.create(self._messages(prompt, pictures), self._settings())
                used = _tokens(completed, held)
            except NoAnswer:
                used = held
                self._keep(key, "", used)
                raise
            finally:
                self._purse.settle(held, used)
        self._keep(key, completed.text, used)
        return self._text(completed)

    def _keep(self, key: str, reply: str, used: Tokens) -> None:
        """Remember a reply; of an empty one only what it cost."""
        row: dict[str, Any] = {"key": key, "reply": reply or None, **asdict(used)}
        if reply:
            self._replies[key] = reply
        if self._most is not None and len(self._replies) > self._most:
            del self._replies[next(iter(self._replies))]
        if self._file is not None:
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()

    def _hold(self, prompt: Prompt, pictures: Sequence[Picture]) -> Tokens:
        return self._purse.hold([prompt.system, prompt.text], len(pictures), self._endpoint.max_tokens)

    def _messages(self, prompt: Prompt, pictures: Sequence[Picture]) -> list[Mapping[str, Any]]:
        content: list[dict[str, Any]] = [{"type": "text", "text": prompt.text}]
        content += [{"type": "image_url", "image_url": {"url": data_url(picture)}} for picture in pictures]
        system = [{"role": "system", "content": prompt.system}] if prompt.system else []
        return [*system, {"role": "user", "content": content}]

    def _settings(self) -> dict[str, Any]:
        return {"temperature": self._endpoint.temperature, "max_tokens": self._endpoint.max_tokens}

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


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a cache file holds."""

    replies: dict[str, str] = field(default_factory=dict)
    spent: Tokens = field(default_factory=Tokens)


def _tokens(completed: Completed, held: Tokens | None) -> Tokens:
    """What a reply took; where the endpoint does not count, all that was set aside for it."""
    if completed.input is None or completed.output is None:
        return Tokens() if held is None else held
    return Tokens(completed.input, completed.cached, completed.output)


def _read_cache(path: Path) -> _Kept:
    """The content of a cache file. A last line that a kill cut short is left out, and cut off."""
    kept = _Kept()
    if not path.exists():
        return kept
    for number, line in enumerate(whole_lines(path, repair=True), start=1):
        try:
            row = parse_json(line)
            if row["reply"] is not None:
                kept.replies[row["key"]] = str(row["reply"])
            kept.spent.add(Tokens(*(int(row.get(name, 0)) for name in ("input", "cached", "output"))))
        except (ValueError, KeyError, TypeError):
            raise DataError("not a cached reply", where=f"{path}:{number}", fix="delete the file") from None
    return kept
