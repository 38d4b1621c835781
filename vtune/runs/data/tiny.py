"""A tiny model written beside the data that it is made for."""

from collections.abc import Iterable
from pathlib import Path

from vtune.errors import RecipeError
from vtune.files.writing import check_folder_output
from vtune.report.progress import say


def check_tiny(folder: Path) -> None:
    """Check, before data are made, that a model can be written to a folder.

    Raises:
        RecipeError: If it already holds a model or cannot be written.
    """
    if (folder / "config.json").exists():
        raise RecipeError(f"{folder} holds a model", fix="remove it, or name another folder")
    check_folder_output(folder, option="--tiny")


def add_tiny(folder: Path, corpus: Iterable[str], *, seed: int) -> dict[str, object]:
    """Build a tiny model with random weights and a tokenizer trained on these texts; return its path."""
    from vtune.models.tiny import build_tiny

    say(f"building a tiny model in {folder}: tokenizer and random weights")
    build_tiny(folder, corpus, seed=seed)
    return {"path": str(folder)}
