"""Opens the sandbox that a recipe describes."""

from collections.abc import Iterable
from pathlib import Path

from vtune.report.progress import say
from vtune.sandbox import Limits, Sandbox
from vtune.sandbox.recipe import SandboxRecipe
from vtune.schema.parquet import scan_columns
from vtune.schema.sample import Sample
from vtune.tools.python import NAME as PYTHON


def sandbox_of(recipe: SandboxRecipe, *, sessions: int, runs_code: bool = True) -> Sandbox:
    """The sandbox of a run.

    Args:
        recipe: The section of the run's recipe.
        sessions: How many may be needed at the same time; once they have been, that many are kept ready.
        runs_code: Whether any will be needed; if not, nothing is started.
    """
    limits = Limits(seconds=recipe.seconds, memory_mb=recipe.memory_mb)
    return Sandbox(limits, isolation=recipe.isolation, decode=recipe.decode, warm=sessions, at_once=runs_code)


def needs_sandbox(sample: Sample) -> bool:
    """Whether code may run: the sample offers `python`, or has an environment."""
    return PYTHON in sample.tools or sample.environment != ""


def may_run_code(data: Iterable[str]) -> bool:
    """Whether any row of data files needs a sandbox (see `needs_sandbox`); only two columns are read.

    Raises:
        DataError: If a file is missing or damaged, or does not hold samples.
    """
    batches = (batch for name in data for batch in scan_columns(Path(name), ["tools"], late=["environment"]))
    return any(
        PYTHON in batch["tools"].flatten().unique().to_pylist()
        or ("environment" in batch.schema.names and any(batch["environment"].unique().to_pylist()))
        for batch in batches
    )


def say_tier(sandbox: Sandbox) -> None:
    """Tell the user what protects the machine, and what does not."""
    facts = sandbox.info()
    layers = [name for name, on in facts["layers"].items() if on]
    say(f"sandbox: {facts['tier']} ({', '.join(layers) or 'no layer at all'})")
