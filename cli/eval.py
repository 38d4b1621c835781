"""`vtune eval`: score a model on a suite."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .ending import RESUMABLE
from .options import AsJson, Overrides, Protection, Resume, with_protection

if TYPE_CHECKING:
    from vtune.runs.agent.kinds import Kind
    from vtune.runs.evaluate.groups import Asked
    from vtune.runs.evaluate.suite import EvalSuite


Record = Annotated[
    Path | None,
    typer.Option("--record", help="File to record the web's answers in (default: one in the run folder)."),
]
Replay = Annotated[
    list[Path] | None,
    typer.Option(
        "--replay", help="File written by --record to answer from, instead of asking the web; repeatable."
    ),
]
Data = Annotated[
    list[Path] | None,
    typer.Option(
        "--data", help="Data to evaluate on, in the suite's format, instead of the suite's own; repeatable."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Output folder (default: runs/eval-<suite>-<model>); each of several suites gets a "
        "folder in it.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        help="Explain why the result differs from that of another finished evaluation (its folder, or "
        "published:SUITE/ROW); with --out alone, for the one already finished there.",
    ),
]


AgentName = Annotated[
    str | None,
    typer.Option("--agent", help="Agent that answers: a shipped one, or a path (default: the suite's)."),
]
Protocol = Annotated[
    str | None,
    typer.Option(
        "--protocol", help="Protocol that sets prompt, parser and aggregation (default: the suite's)."
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Check data, agent, protocol and the models that grade; generate and write nothing."
    ),
]
Listed = Annotated[
    bool, typer.Option("--list", help="Show the suites that ship, and whether their data are here.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be evaluated, and how: the options shared by plan and run."""

    suites: str
    """Shipped suites or groups, or paths, separated by commas."""
    model: str
    words: tuple[str, ...]
    """`key.path=value`, applied to every suite."""
    data: str | None
    """Data to use instead of a suite's own, as the value of its key; None for its own."""
    against: str | None
    """What to compare the result with; None for nothing."""
    limit: int | None
    """Samples at most; None for all."""
    vllm: bool
    """Whether to generate with vLLM."""

    @property
    def kind(self) -> "Kind":
        """The kind of engine."""
        return "vllm" if self.vllm else "transformers"

    def named(self) -> "Asked":
        """The requested suites.

        Raises:
            typer.BadParameter: If there are several, and an option requires a single one.
        """
        from vtune.runs.evaluate.groups import asked

        named = asked(self.suites)
        for option, given in (("--data", self.data), ("--against", self.against)):
            if given is not None and not named.single:
                raise typer.BadParameter("only with a single suite", param_hint=option)
        return named

    def load(self, path: Path) -> "EvalSuite":
        """Load and check a suite with these options."""
        from vtune.config import load_recipe
        from vtune.runs.evaluate.against import check_against
        from vtune.runs.evaluate.suite import EvalSuite

        words = self.words if self.data is None else [*self.words, f"data={self.data}"]
        suite = load_recipe(path, EvalSuite, words)
        if self.against is not None:
            check_against(self.against, suite, path)
        return suite

    def own_data(self, path: Path) -> bool:
        """Whether the data is not that of a shipped suite: it may then have fewer samples."""
        from vtune.config import shipped

        return self.data is not None or path not in shipped("eval_suites").values()

    def plan(self, suite: "EvalSuite", path: Path) -> dict[str, Any]:
        """What can be known about a suite before anything is generated."""
        from vtune.runs.evaluate.evaluation import plan_eval

        own = self.own_data(path)
        return plan_eval(suite, self.model, limit=self.limit, kind=self.kind, own_data=own)


