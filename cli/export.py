"""`vtune export`."""

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson

DTYPES = ("float32", "bfloat16")


def export(
    checkpoint: Annotated[Path, typer.Argument(help="Checkpoint, run folder, or folder of peft adapters.")],
    out: Annotated[Path, typer.Argument(help="The new folder.")],
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="float32 or bfloat16; that of the checkpoint if not given.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a checkpoint as a plain Hugging Face folder, adapters merged, and check it."""
    if dtype is not None and dtype not in DTYPES:
        raise typer.BadParameter(f"{dtype!r} is not one of {', '.join(DTYPES)}", param_hint="--dtype")
    from vtune.report.values import render_values
    from vtune.runs.agent.engines import vllm_on
    from vtune.runs.train.export import run_export

    from .output import show, stdout_for_the_result

    with stdout_for_the_result():
        result = run_export(checkpoint, out, dtype=dtype, vllm=vllm_on)  # type: ignore[arg-type]
    show(result, render_values, as_json=as_json)
