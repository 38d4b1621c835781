"""Before a run: do its reward services live, take its token, and judge as it wants?"""

import asyncio

from vtune.errors import RecipeError
from vtune.reward.recipe import RewardRecipe
from vtune.reward.servers import Refused, Servers
from vtune.reward.wire import packed_json, request_of, settings_of


def greet(recipe: RewardRecipe) -> list[str]:
    """Why reward services of a recipe cannot be used now, one line for each of those.

    Args:
        recipe: Its services are asked to score nothing by its settings.

    Raises:
        RecipeError: If one refuses: the token is wrong, or it has another judge; or no token is set.
    """
    return [] if recipe.service is None else asyncio.run(_greet(recipe, Servers(recipe.service)))


async def _greet(recipe: RewardRecipe, servers: Servers) -> list[str]:
    async with servers:
        try:
            return await servers.greet(request_of(packed_json(settings_of(recipe)), []))
        except Refused as error:
            sent = "" if recipe.service and recipe.service.token_env else " (none is sent)"
            raise RecipeError(
                str(error),
                fix=f"let reward.service.token_env name the variable that holds its token{sent}; where "
                "it has another judge, start it with the --recipe of the run",
            ) from None
