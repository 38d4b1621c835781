"""The results of a sweep for its page: the tables of a terminal, and differences to plot."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vtune.errors import DataError, RecipeError
from vtune.report.sweep import effects, plain_tables
from vtune.runs.sweep.table import is_sweep, sweep_table
from vtune.runs.view.opened import error_line


def sweeps_in(paths: Sequence[Path]) -> list[Path]:
    """The given folders that are sweeps, and the sweeps directly in the others."""
    found: dict[Path, None] = {}
    for path in paths:
        if is_sweep(path):
            found[path] = None
        elif path.is_dir():
            found |= dict.fromkeys(sorted(child for child in path.iterdir() if is_sweep(child)))
    return list(found)


def sweeps_of(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """What is shown of sweeps.

    Args:
        paths: Their folders.

    Returns:
        For each: `name`, `path`, `interval` (the method), `tables` (`vtune.report.sweep.plain_tables`),
        `effects` (from the same module), `unfinished`, and `problem`, why it cannot be read.
    """
    return [_sweep(path) for path in paths]


def _sweep(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"name": path.resolve().name, "path": str(path), "problem": ""}
    empty = {"interval": "", "tables": [], "effects": [], "unfinished": []}
    try:
        table = sweep_table(path)
    except (DataError, RecipeError) as error:
        return found | empty | {"problem": error_line(error)}
    return found | {
        "interval": table["interval"],
        "tables": list(plain_tables(table)),
        "effects": list(effects(table)),
        "unfinished": table["unfinished"],
    }
