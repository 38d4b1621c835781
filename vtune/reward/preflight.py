"""Preflight of a run: do its judge and reward services respond, accept its key, and judge as it expects?"""

import asyncio
import io

from PIL import Image

from vtune.errors import RecipeError
from vtune.judge.budget import Budget
from vtune.judge.client import JudgeClient
from vtune.judge.endpoint import JudgeEndpoint
from vtune.judge.prompts import Prompt
from vtune.reward.recipe import RewardRecipe
from vtune.reward.servers import Refused, Servers
from vtune.reward.wire import packed_json, request_of, settings_of
from vtune.schema.message import Picture

HELLO = Prompt("You are asked whether you can be reached.", "Reply with the digit 1.")
"""Our own text; any reply will do."""
SIDE = 56
"""Side in pixels of the picture that is sent along."""


def ping_judge(endpoint: JudgeEndpoint, *, pictures: bool, section: str = "judge") -> frozenset[str]:
    """Ask a judge one question in the same way as the run does; any reply will do.

    So a server that is down, a wrong key or model name, a model that does not accept pictures, and a
    `max_tokens` too small for a reply are found before anything is paid for.

    Args:
        endpoint: The judge.
        pictures: Whether it will be shown any.
        section: The recipe key that configures it.

    Returns:
        The parameters that it rejects and is asked without (`JudgeClient.refused`).

    Raises:
        ServiceError: If there is no reply.
        RecipeError: If its key is not set.
    """
    return asyncio.run(_ping_judge(endpoint, pictures, section))


async def _ping_judge(endpoint: JudgeEndpoint, pictures: bool, section: str) -> frozenset[str]:
    out = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE), "grey").save(out, "PNG")
    # Someone waiting for a run to start should not sit through every retry; no budget counts this question.
    brief = endpoint.model_copy(update={"retries": min(1, endpoint.retries), "budget": Budget()})
    async with JudgeClient(brief, section=section) as client:
        await client.ask(HELLO, [Picture(out.getvalue())] if pictures else [])
        return client.refused


def ping_services(recipe: RewardRecipe) -> list[str]:
    """Why the recipe's reward services cannot be used now, one line for each such service.

    Args:
        recipe: Its services get a request with its settings but nothing to score.

    Raises:
        RecipeError: If a service refuses (the token is wrong, or it has another judge), or no token is set.
    """
    return [] if recipe.service is None else asyncio.run(_ping_services(recipe, Servers(recipe.service)))


async def _ping_services(recipe: RewardRecipe, servers: Servers) -> list[str]:
    async with servers:
        try:
            return await servers.ping(request_of(packed_json(settings_of(recipe)), []))
        except Refused as error:
            raise RecipeError(str(error), fix=_remedy(recipe, error)) from None


def _remedy(recipe: RewardRecipe, error: Refused) -> str:
    """What to do if a service refuses: its own advice, except for the token, which the recipe names."""
    if error.token:
        sent = "" if recipe.service and recipe.service.token_env else " (none is sent)"
        return f"set reward.service.token_env to the variable that holds its token{sent}"
    return error.fix or "start it with the --recipe of the run, and the vtune of the run"
