"""Blocked hosts: how a recipe lists them, and which addresses belong to them."""

import functools
import ipaddress
from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator
from yarl import URL

NO_HOST_HAS = frozenset("*/\\@?#[] \t\n")


@functools.cache  # each hit of a search is compared with all hosts of the recipe
def host_of(written: str) -> str:
    """The host meant by `example.org`, by a URL, or by `.example.org` or `*.example.org`.

    Raises:
        ValueError: If it contains none.
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
"""A host in a recipe, blocked with all its subdomains. Of a URL only the host counts, whatever the path."""


def url_of(written: str) -> URL:
    """An address, parsed.

    Raises:
        ValueError: If it is malformed.
    """
    try:
        return URL(written)
    except IndexError:  # yarl's parser on brackets before a host that is missing: `http://][é@/`
        raise ValueError(f"not a URL: {written!r}") from None


def host_in(url: str) -> str:
    """The host of an address, as a connection would look it up; empty if it has none."""
    try:
        return (url_of(url).raw_host or "").rstrip(".").lower()
    except ValueError:
        return ""


def is_blocked(url: str, blocked: Sequence[str]) -> bool:
    """Whether an address is on one of these hosts or their subdomains; malformed ones count as blocked."""
    host = host_in(url)
    names = map(host_of, blocked)
    return not host or any(host == name or host.endswith(f".{name}") for name in names)
