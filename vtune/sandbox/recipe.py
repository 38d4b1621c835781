"""The `sandbox` section of a recipe."""

from pydantic import Field

from vtune.sandbox import Decode, Isolation
from vtune.sections import Strict


class SandboxRecipe(Strict):
    """How the code of trajectories is run."""

    isolation: Isolation
    """`auto` uses the best tier that the machine offers."""
    decode: Decode
    """Where the pictures that code returns are decoded."""
    seconds: float = Field(gt=0)
    """Wall-clock limit per call."""
    memory_mb: int = Field(gt=0)
    """Limit per session."""
