"""`vtune export`: export a checkpoint or an evaluation."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import AsJson

if TYPE_CHECKING:
    from rich.console import RenderableType

DTYPES = ("float32", "bfloat16")
FORMATS = ("vlmevalkit", "lmms-eval", "inspect", "scripted")
COMPARED = {
    "transformers": "largest difference from the source, nats",
    "vllm": "largest difference of vLLM, nats",
}
"""Labels in the table for the checks of `vtune.runs.train.export.run_export`, both on log-probabilities."""


def export(
    source: Annotated[
        Path,
        typer.Argument(
            help="Checkpoint, run folder, or folder of peft adapters; with --as, a finished evaluation."
        ),
    ],
    out: Annotated[Path, typer.Argument(help="The new folder.")],
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="float32 or bfloat16 (default: the checkpoint's).")
    ] = None,
    results_as: Annotated[
        str | None,
        typer.Option(
            "--as", help="Results of an evaluation as files of vlmevalkit, lmms-eval, inspect, or scripted."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a checkpoint as a plain Hugging Face folder, or an evaluation as another harness would."""
    if results_as is not None:
        _evaluation(source, out, results_as, dtype=dtype, as_json=as_json)
        return
    if dtype is not None and dtype not in DTYPES:
        raise typer.BadParameter(f"{dtype!r} is not one of {', '.join(DTYPES)}", param_hint="--dtype")
    from vtune.runs.agent.engines import vllm_on
    from vtune.runs.train.export import run_export

    from .output import show, stdout_for_the_result

    with stdout_for_the_result():
        result = run_export(source, out, dtype=dtype, vllm=vllm_on)  # type: ignore[arg-type]
    show(result, _table, as_json=as_json)


def _table(result: Mapping[str, Any]) -> "RenderableType":
    from vtune.report.values import render_values

    return render_values({COMPARED.get(name, name): value for name, value in result.items()})


def _evaluation(source: Path, out: Path, name: str, *, dtype: str | None, as_json: bool) -> None:
    if name not in FORMATS:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(FORMATS)}", param_hint="--as")
    if dtype is not None:
        raise typer.BadParameter("results have no weights", param_hint="--dtype")
    from vtune.report.values import render_values
    from vtune.runs.evaluate.exports.table import run_export_evaluation

    from .output import show

    show(run_export_evaluation(source, out, name), render_values, as_json=as_json)
