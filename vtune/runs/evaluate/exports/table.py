"""`vtune export --as`: the formats, and what they have in common."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vtune.errors import RecipeError, nearest
from vtune.files.writing import atomic_folder, check_folder_output
from vtune.runs.evaluate.exports import inspect, lmms_eval, scripted, vlmevalkit
from vtune.runs.evaluate.finished import Finished, read_finished

EXPORTS: Mapping[str, Callable[[Finished, Path], dict[str, Any]]] = MappingProxyType(
    {
        "vlmevalkit": vlmevalkit.export,
        "lmms-eval": lmms_eval.export,
        "inspect": inspect.export,
        "scripted": scripted.export,
    }
)
"""Name -> function (evaluation, new folder) -> what was written."""


def run_export_evaluation(folder: Path, out: Path, name: str) -> dict[str, Any]:
    """Write a finished evaluation in another harness's format; `out` is complete or does not exist.

    A failed rollout has no reply: it is left out if the format has no place for it, and counted.

    Args:
        folder: Written by `vtune eval`; its data must not have been moved.
        out: The new folder.
        name: The format.

    Returns:
        `format`, `out`, `files` (their names), `rows`, `left_out` and `pictures`.

    Raises:
        RecipeError: If the format is unknown or cannot hold the evaluation, or `out` exists.
        DataError: If the folder holds no finished evaluation, or its data have changed.
        MissingExtra: If the format needs a package that is not installed.
    """
    if name not in EXPORTS:
        raise RecipeError(f"there is no format {name!r}", fix=nearest(name, EXPORTS))
    if out.exists():
        raise RecipeError(f"{out} exists", fix="choose another folder, or remove it")
    check_folder_output(out, inputs=[folder], option="OUT")
    finished = read_finished(folder)
    with atomic_folder(out, option="OUT") as partial:
        written = EXPORTS[name](finished, partial)
    return {"format": name, "out": str(out), **written}
