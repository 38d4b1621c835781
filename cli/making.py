"""`vtune data make`: make samples and traces."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from vtune.errors import RecipeError

from .options import AsJson, Seed, UsedFiles

CueName = Literal["shade", "frame"]
Folder = Annotated[Path, typer.Option("--out", help="Folder for train, heldout and traces.")]
Train = Annotated[int, typer.Option("--train", min=0, help="Training questions.")]
Heldout = Annotated[int, typer.Option("--eval", min=0, help="Held-out questions.")]
Traces = Annotated[int, typer.Option("--traces", min=0, help="Cold-start traces.")]
Tiny = Annotated[Path | None, typer.Option("--tiny", help="Also build a tiny model for them in this folder.")]

make = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


Feedback = Annotated[
    bool,
    typer.Option(
        "--feedback",
        help="With --shortcut: traces say whether a crop shows the sign, as rollout.feedback does.",
    ),
]


@make.command("lens")
def lens(
    out: Folder,
    level: Annotated[int, typer.Option("--level", min=1, max=4, help="1 (easy) to 4 (hard).")] = 1,
    train: Train = 2000,
    heldout: Heldout = 200,
    traces: Traces = 2000,
    guessable: Annotated[
        float, typer.Option("--guessable", min=0, max=1, help="Share of puzzles that need no look.")
    ] = 0.0,
    shortcut: Annotated[
        float | None,
        typer.Option(
            "--shortcut",
            metavar="P",
            min=0,
            max=1,
            help="A cue in the picture names the answer with this probability; held-out puzzles are same, "
            "broken and reversed.",
        ),
    ] = None,
    cue: Annotated[CueName | None, typer.Option("--cue", help="With --shortcut; default: shade.")] = None,
    careful: Annotated[
        float | None,
        typer.Option(
            "--careful",
            metavar="P",
            min=0,
            max=1,
            help="With --shortcut: the same probability in traces that look at the sign (default: "
            "0.2, chance).",
        ),
    ] = None,
    feedback: Feedback = False,
    tiny: Tiny = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Make lens puzzles: visual search that needs a crop."""
    if shortcut is None and (cue is not None or careful is not None or feedback):
        raise typer.BadParameter("only with --shortcut", param_hint="--cue, --careful, --feedback")
    if shortcut is not None and (level != 1 or guessable):
        raise typer.BadParameter("only on level 1, and without --guessable", param_hint="--shortcut")
    from vtune.data.shortcut import CHANCE, Shortcut
    from vtune.report.values import render_values
    from vtune.runs.data.lens import make_lens, make_shortcut

    from .output import show, stdout_for_the_result

    sizes = {"train": train, "heldout": heldout, "traces": traces}
    with stdout_for_the_result():
        if shortcut is None:
            result = make_lens(out, **sizes, level=level, guessable=guessable, seed=seed, tiny=tiny)
        else:
            world = Shortcut(shortcut, cue or "shade", CHANCE if careful is None else careful, feedback)
            result = make_shortcut(out, **sizes, world=world, seed=seed, tiny=tiny)
    show(result, render_values, as_json=as_json)


