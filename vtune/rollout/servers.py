"""Rollouts by vLLM servers of their own, over HTTP: token ids and pictures out, token ids back."""

import asyncio
import base64
import io
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from vtune.errors import RunFailed
from vtune.judge.tls import trusted
from vtune.models.pictures import Pixels
from vtune.models.policy import Policy
from vtune.rollout.adapters import NAME
from vtune.rollout.engine import Completion, Request, Weights
from vtune.rollout.stopwatch import Stopwatch
from vtune.rollout.submission import BAN, Answer, Kept, Submissions, label_of
from vtune.rollout.transfer import Link

KEPT = 1 << 30
"""Bytes of pictures that stay encoded, and of their patches."""

PATIENCE = httpx2.Timeout(1800.0, connect=5.0)
"""Seconds: a long turn on a full server takes its time."""

FAILURES = 4
"""In a row, after which a server is given up until the next weights. Between them 0.5, 1 and 2 seconds."""

BEHIND = 0.1
"""Seconds between two looks whether a server has the newest weights."""

START = (
    "vllm serve MODEL --enable-scale-out --logprobs-mode processed_logprobs "
    '--weight-transfer-config \'{"backend": "…"}\' with VLLM_SERVER_DEV_MODE=1; see vtune/rollout/README.md'
)


class _Unusable(Exception):
    """A server gave no usable answer; another may."""


@dataclass(slots=True)
class _Server:
    url: str
    failures: int = 0
    """In a row."""
    again: float = 0.0
    """Not asked before this moment."""
    why: str = ""
    """The latest failure."""
    checked: bool = field(default=False)
    behind: bool = False
    """It was given up, and gets the newest weights now: no turns before it has them."""

    @property
    def given_up(self) -> bool:
        return self.failures >= FAILURES

    def failed(self, why: str, *, asked: float) -> None:
        """Note a failure; those of requests that were under way when it was noted last are the same one."""
        if asked >= self.again:
            self.failures += 1
            self.again = time.monotonic() + 0.25 * 2**self.failures
        self.why = why

    def give_up(self, why: str) -> None:
        self.failures, self.why = FAILURES, why


