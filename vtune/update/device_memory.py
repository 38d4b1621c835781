"""Turns out-of-memory failures of a GPU during an update into an error with a remedy."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from vtune.errors import RunFailed
from vtune.update.recipe import Update


@contextmanager
def within_memory(update: Update) -> Iterator[None]:
    """Wrap an update: if a GPU runs out of memory, the error names the settings that need less.

    Raises:
        RunFailed: If a GPU runs out of memory.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        less = f"update.micro_tokens below {update.micro_tokens}"
        if not update.activation_checkpointing:
            less += ", or update.activation_checkpointing: true"
        raise RunFailed(
            f"a GPU ran out of memory in an update: {str(error).partition('. GPU')[0]}",
            fix=f"continue with --resume and less in memory at a time ({less}), or start a run with what "
            "`--dry-run` proposes for this machine",
        ) from error
