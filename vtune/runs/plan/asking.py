"""Whether a service responds: one HTTP request, without a client of its own."""

import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException

SECONDS = 5.0
"""Seconds that a service may take to answer; ours."""


def why_silent(servers: Sequence[str]) -> list[str]:
    """For each rollout server, why it does not answer, or empty; all are asked at the same time."""
    with ThreadPoolExecutor(max(1, len(servers))) as pool:
        return [why for _, why in pool.map(lambda url: ask(f"{url.rstrip('/')}/health", None), servers)]


def ask(url: str, key: str | None, *, proxied: bool = False) -> tuple[str, str]:
    """Send a GET request to a service.

    Args:
        url: The full URL.
        key: The API key; None: none is sent.
        proxied: Whether to use `HTTP_PROXY`: only if a run would use it too.

    Returns:
        The answer, and the reason if there is none.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    opener = urllib.request.build_opener(*([] if proxied else [urllib.request.ProxyHandler({})]))
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=SECONDS) as answer:
            return answer.read().decode("utf-8", "replace"), ""
    except urllib.error.HTTPError as error:
        return "", f"status {error.code}"
    except (OSError, ValueError) as error:
        return "", str(getattr(error, "reason", error))
    except HTTPException as error:  # the other end speaks another protocol, or breaks off
        return "", f"no answer in HTTP ({type(error).__name__})"
