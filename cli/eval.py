"""`vtune eval`."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import AsJson, Overrides, Protection, Resume, with_protection

if TYPE_CHECKING:
    from vtune.runs.evaluate.suite import EvalSuite


def evaluate(
    suite: Annotated[
        str | None,
        typer.Option("--suite", help="Shipped suites or groups, or paths; with commas between them."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="Folder of weights or of a run, hub name, or openai:URL#model."),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", help="Who answers: a shipped agent, or a path; the suite's if not given."),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option("--protocol", help="Whose prompt, parser and aggregation; the suite's if not given."),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data", help="What to evaluate on, in the suite's format, in place of its own; repeatable."
        ),
    ] = None,
    overrides: Overrides = None,
    sandbox: Protection = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder; runs/eval-<suite>-<model> if not given. Several suites: one each below it."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most this many samples.")] = None,
    resume: Resume = False,
    vllm: Annotated[bool, typer.Option("--vllm", help="Draw with vLLM; needs vtune[vllm].")] = False,
    listed: Annotated[
        bool, typer.Option("--list", help="Show the suites that ship, and whether their data are here.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Roll a model out on suites without an update, and score it."""
    if listed:
        _list(as_json=as_json)
        return
    if suite is None or model is None:
        raise typer.BadParameter("an evaluation needs --suite and --model; --list shows the suites")
    chosen = [
        f"{key}={value}" for key, value in (("agent", agent), ("protocol", protocol)) if value is not None
    ]
    words = [*chosen, *with_protection(overrides, sandbox)]
    named = json.dumps([str(entry) for entry in data]) if data else None
    _run(suite, model, words, named, out, limit=limit, resume=resume, vllm=vllm, as_json=as_json)


def _run(
    suites: str,
    model: str,
    words: list[str],
    data: str | None,
    out: Path | None,
    *,
    limit: int | None,
    resume: bool,
    vllm: bool,
    as_json: bool,
) -> None:
    """Evaluate, and show what came of it."""
    from vtune.config import load_recipe
    from vtune.runs.agent.engines import Kind
    from vtune.runs.evaluate.evaluation import run_eval
    from vtune.runs.evaluate.groups import asked, run_several
    from vtune.runs.evaluate.suite import EvalSuite, begun

    from .output import show, stdout_for_the_result

    named = asked(suites)
    if data is not None:
        if not named.single:
            raise typer.BadParameter("it is of one suite", param_hint="--data")
        words = [*words, f"data={data}"]
    slug = re.sub(r"[^\w.-]+", "-", model).strip("-.")
    title = "-".join([*named.groups, *(one.name for one in named.suites if one.group is None)])
    folder = out or Path("runs") / f"eval-{title}-{slug}"
    kind: Kind = "vllm" if vllm else "transformers"

    def load(path: Path) -> "EvalSuite":
        return load_recipe(path, EvalSuite, words)

    def run(name: str, checked: "EvalSuite") -> dict[str, Any]:
        where = folder if named.single else folder / name
        again = resume and (named.single or begun(where))
        return run_eval(checked, model, where, limit=limit, kind=kind, resume=again)

    with stdout_for_the_result():
        if named.single:
            result = run(named.suites[0].name, load(named.suites[0].path))
        else:
            result = run_several(named, load, run)

    def rendered(shown: Mapping[str, Any]) -> Any:
        every = {folder: shown} if named.single else _below(folder, shown["evaluations"])
        return _rendered(every, shown.get("groups", {}))

    show(result, rendered, as_json=as_json)


def _below(folder: Path, evaluations: Mapping[str, Any]) -> dict[Path, Mapping[str, Any]]:
    return {folder / name: result for name, result in evaluations.items()}


def _rendered(results: Mapping[Path, Mapping[str, Any]], groups: Mapping[str, Any]) -> Any:
    from rich.console import Group

    from vtune.files.terminal import one_line
    from vtune.report.evaluation import render_evaluations
    from vtune.report.suites import render_groups

    evaluations = [
        {"name": one_line(folder.name), "path": one_line(str(folder)), **result}
        for folder, result in results.items()
    ]
    return Group(render_evaluations(evaluations), render_groups(groups))


def _list(*, as_json: bool) -> None:
    from vtune.report.suites import render_suites
    from vtune.runs.evaluate.listed import list_suites

    from .output import show

    show(list_suites(), render_suites, as_json=as_json)
