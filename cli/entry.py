"""Where the `vtune` command begins, before the quarter of a second that its imports take."""

from .early import leave_at_sigint


def start() -> None:
    """Run the command."""
    leave_at_sigint()
    from .main import start as run

    run()
