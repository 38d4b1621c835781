"""`vtune eval`."""

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson, Overrides, Protection, Resume, with_protection


def evaluate(
    suite: Annotated[str, typer.Option("--suite", help="Name of a shipped suite, or a path.")],
    model: Annotated[str, typer.Option("--model", help="Folder of weights or of a run, or hub name.")],
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data", help="What to evaluate on, in the suite's format, in place of its own; repeatable."
        ),
    ] = None,
    overrides: Overrides = None,
    sandbox: Protection = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder; runs/eval-<suite>-<model> if not given.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many samples.")] = None,
    resume: Resume = False,
    vllm: Annotated[bool, typer.Option("--vllm", help="Draw with vLLM; needs vtune[vllm].")] = False,
    as_json: AsJson = False,
) -> None:
    """Roll a model out on a suite without an update, and score it."""
    from vtune.config import find, load_recipe
    from vtune.files.terminal import one_line
    from vtune.report.evaluation import render_evaluations
    from vtune.runs.agent.engines import Kind
    from vtune.runs.evaluate.evaluation import EvalSuite, run_eval

    from .output import show, stdout_for_the_result

    path = find(suite, "eval_suites")
    named = [f"data={json.dumps([str(entry) for entry in data])}"] if data else []
    checked = load_recipe(path, EvalSuite, with_protection([*(overrides or ()), *named], sandbox))
    slug = re.sub(r"[^\w.-]+", "-", model).strip("-.")
    with stdout_for_the_result():
        folder = out or Path("runs") / f"eval-{path.stem}-{slug}"
        kind: Kind = "vllm" if vllm else "transformers"
        result = run_eval(checked, model, folder, limit=limit, kind=kind, resume=resume)
    about = {"name": one_line(folder.name), "path": one_line(str(folder))}
    show(result, lambda shown: render_evaluations([{**about, **shown}]), as_json=as_json)