class ServersEngine:
    """Draws turns on several vLLM servers.

    A group's turns go to one server, which computes its prompt and pictures once; groups are dealt out in
    turn. A server that fails is asked again a little later and then given up, and its turns go to the others;
    with the next weights it is tried anew. A server that has other weights than it should is not used.

    Args:
        policy: Tokens and pictures; the servers' weights come by `take`.
        urls: Of the servers.
        send: Takes weights to the servers, called `label`; called in every process of the training.
        waiting: Covered while something is drawn.
        model: Name at the servers of the adapter that draws; None: the model that they have loaded.
    """

    cohorts = 1

    def __init__(
        self,
        policy: Policy,
        urls: Sequence[str],
        send: Callable[[Weights, "Fleet", str], Awaitable[None]],
        *,
        waiting: Stopwatch | None = None,
        model: str | None = None,
    ) -> None:
        self._policy = policy
        self._model = model
        self._servers = [_Server(url.rstrip("/")) for url in urls]
        self._send = send
        self._stopwatch = waiting or Stopwatch()
        self._submissions = Submissions(policy)
        self._pictures: Kept[str] = Kept(KEPT, len)
        self._http = httpx2.AsyncClient(
            verify=trusted(), timeout=PATIENCE, limits=httpx2.Limits(max_connections=None)
        )
        self._version = -1
        self._before = -1
        """The oldest weights that a server may still draw with: the version, or while it changes the last."""

    def join(self, cohort: int) -> None:
        """Nothing waits for others here."""

    def leave(self, cohort: int) -> None:
        """Nothing waits for others here."""

    async def generate(self, request: Request) -> Completion:
        """Draw one turn, on the server of its group if that works.

        Raises:
            RunFailed: If no server is left, or one refuses the request as wrong.
        """
        with self._stopwatch.covered():
            body = await self._body(request)
            while True:
                server = await self._choose(request.key)
                asked, oldest = time.monotonic(), self._before
                try:
                    said = await _post(self._http, server.url, "/inference/v1/generate", body)
                    completion = self._submissions.completion(request, _answer(said))
                except _Unusable as error:
                    server.failed(str(error), asked=asked)
                    continue
                # New weights may have come meanwhile; no others have.
                if set(completion.weight_versions) - set(range(oldest, self._version + 1)):
                    server.give_up("it has other weights than it was given: was it started again?")
                    continue
                server.failures = 0
                return completion

    async def take(self, weights: Weights, version: int) -> None:
        """Give all servers new weights, those too that had been given up."""
        for server in self._servers:
            server.behind = server.given_up
            server.failures, server.again = 0, 0.0
        self._version = version
        fleet = Fleet(self._http, self._servers)
        await fleet.each(self._check)
        await self._send(weights, fleet, label_of(version))
        self._before = version
        for server in self._servers:
            server.behind = False

    async def rest(self) -> None:
        """The servers' devices are their own."""

    async def aclose(self) -> None:
        """Hang up; the servers stay."""
        await self._http.aclose()

    async def _choose(self, key: tuple[int, ...]) -> _Server:
        """The server of the group that `key` names, or the next one that works."""
        group = key[-3] if len(key) > 2 else 0
        while True:
            left = self._left()
            now = time.monotonic()
            home = group % len(self._servers)
            for server in [*self._servers[home:], *self._servers[:home]]:
                if not server.given_up and not server.behind and server.again <= now:
                    return server
            again = min(max(server.again, now + BEHIND * server.behind) for server in left)
            await asyncio.sleep(again - now)

    def _left(self) -> list[_Server]:
        return _usable(self._servers)

    async def _check(self, server: _Server) -> None:
        """Check that a server's log-probabilities are those of what it draws from, once."""
        if server.checked:
            return
        # What is drawn is certain, which only the distribution after all biases says.
        sampling = {"max_tokens": 1, "logprobs": 0, "temperature": 1.0, "logit_bias": {"0": -BAN}}
        said = await _post(
            self._http, server.url, "/inference/v1/generate", {"token_ids": [0], "sampling_params": sampling}
        )
        (choice,) = said["choices"]
        if choice["logprobs"]["content"][0]["logprob"] < -1e-3:
            raise RunFailed(
                f"{server.url} gives log-probabilities of another distribution than it draws from",
                fix="start it with --logprobs-mode processed_logprobs",
            )
        server.checked = True

    async def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "token_ids": self._submissions.prompt(request),
            "sampling_params": self._submissions.sampling(request),
            "return_token_ids": True,
            **({} if self._model is None else {"model": self._model}),
        }
        if request.pixels:
            body["content_parts"] = [
                {"type": "image_url", "url": await self._pictures.of(pixels, self._data_url)}
                for pixels in request.pixels
            ]
        return body

    async def _data_url(self, pixels: Pixels) -> str:
        return await self._policy.pictures.beside(self._encoded, pixels)

    def _encoded(self, pixels: Pixels) -> str:
        out = io.BytesIO()
        self._policy.pictures.shown(pixels).save(out, "PNG", compress_level=1)
        return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


