"""What a service answers to a request that fails once `Guard` has let it in."""

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from vtune.errors import DataError, VtuneError
from vtune.reward.body import Busy, TooMuch
from vtune.reward.guard import Packed


def error_row(error: VtuneError) -> dict[str, str]:
    """An error as JSON."""
    return {"what": error.what, "where": error.where, "fix": error.fix}


def error_body(error: VtuneError) -> Mapping[str, Any]:
    """The body of a refusal in the form of our own services."""
    return {"error": error_row(error)}


def answer_errors(
    app: FastAPI,
    *,
    asked: str,
    status_of: Callable[[VtuneError], int],
    body_of: Callable[[VtuneError], Mapping[str, Any]] = error_body,
) -> None:
    """Make an application answer every error with its reason and remedy.

    Args:
        app: The application.
        asked: The requests that it answers, e.g. `POST /score or GET /health`.
        status_of: Gives the HTTP status of an error.
        body_of: Gives the body, for clients that expect another form.
    """

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        what = f"{request.method} {request.url.path} is not answered here: {error.detail}"
        return Packed(body_of(DataError(what, fix=f"ask {asked}")), error.status_code, error.headers)

    @app.exception_handler(VtuneError)
    async def refused(_: Request, error: VtuneError) -> Response:
        # The rest of the body is not read, so the connection cannot be reused.
        headers = {"connection": "close"} if isinstance(error, Busy | TooMuch) else None
        return Packed(body_of(error), status_of(error), headers)
