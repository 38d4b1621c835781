"""Rollouts by separate vLLM servers over HTTP: token ids and pictures out, token ids back."""

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx2

from vtune.errors import RunFailed
from vtune.judge.tls import trusted
from vtune.models.pictures import Pixels
from vtune.models.policy import Policy
from vtune.rollout.engine import Completion, Engine, Request, Weights
from vtune.rollout.fleet import FRESH, Fleet, Server, usable
from vtune.rollout.server_calls import PATIENCE, Unusable, once
from vtune.rollout.stopwatch import Stopwatch
from vtune.rollout.submission import BAN, Answer, Kept, Submissions, label_of, version_of
from vtune.schema.decode import png_of

KEPT = 1 << 30
"""Size limit of the cache of encoded pictures and their patches, in bytes."""

BEHIND = 0.1
"""Seconds between checks of whether a server that was given up has the newest weights."""

LOOK, LATE = 1.0, 120.0
"""For processes that do not transfer weights: seconds between checks of a server, and seconds after which a
server without the newest weights is given up; ours. Transfers end at about the same time in all processes."""


class ServersEngine(Engine):
    """Generates turns on several vLLM servers.

    All turns of a group go to one server, which computes its prompt and pictures once; groups are assigned
    round-robin. If a server fails, its turns go to the others; it is retried a little later, and then given
    up until the next weights arrive. A server that has the wrong weights is not used.

    Args:
        policy: Tokens and pictures; the servers' weights come through `take`.
        urls: The servers' URLs.
        send: Sends weights to the servers under a `label`; called in every training process.
        waiting: Covered while something is generated.
        model: The servers' name for the adapter to generate with; None: the model that they have loaded.
    """

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
        self._servers = [Server(url.rstrip("/")) for url in urls]
        self._send = send
        self._stopwatch = waiting or Stopwatch()
        self._submissions = Submissions(policy)
        self._pictures: Kept[str] = Kept(KEPT, len)
        self._http = httpx2.AsyncClient(
            verify=trusted(), timeout=PATIENCE, limits=httpx2.Limits(max_connections=None)
        )
        self._version = -1
        self._before = -1
        """Oldest weights that a server may still use: the current version, or in transfers the previous."""

    async def generate(self, request: Request) -> Completion:
        """Generate one turn, on the group's own server if it works.

        Raises:
            RunFailed: If no server is left, or one rejects the request as invalid.
        """
        with self._stopwatch.covered():
            body = await self._body(request)
            while True:
                server = await self._choose(request.key)
                asked, oldest = time.monotonic(), self._before
                try:
                    if not await self._ready(server):
                        continue
                    said = await self._drawn(server, body)
                    completion = self._submissions.completion(request, _answer(said))
                except Unusable as error:
                    server.failed(str(error), asked=asked)
                    continue
                # New weights may have arrived in the meantime; no other weights are valid.
                if set(completion.weight_versions) - set(range(oldest, self._version + 1)):
                    server.checked = False
                    server.give_up("its weights are not those that it was given: was it started again?")
                    continue
                server.worked()
                return completion

    async def take(self, weights: Weights, version: int) -> None:
        """Give all servers new weights, including those that had been given up."""
        for server in self._servers:
            server.behind = server.given_up
            server.failures, server.again, server.late = 0, 0.0, None
        self._version = version
        await self._send(weights, Fleet(self._http, self._servers), label_of(version))
        self._before = version
        for server in self._servers:
            server.behind = False

    async def rest(self) -> None:
        """Does nothing: the servers have their own devices."""

    async def aclose(self) -> None:
        """Close the connections; the servers keep running."""
        await self._http.aclose()

    async def _choose(self, key: tuple[int, ...]) -> Server:
        """The server assigned to the group in `key`, or the next one that works."""
        group = key[-3] if len(key) > 2 else 0
        while True:
            left = usable(self._servers)
            now = time.monotonic()
            home = group % len(self._servers)
            for server in [*self._servers[home:], *self._servers[:home]]:
                if not server.given_up and not server.behind and server.again <= now:
                    return server
            again = min(max(server.again, now + BEHIND * server.behind) for server in left)
            await asyncio.sleep(again - now)

    async def _drawn(self, server: Server, body: dict[str, Any]) -> dict[str, Any]:
        """The turn that a server generates.

        Raises:
            Unusable: If it fails, or is given up in the meantime.
        """
        asked = once(self._http, "POST", f"{server.url}/inference/v1/generate", body)
        turn = asyncio.create_task(asked)
        server.turns.add(turn)
        try:
            await asyncio.wait([turn])
        finally:
            server.turns.discard(turn)
            turn.cancel()
        if turn.cancelled():
            raise Unusable(server.why)
        return turn.result()

    async def _ready(self, server: Server) -> bool:
        """Whether a server has the newest weights, checked once after each transfer; False: choose again.

        Only the first process transfers weights and sees which servers fail during a transfer.
        """
        async with server.looked:
            if server.given_up or server.again > time.monotonic():
                return False
            if server.has == self._before:
                return True
            said = await once(self._http, "GET", f"{server.url}/weight_info", None)
            label = str(said["weight_version"])
            if label == FRESH:
                server.checked = False
            if version_of(label) < self._before:
                now = time.monotonic()
                server.again = now + LOOK
                if self._before == self._version:  # otherwise a transfer is in progress
                    server.late = server.late or now
                    if now - server.late > LATE:
                        server.give_up(f"it did not get the newest weights: its label is {label!r}")
                return False
            await self._check(server)
            server.has, server.late = self._before, None
            return True

    async def _check(self, server: Server) -> None:
        """Check, once per start, that a server's log-probabilities are those of the distribution it samples
        from.
        """
        if server.checked:
            return
        # With this bias the token is certain, which only log-probabilities after all biases show.
        sampling = {"max_tokens": 1, "logprobs": 0, "temperature": 1.0, "logit_bias": {"0": -BAN}}
        said = await self._drawn(server, {"token_ids": [0], "sampling_params": sampling})
        (choice,) = said["choices"]
        if choice["logprobs"]["content"][0]["logprob"] < -1e-3:
            raise RunFailed(
                f"{server.url} gives log-probabilities of a different distribution from the one "
                "that it samples from",
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
        encoded = png_of(self._policy.pictures.shown(pixels))
        return "data:image/png;base64," + base64.b64encode(encoded).decode()


def _answer(said: dict[str, Any]) -> Answer:
    (choice,) = said["choices"]
    if choice["finish_reason"] not in ("stop", "length"):
        raise Unusable(f"a turn ended with {choice['finish_reason']!r}")
    return Answer(
        prompt=said["prompt_token_ids"],
        token_ids=choice["token_ids"],
        logprobs=[entry["logprob"] for entry in choice["logprobs"]["content"]],
        finish=choice["finish_reason"],
        stop=choice["stop_reason"],
        spans=[(span["version"], span["end"]) for span in choice["weight_versions"] or ()],
    )
