"""Names of models whose weights are elsewhere, or that have no weights."""

PREFIX = "openai:"
"""Prefix of `openai:URL#model`."""

SCRIPTED = "scripted:"
"""Prefix of `scripted:FILE`."""


def is_served(name: str) -> bool:
    """Whether a model's name means an endpoint."""
    return name.startswith(PREFIX)


def is_scripted(name: str) -> bool:
    """Whether a model's name means a file of replies."""
    return name.startswith(SCRIPTED)
