"""`vtune eval`."""

import re
from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson, Overrides, Protection, with_protection


def evaluate(
    suite: Annotated[str, typer.Option("--suite", help="Name of a shipped suite, or a path.")],
    model: Annotated[str, typer.Option("--model", help="Folder of weights, or hub name.")],
    overrides: Overrides = None,
    sandbox: Protection = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder; runs/eval-<suite>-<model> if not given.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many samples.")] = None,
    vllm: Annotated[bool, typer.Option("--vllm", help="Draw with vLLM; needs vtune[vllm].")] = False,
    as_json: AsJson = False,
) -> None:
    """Roll a model out on a suite without an update, and score it."""
    from vtune.config import find, load_recipe
    from vtune.report.values import render_values
    from vtune.runs.eval import EvalSuite, run_eval

    from .output import show, stdout_for_the_result

    path = find(suite, "eval_suites")
    checked = load_recipe(path, EvalSuite, with_protection(overrides, sandbox))
    slug = re.sub(r"[^\w.-]+", "-", model).strip("-.")
    with stdout_for_the_result():
        folder = out or Path("runs") / f"eval-{path.stem}-{slug}"
        result = run_eval(checked, model, folder, limit=limit, kind="vllm" if vllm else "transformers")
    show(result, render_values, as_json=as_json)
