"""Services at a loopback address in a run on several machines: on each one it is another service."""

import ipaddress
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from vtune.errors import RecipeError
from vtune.update.ranks import Ranks

SECONDS = 5.0
"""Timeout for connecting to a service on this machine; ours."""


SERVERS = "rollout.servers"
"""Key of the servers that receive weights; all machines must use the same ones."""
JUDGE = "reward.judge.base_url"
"""Key of the service that is used only if rows need it."""
PORTS = {"http": 80, "https": 443}
"""Default ports of URLs without one."""


def check_services_here(
    recipe: Mapping[str, Any],
    suites: Mapping[str, Mapping[str, Any]],
    ranks: Ranks,
    *,
    idle_judge: Callable[[str], bool],
) -> None:
    """Check that services that a recipe names by a loopback address also run on this machine.

    The first process of the run has already checked its own services; on every other machine, the first
    process does. Other addresses mean the same service everywhere.

    Args:
        recipe: The run's recipe, as plain values.
        suites: Its evaluation suites by name, as plain values.
        ranks: This process and the others.
        idle_judge: Whether nothing uses the judge of a suite's reward, or for "" that of the recipe; this
            reads the rows, so it is called only if nothing listens.

    Raises:
        RecipeError: If nothing listens at such an address here, or it belongs to rollout servers.
    """
    if ranks.first or ranks.local:
        return
    for suite, values in {"": recipe, **suites}.items():
        for key, url, listed in _urls(values):
            parts = urlsplit(url)
            named = parts._replace(netloc=f"HOST:{parts.port}" if parts.port else "HOST").geturl()
            if key == SERVERS and _is_loopback(parts.hostname):
                raise RecipeError(
                    f"{key} is {url}, and the run is on several machines: its first process hands weights to "
                    "the servers that it finds there, and the others would ask their own",
                    fix=f"name a host that all machines reach, e.g. {named}",
                )
            if not _is_loopback(parts.hostname) or _listens(
                parts.hostname, parts.port or PORTS[parts.scheme]
            ):
                continue
            if key == JUDGE and idle_judge(suite):
                continue
            raise RecipeError(
                f"{key}{f' of eval suite {suite}' if suite else ''} is {url}, and nothing listens there on "
                f"{socket.gethostname()}",
                fix="start the service on every machine, or name a host that all of them reach, e.g. "
                + (named if suite or listed else f"--set {key}={named}"),
            )


def loopback_urls(recipe: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(key path, URL) of the services that a recipe, as plain values, names by a loopback address."""
    return [(key, url) for key, url, _ in _urls(recipe) if _is_loopback(urlsplit(url).hostname)]


def _urls(value: Any, key: str = "", *, listed: bool = False) -> Iterator[tuple[str, str, bool]]:
    """(key path, URL, whether it is in a list) of every URL in a recipe."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from _urls(one, f"{key}.{name}" if key else name, listed=listed)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _urls(one, key, listed=True)
    elif isinstance(value, str) and value.startswith(("http://", "https://")):
        yield key, value, listed


def _is_loopback(host: str | None) -> bool:
    if host is None or host == "localhost":
        return host is not None
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # a host name
        return False
    # vLLM prints `http://0.0.0.0:8000`, and connecting to that address reaches the machine itself.
    return address.is_loopback or address.is_unspecified


def _listens(host: str | None, port: int) -> bool:
    try:
        with socket.create_connection((str(host), port), timeout=SECONDS):
            return True
    except OSError:
        return False
