"""`vtune faithfulness`, also called `vtune judge-faithfulness`: audit the looks behind answers."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import AsJson

if TYPE_CHECKING:
    from vtune.runs.audit.counterfactual import RerunWith

Samples = Annotated[
    list[Path] | None,
    typer.Option(
        "--data", help="Samples that the trajectories answer, in the format of their suite; repeatable."
    ),
]
JudgeUrls = Annotated[
    list[str] | None,
    typer.Option("--judge-url", help="OpenAI-compatible endpoint; one for all judges, or one each."),
]
JudgeModels = Annotated[
    list[str] | None,
    typer.Option("--judge-model", help="Name of the judge's model; several judge by majority."),
]
Looks = Annotated[
    str,
    typer.Option(
        "--looks",
        metavar="BY",
        help="Who judges what a call shows: auto (the recipe's judges), boxes, model, passages, a "
        "judge of your own, or both (boxes and model, to see how far the model can be trusted).",
    ),
]
EveryCall = Annotated[
    bool,
    typer.Option("--every-call", help="Also ask the model about calls after the first useful one."),
]
Exchanges = Annotated[
    str | None,
    typer.Option(
        "--counterfactual",
        metavar="EXCHANGES",
        help="Generate right answers again with other pictures in place of what the calls showed: "
        "black, random, other, inpaint, recolor, glyph, withheld, and shown to measure chance; "
        "separated by commas.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option("--model", help="With --counterfactual: the model that generated the trajectories."),
]
AgentName = Annotated[
    str | None,
    typer.Option(
        "--agent", help="With --counterfactual: the agent that generated them, if no run folder names it."
    ),
]
Vllm = Annotated[bool, typer.Option("--vllm", help="With --counterfactual: generate with vLLM.")]
Everything = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Also show a row per file, accuracy by number of calls, and what the calls were good for.",
    ),
]


def faithfulness(
    path: Annotated[Path, typer.Argument(help="Run folder, or a Parquet file of trajectories.")],
    data: Samples = None,
    judge_url: JudgeUrls = None,
    judge_model: JudgeModels = None,
    looks: Looks = "auto",
    every_call: EveryCall = False,
    counterfactual: Exchanges = None,
    model: Model = None,
    agent: AgentName = None,
    vllm: Vllm = False,
    everything: Everything = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Every row as CSV.")] = False,
    as_latex: Annotated[bool, typer.Option("--latex", help="The table for a paper (booktabs).")] = False,
    as_json: AsJson = False,
) -> None:
    """Audit what the tool calls of stored trajectories showed, and whether answers depend on it."""
    from vtune.errors import RecipeError
    from vtune.report.faithfulness import faithfulness_csv, faithfulness_latex, render_faithfulness
    from vtune.runs.audit.faithfulness import run_faithfulness

    from .output import show, show_text, stdout_for_the_result

    if bool(judge_url) != bool(judge_model):
        raise RecipeError("a judge needs both --judge-url and --judge-model", fix="give both, or neither")
    if as_json + as_csv + as_latex > 1:
        raise typer.BadParameter("choose one of --json, --csv and --latex", param_hint="--csv")
    if everything and (as_csv or as_latex):
        raise typer.BadParameter("--csv has every row, --latex those of the short table", param_hint="--all")
    rerun = _rerun(counterfactual, model, agent, vllm=vllm)
    with stdout_for_the_result():
        result, failed = run_faithfulness(
            path,
            tuple(data or ()),
            judge_urls=tuple(judge_url or ()),
            judge_models=tuple(judge_model or ()),
            looks=looks,
            every=every_call,
            rerun=rerun,
        )
    if as_csv or as_latex:
        show_text((faithfulness_csv if as_csv else faithfulness_latex)(result))
    else:
        show(result, partial(render_faithfulness, everything=everything), as_json=as_json)
    if failed is not None:
        raise failed


def _rerun(exchanges: str | None, model: str | None, agent: str | None, *, vllm: bool) -> "RerunWith | None":
    """The settings for regenerating answers; None if nothing is regenerated.

    Raises:
        RecipeError: If some of the options are missing.
    """
    from vtune.errors import RecipeError
    from vtune.runs.audit.counterfactual import RerunWith, asked_exchanges

    if exchanges is None:
        given = {"--model": model is not None, "--agent": agent is not None, "--vllm": vllm}
        if any(given.values()):
            raise RecipeError(
                f"{next(name for name in given if given[name])} needs --counterfactual",
                fix="name exchanges, such as --counterfactual black,shown, or leave it out",
            )
        return None
    asked_exchanges(exchanges)  # report a misspelt one before asking for anything else
    if model is None:
        raise RecipeError(
            "--counterfactual needs --model",
            fix="name the model that generated the trajectories with --model",
        )
    return RerunWith(exchanges=exchanges, model=model, agent=agent, vllm=vllm)
