"""`vtune report --figure`: a sweep as a figure for a paper."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vtune.errors import DataError, RecipeError
from vtune.files.writing import check_file_output, write_atomically
from vtune.report.figure import KINDS, draw_sweep
from vtune.report.sweep import effects
from vtune.runs.sweep.curves import sweep_curves
from vtune.runs.sweep.table import is_sweep, sweep_table


def write_figure(paths: Sequence[Path], out: Path) -> dict[str, Any]:
    """Draw a sweep and write the figure.

    Args:
        paths: Only the sweep's folder.
        out: The file; its ending selects SVG, PDF or PNG.

    Returns:
        `figure`, `bytes`; `curves` and `variants` that were drawn; `unfinished`, as in the table.

    Raises:
        DataError: If none of its runs is finished, or a file in it is broken.
        RecipeError: If it is not a sweep's folder, or the file cannot be written.
    """
    kind = out.suffix.removeprefix(".").lower()
    if kind not in KINDS:
        raise RecipeError(
            f"{out} does not have the ending of a picture", fix=f"end it in .{', .'.join(KINDS)}"
        )
    path, *others = paths
    if not path.is_dir():
        raise DataError(f"there is no folder {path}", fix="give one that `vtune rl --sweep` wrote")
    if others or not is_sweep(path):
        raise RecipeError(
            "a figure shows one sweep",
            fix="give a folder that `vtune rl --sweep` wrote; `vtune view` draws the curves of runs",
        )
    check_file_output(out, option="--figure")
    table = sweep_table(path)
    curves = sweep_curves(path, table)
    if not curves and not any(effects(table)):
        raise DataError(
            f"nothing in {path} can be drawn: no run is finished yet",
            fix="`vtune rl --sweep … --resume` continues it",
        )
    content = draw_sweep(table, curves, kind)
    write_atomically(out, content, option="--figure")
    drawn = list(dict.fromkeys(name for of in curves.values() for name in of))
    return {
        "figure": str(out),
        "bytes": len(content),
        "curves": list(curves),
        "variants": drawn,
        "unfinished": table["unfinished"],
    }
