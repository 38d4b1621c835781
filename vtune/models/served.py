"""Names of models whose weights are elsewhere, behind an endpoint."""

PREFIX = "openai:"
"""Of `openai:URL#model`."""


def is_served(name: str) -> bool:
    """Whether a model's name means an endpoint."""
    return name.startswith(PREFIX)
