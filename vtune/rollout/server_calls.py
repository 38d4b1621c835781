"""Requests to vLLM servers, and what their failures mean."""

import asyncio
from typing import Any
from urllib.parse import urlsplit

import httpx2

from vtune.errors import RunFailed
from vtune.files.json_text import parse_json

PATIENCE = httpx2.Timeout(1800.0, connect=5.0)
"""Seconds: a long turn on a busy server takes time."""

BRIEF = httpx2.Timeout(60.0, connect=5.0)
"""The same for a request about the server itself: it either answers at once or hangs. Ours."""

AGAIN = (0.5, 1.0)
"""Seconds before each retry of a call that may be repeated, or that never arrived. Ours."""

START = (
    "vllm serve MODEL --enable-scale-out --logprobs-mode processed_logprobs "
    '--weight-transfer-config \'{"backend": "…"}\' with VLLM_SERVER_DEV_MODE=1; see vtune/rollout/README.md'
)


class Unusable(Exception):
    """A server gave no usable answer; another one may."""


class Silent(Unusable):
    """It accepted a request about itself, but does not answer."""


class Unreached(Unusable):
    """The request did not arrive."""


async def post(
    http: httpx2.AsyncClient, url: str, path: str, body: dict[str, Any], *, repeat: bool | None = None
) -> dict[str, Any]:
    """A server's answer to a POST; arguments as for `call`."""
    return await call(http, "POST", url + path, body, repeat=repeat)


async def call(
    http: httpx2.AsyncClient,
    method: str,
    address: str,
    body: dict[str, Any] | None = None,
    *,
    repeat: bool | None = None,
) -> dict[str, Any]:
    """A server's answer to a request.

    Args:
        http: Sends it.
        method: GET or POST.
        address: URL and path.
        body: As JSON.
        repeat: Whether to retry after a failure; None: only if the request did not arrive.

    Raises:
        Unusable: If the server cannot be reached, or fails.
        RunFailed: If it rejects the request: a retry would not help.
    """
    for seconds in AGAIN:
        try:
            return await once(http, method, address, body)
        except Unusable as error:
            if isinstance(error, Silent) or not (repeat or (repeat is None and isinstance(error, Unreached))):
                raise
        await asyncio.sleep(seconds)
    return await once(http, method, address, body)


async def once(
    http: httpx2.AsyncClient, method: str, address: str, body: dict[str, Any] | None
) -> dict[str, Any]:
    """`call` without retries."""
    patience: dict[str, Any] = {"timeout": BRIEF} if method == "GET" else {}
    try:
        response = await http.request(method, address, json=body, **patience)
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise Unreached(f"{type(error).__name__} {error}".strip()) from error
    except httpx2.ReadTimeout as error:
        kind = Silent if method == "GET" else Unusable
        raise kind(f"no answer to {method} {urlsplit(address).path} in time") from error
    except httpx2.RequestError as error:
        raise Unusable(f"{type(error).__name__} {error}".strip()) from error
    if response.status_code >= 500:
        raise Unusable(f"HTTP {response.status_code}: {response.text[:500]}")
    if response.status_code == 404 and body is not None and "model" in body:
        raise Unusable(f"it does not have the adapters {body['model']!r}: was it started again?")
    if response.status_code >= 400:
        said = f"HTTP {response.status_code}: {response.text[:500]}"
        raise RunFailed(f"{address.partition('?')[0]} refuses: {said}", fix=f"start it with {START}")
    # Loading an adapter is answered with plain text, and resetting a cache with an empty body.
    worded = response.headers.get("content-type", "").startswith("text/")
    if worded or not response.content:
        return {}
    try:
        found: dict[str, Any] = parse_json(response.content)
    except ValueError as error:
        raise Unusable(f"its answer is not readable JSON: {response.text[:500]!r} ({error})") from error
    return found
