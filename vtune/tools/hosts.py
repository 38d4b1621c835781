"""Blocked hosts: how a recipe lists them, and which addresses belong to them."""

import ipaddress
from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator
from yarl import URL

NO_HOST_HAS = frozenset("*/\\@?#[] \t\n")


def host_of(written: str) -> str:
    """The host that is meant: `example.org`, also where a URL, `.example.org` or `*.example.org` is written.

    Raises:
        ValueError: If there is none in it.
    """
    text = written.strip()
    try:
        return str(ipaddress.ip_address(text.strip("[]")))
    except ValueError:  # a name, or a URL
        host = host_in(text if "://" in text else f"http://{text.removeprefix('//')}")
    host = host.removeprefix("*").removeprefix(".")
    if not host or ".." in host or NO_HOST_HAS.intersection(host):
        raise ValueError(f"{written!r} names no host: write it as huggingface.co, which covers all below it")
    return host


BlockedHost = Annotated[str, AfterValidator(host_of)]
"""In a recipe: a host, blocked with all below it. Of a URL it is the host, whatever its path."""


def host_in(url: str) -> str:
    """The host of an address, as a connection would look it up; empty where there is none."""
    try:
        return (URL(url).raw_host or "").rstrip(".").lower()
    except ValueError:
        return ""


def is_blocked(url: str, blocked: Sequence[str]) -> bool:
    """Whether an address is of one of these hosts, or below one of them; a broken address is."""
    host = host_in(url)
    names = map(host_of, blocked)
    return not host or any(host == name or host.endswith(f".{name}") for name in names)
