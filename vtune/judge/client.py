"""The one client for every model that judges: an OpenAI-compatible endpoint, asked once per question."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Self, TypeVar

from vtune.errors import ServiceError
from vtune.files.writing import appending
from vtune.judge.batches import Batches, Tell
from vtune.judge.budget import Purse, Tokens
from vtune.judge.completed import LENGTH, Completed
from vtune.judge.completions import Completions, Cut, Empty, NoAnswer, NoReply, NoVerdict
from vtune.judge.endpoint import JudgeEndpoint
from vtune.judge.kept import read_kept
from vtune.judge.pictures import digests
from vtune.judge.prompts import Prompt, insisting, messages_of
from vtune.schema.message import Picture

T = TypeVar("T")

MORE_ROOM = "raise `max_tokens` of the judge: a model that reasons needs a few thousand"


class PutOff(NoReply):
    """A question that is not asked now, because it goes into a batch."""


class JudgeClient:
    """Asks a judge; an async context manager.

    The same question (model, settings, text, pictures) is sent only once: replies are cached in memory (the
    latest `most`) and, with a cache file, on disk; a caller who asks while it is in progress waits for the
    same reply. Failures are not cached.

    For failures of an endpoint, and settings that a model refuses, see `Completions`.
    """

    def __init__(
        self,
        endpoint: JudgeEndpoint,
        *,
        cache: Path | None = None,
        most: int | None = None,
        purse: Purse | None = None,
        section: str = "judge",
    ) -> None:
        """Create a client that is not connected yet.

        Args:
            endpoint: The endpoint.
            cache: A JSONL file of replies, created if missing, written by one process only; None caches
                replies in memory only.
            most: Limit on replies in memory, evicting the oldest; None keeps all, which a service that runs
                for months cannot afford.
            purse: Tracks the spending; the spending recorded in a cache file is charged to it first. None: a
                new one with the endpoint's budget.
            section: The recipe key that configures the endpoint; messages name the model after it.
        """
        self._endpoint = endpoint
        self._cache = cache
        self._most = most
        self._purse = Purse(endpoint.budget, endpoint.prices) if purse is None else purse
        self._file: IO[str] | None = None
        self._replies: dict[str, str] = {}
        self._dropped: set[str] = set()
        self._cut: set[str] = set()
        self._by_batch = 0
        self._batches: Batches | None = None
        self._held = Tokens()
        self._instead: Callable[[], NoReply] | None = None
        self._under_way: dict[str, asyncio.Task[str]] = {}
        self._room = asyncio.Semaphore(endpoint.concurrency)
        self._completions = Completions(
            f"the {section}",
            endpoint.base_url,
            endpoint.model,
            concurrency=endpoint.concurrency,
            retries=endpoint.retries,
            timeout_s=endpoint.timeout_s,
            api_key_env=endpoint.api_key_env,
            fix=f"check that the endpoint is up, and that `{section}` in the recipe names it",
            no_key=f"; `api_key_env` of `{section}` can name another variable, or be null for no key",
        )

    @property
    def refused(self) -> frozenset[str]:
        """Settings that the model has refused: `temperature`, `max_tokens`."""
        return self._completions.refused

    def facts(self) -> dict[str, Any]:
        """`model`, and the usage of its replies, including those from before this session (`Purse.facts`).

        With `by_batch`, the number that came from batches, if any did.
        """
        batched = {"by_batch": self._by_batch} if self._by_batch else {}
        return {"model": self._endpoint.model, **self._purse.facts(), **batched}

    @property
    def was_asked(self) -> bool:
        """Whether it has replied, or has a cached reply."""
        return bool(self._replies)

    async def __aenter__(self) -> Self:
        """Open the endpoint and the cache.

        Raises:
            RecipeError: If the environment variable of the key is not set.
            DataError: If the cache file cannot be read.
        """
        await self._completions.__aenter__()
        if self._cache is not None:
            kept = read_kept(self._cache)
            self._replies |= kept.replies
            self._cut |= kept.cut
            self._purse.spent.add(kept.spent)
            self._by_batch += kept.by_batch
            self._cache.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._cache.open("a", encoding="utf-8")
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._under_way.values():
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
        await self._completions.__aexit__()
        if self._file is not None and self._cache is not None:
            with appending(self._cache):
                self._file.close()

    def knows(self, prompt: Prompt, pictures: Sequence[Picture]) -> bool:
        """Whether the reply is cached, so that `ask` sends no request."""
        return self._key(prompt, digests(pictures)) in self._replies

    async def ask(self, prompt: Prompt, pictures: Sequence[Picture]) -> str:
        """The judge's reply to a prompt with pictures.

        Raises:
            NoVerdict: If the judge refuses the question, or its reply is empty.
            OverBudget: If it may cost more than is left.
            PutOff: If it is asked in a batch.
            NoReply: If there was no reply.
            DataError: If a picture cannot be read.
        """
        return await self._ask(self._key(prompt, await _shown(pictures)), prompt, pictures)

    async def _ask(self, key: str, prompt: Prompt, pictures: Sequence[Picture]) -> str:
        """The reply to a question with this key; `ask` and `ask_for` both come here."""
        if key in self._replies:
            return self._replies[key]
        if self._batches is not None:
            return await self._put_in(self._batches, key, prompt, pictures)
        if self._instead is not None:
            raise self._instead()
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._fetch(key, prompt, pictures))
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        return await asyncio.shield(task)  # a caller that is cancelled must not cancel it for the others

    def put_off(self) -> None:
        """Ask nothing until `ask_in_batches` is called: `ask` returns cached replies, or raises `PutOff`."""
        self._instead = partial(PutOff, "it waits for a batch")

    async def ask_in_batches(
        self, ask_all: Callable[[], Awaitable[object]], *, state: Path, poll_s: float, tell: Tell
    ) -> None:
        """Ask the questions of `ask_all` in batches of the endpoint; `ask` then finds the replies.

        A client's first question is asked individually: then it is known which settings the model refuses,
        and no batch is sent in vain. For each question in a batch, `ask` raises `PutOff`. Questions that
        depend on its reply go into a later batch: `ask_all` is called until it asks nothing new. What a batch
        does not answer, and what the budget does not allow, is left to `ask`. If the endpoint does not
        support batches, or one fails, `ask` raises the reason, as `NoReply`.

        Args:
            ask_all: Asks everything there is to ask, and tolerates questions without a reply.
            state: File with the names of batches in progress, so that a run that was killed can resume them.
            poll_s: Seconds between polls of a batch.
            tell: Called with a message for each batch that the endpoint no longer knows; its questions are
                asked again.

        Raises:
            DataError: If `state` cannot be read.
        """
        batches = self._batches = Batches(self._completions, state, poll_s, tell)
        try:
            await self._take(batches)
            while True:
                await ask_all()
                if batches.failed is not None:
                    raise batches.failed
                if not await batches.send():
                    break
                await self._take(batches)
        except ServiceError as error:
            self._instead = partial(NoReply, f"{error.what}; {error.fix}", where=error.where)
        else:
            self._instead = None
        finally:
            self._batches = None
            self._settle_batches()

    async def _put_in(self, batches: Batches, key: str, prompt: Prompt, pictures: Sequence[Picture]) -> str:
        """The reply, if the question is asked individually; all other questions go into a batch.

        Raises:
            PutOff: If it is in a batch now.
            OverBudget: If it may cost more than is left.
        """
        async with batches.turn:
            if key in self._replies:  # cached in the meantime
                return self._replies[key]
            if key not in batches.names and batches.failed is None:
                reply = await self._tried(batches, key, prompt, pictures)
                if reply is not None:
                    return reply
                held = self._hold(prompt, pictures)
                self._held.add(held)
                messages = await messages_of(prompt, pictures)
                batches.add(key, self._completions.body(messages, self._settings()), held)
                if batches.full:
                    try:
                        await batches.send()
                    except ServiceError as error:
                        batches.failed = error
        raise PutOff("it waits for a batch")

    async def _tried(
        self, batches: Batches, key: str, prompt: Prompt, pictures: Sequence[Picture]
    ) -> str | None:
        """The reply to a question asked individually, while it is not known which settings the model refuses.

        None if that is known, or if the question fails: it is asked again, in a batch or individually, and
        that failure is reported.
        """
        if self._completions.has_answered or not batches.tries:
            return None
        batches.tries -= 1
        try:
            return await self._fetch(key, prompt, pictures)
        except NoVerdict:
            return None
        except ServiceError:
            batches.tries = 0
            return None

    async def _take(self, batches: Batches) -> None:
        """Wait for all batches in progress, and cache their replies."""
        try:
            async for key, completed, most in batches.replies():
                if key not in self._replies:  # otherwise a run that was killed has already cached it
                    used = _tokens(completed, most)
                    self._purse.spent.add(used)
                    self._keep(key, completed.text, used, batch=True, cut=completed.finish == LENGTH)
        finally:
            self._settle_batches()

    def _settle_batches(self) -> None:
        self._purse.settle(self._held, Tokens())
        self._held = Tokens()

    async def ask_for(
        self, prompt: Prompt, pictures: Sequence[Picture], read: Callable[[str], T | None], wanted: str
    ) -> T:
        """What `read` finds in the judge's reply; if it finds nothing, the judge is asked once more.

        A truncated reply is not read: text that it quotes may look like a verdict, while its own is cut off.
        If the second reply is unreadable too, neither is kept on disk, so that a later session asks again.

        Args:
            prompt: The question.
            pictures: Shown after the question.
            read: Returns None if it cannot read a reply.
            wanted: What a reply should be, e.g. "TRUE or FALSE".

        Raises:
            NoVerdict: If the judge refuses the question, or the second reply cannot be read either.
            ServiceError, DataError: As in `ask`.
        """
        shown = await _shown(pictures)
        both = {self._key(asked, shown): asked for asked in (prompt, insisting(prompt, wanted))}
        why: list[NoVerdict] = []
        for key, asked in both.items():
            try:
                reply = await self._ask(key, asked, pictures)
                cut = key in self._cut
                if not cut and (found := read(reply)) is not None:
                    return found
                why.append(self._unreadable(reply, wanted, cut=cut))
            except Empty as error:
                why.append(error)
        for key in both:
            self._drop(key)
        raise why[-1]

    async def _fetch(self, key: str, prompt: Prompt, pictures: Sequence[Picture]) -> str:
        async with self._room:
            messages = await messages_of(prompt, pictures)
            held = self._hold(prompt, pictures)
            whole, used = replace(held), Tokens()

            def lost() -> None:
                """The attempt counts in full, and another may use as much."""
                used.add(held)
                whole.add(self._hold(prompt, pictures))

            try:
                completed = await self._completions.create(messages, self._settings(), lost=lost)
                used.add(_tokens(completed, held))
            except (ServiceError, asyncio.CancelledError) as error:
                # After Ctrl-C, it is not known whether the server has answered, and charges for it.
                if isinstance(error, NoAnswer | asyncio.CancelledError):
                    used.add(held)
                if used.output:
                    self._keep(key, "", used)
                raise
            finally:
                self._purse.settle(whole, used)
        self._keep(key, completed.text, used, cut=completed.finish == LENGTH)
        return self._text(completed)

    def _keep(self, key: str, reply: str, used: Tokens, *, batch: bool = False, cut: bool = False) -> None:
        """Cache a reply, with whether it came from a batch and was truncated; if empty, only its cost."""
        row: dict[str, Any] = {"key": key, "reply": reply or None, **asdict(used)}
        if reply:
            self._replies[key] = reply
        if reply and batch:
            row["batch"] = True
            self._by_batch += 1
        if reply and cut:
            row["cut"] = True
            self._cut.add(key)
        if self._most is not None and len(self._replies) > self._most:
            oldest = next(iter(self._replies))
            del self._replies[oldest]
            self._cut.discard(oldest)
        self._write(row)

    def _drop(self, key: str) -> None:
        """Make a later session ask again; this one keeps using the reply."""
        if self._file is not None and key in self._replies and key not in self._dropped:
            self._dropped.add(key)
            self._write({"key": key, "reply": None})

    def _write(self, row: Mapping[str, Any]) -> None:
        if self._file is not None and self._cache is not None:
            with appending(self._cache):
                self._file.write(json.dumps(row) + "\n")
                self._file.flush()

    def _hold(self, prompt: Prompt, pictures: Sequence[Picture]) -> Tokens:
        return self._purse.hold([prompt.system, prompt.text], len(pictures), self._endpoint.max_tokens)

    def _settings(self) -> dict[str, Any]:
        return {"temperature": self._endpoint.temperature, "max_tokens": self._endpoint.max_tokens}

    def _text(self, completed: Completed) -> str:
        if completed.text:
            return completed.text
        why, fix = "", "ask another model, or check the log of its server"
        if completed.finish == LENGTH:
            why = f"its {self._endpoint.max_tokens} max_tokens were spent on thoughts"
            raise Cut(f"the judge's reply is empty: {why}", where=self._completions.where, fix=MORE_ROOM)
        if completed.thoughts:
            why = ": all that it wrote came as thoughts (`reasoning_content`)"
            fix = "serve it without a reasoning parser, or with the one made for its model"
        elif not completed.finish:
            why, fix = ": it has no `choices`", "check that the endpoint serves a model that chats"
        raise Empty(f"the judge's reply is empty{why}", where=self._completions.where, fix=fix)

    def _unreadable(self, reply: str, wanted: str, *, cut: bool) -> NoVerdict:
        what = f"the judge wrote {reply[:80]!r} instead of {wanted}"
        if not cut:
            return NoVerdict(f"{what}, asked twice")
        at = f"{self._endpoint.max_tokens} max_tokens"
        return Cut(f"{what}, and was cut at its {at}, asked twice", fix=MORE_ROOM)

    def _key(self, prompt: Prompt, shown: bytes) -> str:
        settings = (self._endpoint.model, self._endpoint.temperature, self._endpoint.max_tokens)
        text = json.dumps([*settings, prompt.system, prompt.text])
        return hashlib.sha256(text.encode() + shown).hexdigest()


async def _shown(pictures: Sequence[Picture]) -> bytes:
    """What identifies the pictures of a question; reading large ones would hold up all others."""
    return await asyncio.to_thread(digests, pictures) if pictures else b""


def _tokens(completed: Completed, held: Tokens | None) -> Tokens:
    """The usage of a reply; if the endpoint does not report it, everything that was reserved."""
    if completed.input is None or completed.output is None:
        return Tokens() if held is None else held
    return Tokens(completed.input, completed.cached, completed.output)
