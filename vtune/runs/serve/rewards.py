"""`vtune serve rewards`: the reward service, from its socket to its shutdown."""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ConfigDict
from starlette.types import ASGIApp

from vtune.config import find, load_recipe
from vtune.errors import RecipeError
from vtune.files.reading import read_text, why_unread
from vtune.reward.recipe import RewardRecipe
from vtune.reward.service import Service, app_of
from vtune.runs.interpreter import responsive
from vtune.runs.serve.listening import Binding, listen, serve_until_stopped, url_of
from vtune.sections import Strict

SHORTEST_TOKEN = 16
"""Characters; ours: anything shorter can be guessed."""


def run_rewards(
    at: Binding,
    *,
    workers: int,
    recipe: str | None,
    ready: Callable[[dict[str, Any]], None],
) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP; running requests are answered first.

    Args:
        at: Where it listens, and what it accepts there.
        workers: Processes that verify.
        recipe: Its reward section scores requests that bring none, with its judge (see `read_reward`).
        ready: Called with `url`, `token` (whether one is needed), and what /health reports, once it listens.

    Raises:
        RecipeError: If a required token is missing or too short, or the address cannot be bound.
    """
    check_token(at.host, at.token)
    service = Service(None if recipe is None else read_reward(recipe), workers=workers)
    app = app_of(service, token=at.token, max_bytes=at.max_bytes)
    with listen(at.host, at.port) as listener:
        facts = {"url": url_of(listener), "token": at.token is not None} | service.health()
        asyncio.run(_serve(service, app, listener, lambda: ready(facts)))


async def _serve(service: Service, app: ASGIApp, listener: socket.socket, ready: Callable[[], None]) -> None:
    async with service.running():
        service.start_workers()
        with responsive():
            await serve_until_stopped(app, listener, ready)


def _is_this_machine(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a host name may resolve to anything


def check_token(host: str, token: str | None) -> None:
    """Check that strangers cannot use the service.

    Raises:
        RecipeError: If others can reach `host` and there is no token, or it is too short.
    """
    if token is None and not _is_this_machine(host):
        raise RecipeError(
            f"anyone who reaches {host} could use the service",
            fix="give --token-file, or listen on 127.0.0.1",
        )
    if token is not None and not re.fullmatch(f"[!-~]{{{SHORTEST_TOKEN},}}", token):
        raise RecipeError(
            f"a token must have at least {SHORTEST_TOKEN} printable ASCII characters and no space",
            fix="make one: python -c 'import secrets; print(secrets.token_urlsafe())'",
        )


def read_token(file: Path) -> str:
    """The token in a file, without the line break at its end.

    Raises:
        RecipeError: If the file cannot be read.
    """
    try:
        return read_text(file).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(
            f"cannot read the token file {file}: {why_unread(error)}", fix="give a file that holds the token"
        ) from None


class Rewarded(Strict):
    """The part of a recipe or suite that a service reads."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    reward: RewardRecipe


def read_reward(name: str) -> RewardRecipe:
    """The reward section of an `rl` recipe by its name, or of any recipe or suite by its path.

    Raises:
        RecipeError: If there is none, or its judge is to be asked in batches.
    """
    path = find(name, "recipes.rl")
    reward = load_recipe(path, Rewarded).reward
    if reward.asks_in_batches:
        raise RecipeError(
            "`reward.judge.batch`: a batch may take a day, and a client of the service waits for its scores",
            where=str(path),
            fix="set it to false",
        )
    return reward
