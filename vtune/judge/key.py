"""API keys and tokens, from the environment."""

import os
import re

from vtune.errors import RecipeError


def check_no_login(url: str, key: str) -> None:
    """Check that a URL holds no user and no password, which are not repeated.

    Args:
        url: Any text.
        key: The recipe key that names the variable of the key or token.

    Raises:
        ValueError: If it does.
    """
    if "@" in re.split("[/?#]", url.partition("//")[2] or url)[0]:
        raise ValueError(
            "the URL holds a user or a password, and run folders would show it: leave them out; "
            f"the key comes from the variable that `{key}` names"
        )


def secret(variable: str | None, what: str, *, no_key: str = "") -> str | None:
    """The value of an environment variable; None if none is named.

    Args:
        variable: Its name.
        what: What it holds, in messages, e.g. "the judge's key".
        no_key: What else to do if it is not set.

    Raises:
        RecipeError: If it is not set, or not a valid header value.
    """
    if variable is None:
        return None
    if variable not in os.environ:
        raise RecipeError(
            f"{what} is not set: no environment variable {variable}", fix=f"export {variable}=…{no_key}"
        )
    value = os.environ[variable]
    if not value:
        raise RecipeError(
            f"{what} is not set: the environment variable {variable} is empty",
            fix=f"export {variable}=…{no_key}",
        )
    if not re.fullmatch("[!-~]+", value):
        raise RecipeError(
            f"{what} in the environment variable {variable} holds a space, a line break or a character that "
            "is not ASCII",
            fix=f'export {variable}="$(tr -d "[:space:]" < FILE)" where FILE ends its line',
        )
    return value
