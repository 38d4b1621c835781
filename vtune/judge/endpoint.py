"""The recipe keys for a judging model's endpoint, and how it is asked."""

import re
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from vtune.judge.budget import Budget, Prices
from vtune.judge.key import check_no_login
from vtune.sections import Strict

POLL_S = 30.0
"""Default seconds between polls of a batch; ours."""


def _has_no_limit(budget: Budget) -> bool:
    return budget == Budget()


class JudgeEndpoint(Strict):
    """The endpoint of a judge, and how it is asked."""

    base_url: str
    """E.g. http://localhost:18901/v1."""
    model: str
    temperature: float = Field(ge=0)
    """Not sent to a model that refuses it (GPT-5 and other reasoning models)."""
    max_tokens: int = Field(gt=0)
    """Per reply, including thoughts; sent as `max_completion_tokens` to models that require that name."""
    concurrency: int = Field(gt=0)
    """Concurrent requests."""
    retries: int = Field(ge=0)
    """Retries after a failed connection, a timeout, a status 408, 409, 429 or 5xx, or a body of status 200
    that is not a completion."""
    timeout_s: float = Field(gt=0)
    """Per attempt, in seconds."""
    api_key_env: str | None
    """Name of the environment variable that holds the key; null if the endpoint needs none."""
    prices: Annotated[Prices | None, Field(exclude_if=lambda prices: prices is None)] = None
    """Null: no cost is reported, and a limit in money is not allowed."""
    budget: Annotated[Budget, Field(exclude_if=_has_no_limit)] = Budget()
    """A question that might exceed it is not asked and stays unscored."""

    @field_validator("base_url")
    @classmethod
    def _can_be_asked(cls, url: str) -> str:
        check_no_login(url, "api_key_env")
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            (parts.hostname or "").encode("idna")  # as address resolution does
        except ValueError:  # including UnicodeError
            usable = False
        if not usable or not re.fullmatch("[!-~]+", url):
            raise ValueError(f"{url!r} is not a usable URL: write http://HOST:PORT/v1")
        return url

    @model_validator(mode="after")
    def _money_has_prices(self) -> Self:
        if self.budget.money is not None and self.prices is None:
            raise ValueError("`budget.money` needs `prices`")
        return self


class BatchedEndpoint(JudgeEndpoint):
    """The same, for questions that need not be answered at once."""

    batch: Annotated[bool, Field(exclude_if=lambda batch: not batch)] = False
    """Whether questions are sent in batches (`/v1/batches`)."""
    batch_poll_s: Annotated[float, Field(gt=0, exclude_if=lambda seconds: seconds == POLL_S)] = POLL_S
    """Seconds between polls of a batch."""
