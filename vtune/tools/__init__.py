"""What a model may call."""

RUNNABLE = ("python",)
"""Tools of `vtune.schema.sample.TOOLS` that a rollout can run."""