def evaluate(
    suite: Annotated[
        str | None,
        typer.Option("--suite", help="Shipped suites or groups, or paths; with commas between them."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", help="Folder of weights or of a run, hub name, openai:URL#model, or scripted:FILE."
        ),
    ] = None,
    agent: AgentName = None,
    protocol: Protocol = None,
    data: Data = None,
    overrides: Overrides = None,
    sandbox: Protection = None,
    out: Out = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most this many samples.")] = None,
    record: Record = None,
    replay: Replay = None,
    against: Against = None,
    resume: Resume = False,
    dry_run: DryRun = False,
    vllm: Annotated[bool, typer.Option("--vllm", help="Generate with vLLM; needs vtune[vllm].")] = False,
    listed: Listed = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model on suites: generate rollouts and score them."""
    if listed:
        _list(as_json=as_json)
        return
    unnamed = suite is None and model is None
    if against is not None and out is not None and unnamed and not resume:
        _explain(out, against, as_json=as_json)
        return
    if resume and out is not None and unnamed:
        suite, model, limit, vllm = _begun(out, limit, vllm=vllm)
    if suite is None or model is None:
        raise typer.BadParameter(
            "an evaluation needs --suite and --model (--list shows the suites); --resume with --out alone "
            "continues the evaluation in that folder"
        )
    chosen = [
        f"{key}={value}" for key, value in (("agent", agent), ("protocol", protocol)) if value is not None
    ]
    wanted = Wanted(
        suites=suite,
        model=model,
        words=(*chosen, *_of_the_web(record, replay), *with_protection(overrides, sandbox)),
        data=json.dumps([str(entry) for entry in data]) if data else None,
        against=against,
        limit=limit,
        vllm=vllm,
    )
    if dry_run:
        _plan(wanted, as_json=as_json)
        return
    _run(wanted, out, resume=resume, as_json=as_json)


def _of_the_web(record: Path | None, replay: list[Path] | None) -> list[str]:
    """The suite overrides for `--record` and `--replay`."""
    if record is not None and replay:
        raise typer.BadParameter(
            "--replay does not ask the web: there is nothing to record", param_hint="--record"
        )
    if record is not None:
        return [f"tools.web.record={json.dumps(str(record))}"]
    return [f"tools.web.replay={json.dumps([str(path) for path in replay])}"] if replay else []


def _plan(wanted: Wanted, *, as_json: bool) -> None:
    """Do what `--dry-run` asks for."""
    from vtune.report.values import render_values
    from vtune.runs.evaluate.groups import plan_several
    from vtune.runs.versions import warn_of_versions

    from .output import show, stdout_for_the_result

    warn_of_versions()
    named = wanted.named()

    def check(name: str, suite: "EvalSuite") -> dict[str, Any]:
        return wanted.plan(suite, _path(named, name))

    with stdout_for_the_result():
        if named.single:
            found = check(named.suites[0].name, wanted.load(named.suites[0].path))
        else:
            found = plan_several(named, wanted.load, check)
    show(found, render_values, as_json=as_json)


def _path(named: "Asked", name: str) -> Path:
    """The path of one of the requested suites."""
    (path,) = (one.path for one in named.suites if one.name == name)
    return path


def _run(wanted: Wanted, out: Path | None, *, resume: bool, as_json: bool) -> None:
    """Evaluate, and show the result."""
    from vtune.report.progress import say
    from vtune.runs.evaluate.against import run_against
    from vtune.runs.evaluate.evaluation import run_eval
    from vtune.runs.evaluate.groups import check_failed, run_several
    from vtune.runs.evaluate.identity import check_new
    from vtune.runs.evaluate.suite import begun
    from vtune.runs.versions import warn_of_versions

    from .output import show, stdout_for_the_result

    warn_of_versions()
    named = wanted.named()
    folder = RESUMABLE.folder = out or _folder(named, wanted.model)

    def check(name: str, suite: "EvalSuite") -> None:
        where = folder / name
        if not resume:
            check_new(where)
        if not (where / "results.json").exists():
            wanted.plan(suite, _path(named, name))

    def run(name: str, suite: "EvalSuite") -> dict[str, Any]:
        where = folder if named.single else folder / name
        again = resume and (named.single or begun(where))
        own, kind = wanted.own_data(_path(named, name)), wanted.kind
        say(f"output folder: {where}")  # torch and the model take seconds to load
        # Several suites are all checked first, which prints the warnings.
        limit, warned = wanted.limit, not named.single
        return run_eval(
            suite, wanted.model, where, limit=limit, kind=kind, resume=again, own_data=own, warned=warned
        )

    with stdout_for_the_result():
        if named.single:
            result = run(named.suites[0].name, wanted.load(named.suites[0].path))
            if wanted.against is not None:
                result = result | {"against": run_against(folder, wanted.against)}
        else:
            result = run_several(named, wanted.load, check, run)

    show(result, partial(_rows, folder, single=named.single), as_json=as_json)
    if not named.single:
        check_failed(result)


def _folder(named: "Asked", model: str) -> Path:
    """Default folder for results."""
    slug = re.sub(r"[^\w.-]+", "-", model).strip("-.")
    title = "-".join([*named.groups, *(one.name for one in named.suites if one.group is None)])
    return Path("runs") / f"eval-{title}-{slug}"


def _rows(folder: Path, shown: Mapping[str, Any], *, single: bool) -> Any:
    """The results of one or several suites as tables."""
    from rich.console import Group

    from vtune.report.against import render_against

    every = {folder: shown} if single else _below(folder, shown["evaluations"])
    parts = [_rendered(every, shown.get("groups", {}), single=single)]
    return Group(*parts, *([render_against(shown["against"])] if "against" in shown else []))


def _below(folder: Path, evaluations: Mapping[str, Any]) -> dict[Path, Mapping[str, Any]]:
    return {folder / name: result for name, result in evaluations.items()}


def _rendered(results: Mapping[Path, Mapping[str, Any]], groups: Mapping[str, Any], *, single: bool) -> Any:
    from rich.console import Group

    from vtune.files.terminal import one_line
    from vtune.report.evaluation import render_evaluations, render_several
    from vtune.report.suites import render_groups

    evaluations = [
        {"name": one_line(folder.name), "path": one_line(str(folder)), **result}
        for folder, result in results.items()
    ]
    shown = render_evaluations(evaluations) if single else render_several(evaluations)
    return Group(shown, render_groups(groups))


def _explain(folder: Path, against: str, *, as_json: bool) -> None:
    from vtune.report.against import render_against
    from vtune.runs.evaluate.against import run_against

    from .output import show

    show(run_against(folder, against), render_against, as_json=as_json)


def _begun(folder: Path, limit: int | None, *, vllm: bool) -> tuple[str, str, int | None, bool]:
    """Suite, model, limit and use of vLLM of the evaluation in a folder; given options take precedence."""
    from vtune.runs.evaluate.identity import asked_before

    before = asked_before(folder)
    return (
        str(before.suite),
        before.model,
        before.limit if limit is None else limit,
        vllm or before.kind == "vllm",
    )


def _list(*, as_json: bool) -> None:
    from vtune.report.suites import render_suites
    from vtune.runs.evaluate.listed import list_suites

    from .output import show

    show(list_suites(), render_suites, as_json=as_json)
