"""The API key of an endpoint, from the environment."""

import os
import re

from vtune.errors import RecipeError


def read_key(name: str | None, who: str, *, no_key: str = "") -> str | None:
    """The key in an environment variable; None if the endpoint needs none.

    Args:
        name: Name of the variable.
        who: Name of the model in messages, e.g. "the judge".
        no_key: What else to do if it is not set.

    Raises:
        RecipeError: If it is not set, or not a valid header value.
    """
    if name is None:
        return None
    key = os.environ.get(name)
    if key is None:
        raise RecipeError(
            f"{who}'s key is not set: no environment variable {name}", fix=f"export {name}=…{no_key}"
        )
    if not re.fullmatch("[!-~]+", key):
        raise RecipeError(
            f"{who}'s key in the environment variable {name} is empty, or holds a space, a line break or a "
            "character that is not ASCII",
            fix=f'export {name}="$(tr -d "[:space:]" < FILE)" where the file of the key ends its line',
        )
    return key
