"""The sandbox that a recipe describes."""

from vtune.report.progress import say
from vtune.sandbox import Limits, Sandbox
from vtune.sandbox.recipe import SandboxRecipe


def sandbox_of(recipe: SandboxRecipe, *, sessions: int, runs_code: bool = True) -> Sandbox:
    """The sandbox of a run.

    Args:
        recipe: As the run's recipe says.
        sessions: How many may be wanted at the same time; once they are, as many are kept ready.
        runs_code: Whether any will be wanted; else nothing is started.
    """
    limits = Limits(seconds=recipe.seconds, memory_mb=recipe.memory_mb)
    return Sandbox(limits, isolation=recipe.isolation, decode=recipe.decode, warm=sessions, at_once=runs_code)


def say_tier(sandbox: Sandbox) -> None:
    """Tell the user what protects the machine, and what does not."""
    facts = sandbox.info()
    layers = [name for name, on in facts["layers"].items() if on]
    say(f"sandbox: {facts['tier']} ({', '.join(layers) or 'no layer at all'})")
