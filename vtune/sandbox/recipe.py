"""The `sandbox` section of a recipe."""

from pydantic import Field

from vtune.config import Strict
from vtune.sandbox import Decode, Isolation


class SandboxRecipe(Strict):
    """How the code of trajectories is run."""

    isolation: Isolation
    """`auto` uses the best tier that the machine offers."""
    decode: Decode
    """Who decodes the pictures that code returns."""
    seconds: float = Field(gt=0)
    """Wall-clock limit of one call."""
    memory_mb: int = Field(gt=0)
    """Limit of one session."""