class Fleet(Link):
    """All servers that work, sent the same at the same time; one that fails is given up."""

    def __init__(self, http: httpx2.AsyncClient, servers: Sequence[_Server]) -> None:
        self._http = http
        self._servers = servers

    async def each(self, act: Callable[[_Server], Awaitable[None]]) -> None:
        """Do something with every server that works.

        Raises:
            RunFailed: If none is left.
        """

        async def attempt(server: _Server) -> None:
            try:
                await act(server)
            except _Unusable as error:
                server.give_up(str(error))

        await asyncio.gather(*(attempt(server) for server in self.left()))
        self.left()

    def left(self) -> list[_Server]:
        """The servers that work.

        Raises:
            RunFailed: If there is none.
        """
        return _usable(self._servers)

    async def pause(self) -> None:
        """Draw nothing, forget what is cached but for processed pictures: turns may rely on those."""
        await self._tell("/pause?mode=keep&clear_cache=false", {})
        await self.each(self._forget)

    async def _forget(self, server: _Server) -> None:
        reset = "/reset_prefix_cache?reset_running_requests=true&reset_external=true"
        if not (await _post(self._http, server.url, reset, {}))["success"]:
            raise _Unusable("it could not reset its prefix cache")
        await _post(self._http, server.url, "/reset_encoder_cache", {})

    async def init_weight_transfer_engine(self, info: dict[str, Any]) -> None:
        """Each server's place in the group follows those of the servers before it.

        All are asked at the same time: each of them answers only when all are in the group.

        Raises:
            RunFailed: If one of them fails meanwhile: the others would wait for it.
        """
        servers, offset = self.left(), int(info.get("rank_offset", 0))
        calls = []
        try:
            for server, size in zip(servers, await self._sizes(servers), strict=True):
                place = info | ({"rank_offset": offset} if "rank_offset" in info else {})
                calls.append(
                    _post(self._http, server.url, "/init_weight_transfer_engine", {"init_info": place})
                )
                offset += size
            await asyncio.gather(*calls)
        except _Unusable as error:
            raise RunFailed(
                f"a vLLM server failed while the servers' group was formed: {error}",
                fix=f"check that all of them run, then continue with --resume: {START}",
            ) from error

    async def start_weight_update(self) -> None:
        """Weights will come."""
        await self._tell("/start_weight_update", {})

    async def update_weights(self, info: dict[str, Any]) -> None:
        """Some weights are there."""
        await self._tell("/update_weights", {"update_info": info})

    async def finish_weight_update(self, label: str) -> None:
        """All weights have come."""
        await self._tell("/finish_weight_update", {"weight_version": label})

    async def resume(self) -> None:
        """Draw again."""
        await self._tell("/resume", {})

    async def take_adapters(self, path: Path, label: str) -> None:
        """Load adapters, called `label`, in place of those before; nothing is drawn meanwhile."""

        async def take(server: _Server) -> None:
            # Loaded over the old ones, vLLM would read the folder again before every batch.
            listed = await _send(self._http, "GET", server.url, "/v1/models", None)
            if NAME in [one["id"] for one in listed["data"]]:
                await _post(self._http, server.url, "/v1/unload_lora_adapter", {"lora_name": NAME})
            given = {"lora_name": NAME, "lora_path": str(path)}
            await _post(self._http, server.url, "/v1/load_lora_adapter", given)
            await _post(self._http, server.url, "/update_weight_version", {"new_version": label})

        await self.each(take)

    async def workers(self) -> int:
        """Processes of all servers that hold weights.

        Raises:
            RunFailed: If a server does not say how many it has.
        """
        try:
            return sum(await self._sizes(self.left()))
        except _Unusable as error:
            raise RunFailed(
                f"a vLLM server does not say how many processes it has: {error}",
                fix=f"check that all of them run, then continue with --resume: {START}",
            ) from error

    async def _sizes(self, servers: Sequence[_Server]) -> list[int]:
        asked = (_send(self._http, "GET", server.url, "/get_world_size", None) for server in servers)
        return [int(said["world_size"]) for said in await asyncio.gather(*asked)]

    async def _tell(self, path: str, body: dict[str, Any]) -> None:
        async def tell(server: _Server) -> None:
            await _post(self._http, server.url, path, body)

        await self.each(tell)


def _usable(servers: Sequence[_Server]) -> list[_Server]:
    left = [server for server in servers if not server.given_up]
    if not left:
        why = "\n".join(f"  {server.url}: {server.why}" for server in servers)
        raise RunFailed(
            f"no vLLM server is left\n{why}", fix=f"start them, then continue with --resume: {START}"
        )
    return left


async def _post(http: httpx2.AsyncClient, url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    return await _send(http, "POST", url, path, body)


async def _send(
    http: httpx2.AsyncClient, method: str, url: str, path: str, body: dict[str, Any] | None
) -> dict[str, Any]:
    """What a server says to a request.

    Raises:
        _Unusable: If it cannot be reached, or fails.
        RunFailed: If it refuses the request: asking another way would not help.
    """
    try:
        response = await http.request(method, url + path, json=body)
    except httpx2.TransportError as error:
        raise _Unusable(f"{type(error).__name__} {error}".strip()) from error
    if response.status_code >= 500:
        raise _Unusable(f"HTTP {response.status_code}: {response.text[:500]}")
    if response.status_code == 404 and body is not None and "model" in body:
        raise _Unusable(f"it does not have the adapters {body['model']!r}: was it started again?")
    if response.status_code >= 400:
        raise RunFailed(
            f"{url} refuses {path.partition('?')[0]}: HTTP {response.status_code}: {response.text[:500]}",
            fix=f"start it with {START}",
        )
    # What loads an adapter answers in words, what resets a cache in none.
    worded = response.headers.get("content-type", "").startswith("text/")
    found: dict[str, Any] = {} if worded or not response.content else response.json()
    return found


def _answer(said: dict[str, Any]) -> Answer:
    (choice,) = said["choices"]
    if choice["finish_reason"] not in ("stop", "length"):
        raise _Unusable(f"a turn ended with {choice['finish_reason']!r}")
    return Answer(
        prompt=said["prompt_token_ids"],
        token_ids=choice["token_ids"],
        logprobs=[entry["logprob"] for entry in choice["logprobs"]["content"]],
        finish=choice["finish_reason"],
        stop=choice["stop_reason"],
        spans=[(span["version"], span["end"]) for span in choice["weight_versions"] or ()],
    )