@make.command("shapes")
def shapes(
    out: Folder,
    train: Train = 3000,
    heldout: Heldout = 240,
    traces: Traces = 4000,
    grid: Annotated[int, typer.Option("--grid", help="Cells per side: 2 (easy) or 4.")] = 4,
    tiny: Tiny = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Make shape puzzles: counting, grounding and detection that a tiny model can learn."""
    from vtune.report.values import render_values
    from vtune.runs.data.shapes import make_shapes

    from .output import show, stdout_for_the_result

    with stdout_for_the_result():
        result = make_shapes(
            out, train=train, heldout=heldout, traces=traces, grid=grid, seed=seed, tiny=tiny
        )
    show(result, render_values, as_json=as_json)


@make.command("trails")
def trails(
    out: Annotated[Path, typer.Option("--out", help="Folder for the world, its indexes and questions.")],
    train: Train = 1500,
    heldout: Heldout = 240,
    traces: Traces = 4000,
    towns: Annotated[int, typer.Option("--towns", help="Towns to train on.")] = 160,
    heldout_towns: Annotated[int, typer.Option("--eval-towns", help="Towns for held-out questions.")] = 40,
    tiny: Tiny = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Make trails: questions for image search, zoom and text search, and the world that they search in."""
    from vtune.report.values import render_values
    from vtune.runs.data.trails import make_trails

    from .output import show, stdout_for_the_result

    with stdout_for_the_result():
        result = make_trails(
            out,
            train=train,
            heldout=heldout,
            traces=traces,
            towns=towns,
            heldout_towns=heldout_towns,
            seed=seed,
            tiny=tiny,
        )
    show(result, render_values, as_json=as_json)


@make.command("coco")
def coco(
    instances: Annotated[Path, typer.Option("--instances", help="instances_*.json of COCO.")],
    images: Annotated[Path, typer.Option("--images", help="Folder of its photographs.")],
    out: Annotated[Path, typer.Option("--out", help="Parquet file to write.")],
    traces: Annotated[
        Path | None,
        typer.Option("--traces", help="Also write cold-start traces for them to this Parquet file."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Maximum number of samples.")] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Make samples from COCO annotations: which object is in a region, and how many there are."""
    from vtune.report.values import render_values
    from vtune.runs.data.coco import make_coco

    from .output import show

    result = make_coco(instances, images, out, limit=limit, seed=seed, traces=traces)
    show(result, render_values, as_json=as_json)


@make.command("traces")
def traces(
    out: Annotated[Path, typer.Option("--out", help="Parquet file of traces to write.")],
    data: Annotated[
        list[Path] | None, typer.Option("--data", help="Samples with evidence boxes: traces look at these.")
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option("--run", help="Folder of `rl` or `eval`: its right and faithful trajectories."),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            "--prompt",
            metavar="STYLE",
            help="With --data: rollout.prompt of the recipe that will train on them (plain, tools …); "
            "default: codev.",
        ),
    ] = None,
    tiny: Annotated[
        Path | None,
        typer.Option("--tiny", help="With --data: also build a tiny model for them in this folder."),
    ] = None,
    uses: UsedFiles = None,
    as_json: AsJson = False,
) -> None:
    """Make cold-start traces from your own samples, for `vtune sft`."""
    if bool(data) == (run is not None):
        said = "give samples with --data, or a run with --run" + (", not both" if data else "")
        raise typer.BadParameter(said, param_hint="--data")
    if run is not None and prompt is not None:
        raise RecipeError(
            "--prompt has no effect with --run: a trajectory keeps the prompt that its policy read",
            fix="leave it out, and set rollout.prompt as in the run's recipe when you train on the traces",
        )
    if run is not None and tiny is not None:
        raise RecipeError(
            "--tiny has no effect with --run: the policy of a run is a model already",
            fix="leave it out, and start `vtune sft` from the run's model or one of its checkpoints",
        )
    from vtune.report.values import render_values
    from vtune.rollout.prompts import OF_TRACES, STYLES
    from vtune.runs.data.own_traces import make_box_traces, make_run_traces
    from vtune.runs.evaluate.unfinished import not_finished, unfinished
    from vtune.uses import use

    from .output import show, stdout_for_the_result

    use(uses or ())
    style = prompt or OF_TRACES
    if style not in STYLES:
        raise typer.BadParameter(f"{style!r} is not a style; {STYLES.meant(style)}", param_hint="--prompt")
    with stdout_for_the_result():
        if run is not None:
            pending = unfinished(run)
            result = make_run_traces(run, out)
            if pending is not None:
                result["unfinished"] = f"{not_finished(pending)}; only whole portions were read"
        else:
            result = make_box_traces(data or [], out, prompt=style, tiny=tiny)
    show(result, render_values, as_json=as_json)


@make.command("passages")
def passages(
    source: Annotated[
        Path,
        typer.Argument(
            help="Dump of Wikipedia (.xml, .xml.bz2), or JSON lines or Parquet of articles (title, text)."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="File of JSON lines to write.")],
    words: Annotated[int, typer.Option("--words", min=1, help="Words per passage.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Cut the articles of a Wikipedia dump into passages, for `vtune data index`."""
    from vtune.report.values import render_values
    from vtune.runs.data.wikipedia import make_passages

    from .output import show

    show(make_passages(source, out, words=words), render_values, as_json=as_json)
