"""`vtune data`: make, import, export, index, search, inspect and validate data."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from vtune.parts import OURS

from .making import make
from .options import AsJson, UsedFiles

FORMATS = list(OURS["format"])

Device = Literal["cpu", "cuda"]
EncoderFamily = Literal["e5", "bge", "qwen3", "contriever"]
SearchMethod = Literal["exact", "hnsw"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(make, name="make", help="Make samples: synthetic puzzles, or from a public format.")


@app.command("import")
def import_(
    layout: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help=f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}.",
        ),
    ],
    paths: Annotated[list[Path], typer.Argument(help="Files or folders; with hf, names on the hub too.")],
    out: Annotated[Path, typer.Option("--out", help="Parquet file to write.")],
    images: Annotated[
        Path | None, typer.Option("--images", help="Base folder of relative picture paths.")
    ] = None,
    verifier: Annotated[
        str | None,
        typer.Option(
            "--verifier",
            help="Verifier for rows that name none; overrides one that --columns sets for every row.",
        ),
    ] = None,
    tools: Annotated[
        list[str] | None,
        typer.Option(
            "--tools",
            help="Tool that the model may call, or none; the recipe's own prompt then describes it. "
            "Default: what the rows say. Repeatable.",
        ),
    ] = None,
    columns: Annotated[
        Path | None, typer.Option("--columns", help="With hf: YAML that says which column means what.")
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Stop at the first row that cannot be read; otherwise it is left out and listed."
        ),
    ] = False,
    uses: UsedFiles = None,
    as_json: AsJson = False,
) -> None:
    """Import published data as samples or traces, with their pictures."""
    from vtune.data.formats.building import Options
    from vtune.data.offer import named_tools
    from vtune.report.samples import render_import
    from vtune.runs.data.importing import import_data
    from vtune.uses import use

    from .output import show

    use(uses or ())
    offered = named_tools(tools) if tools else None
    options = Options(images=images, verifier=verifier, tools=offered, columns=columns)
    result = import_data(layout, paths, out, options=options, strict=strict)
    show(result, render_import, as_json=as_json)


class Exporting(TyperCommand):
    """`vtune data export`, whose help lists the formats that can be written."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The formats that can be written, and the kind of file for each."""
        from vtune.data.formats.table import FORMATS, written

        files = {
            name: "JSON lines" if writer.columns is None else "Parquet" for name, writer in written().items()
        }
        with formatter.section("Formats"):
            formatter.write_dl([(name, f"{file} of {FORMATS[name].makes}") for name, file in files.items()])


@app.command("export", cls=Exporting)
def export(
    layout: Annotated[str, typer.Argument(metavar="FORMAT", help="One of those below, or of your own.")],
    file: Annotated[Path, typer.Argument(help="Parquet file of samples, or of traces.")],
    out: Annotated[Path, typer.Option("--out", help="File to write: Parquet, or JSON lines.")],
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Stop at the first row that the format cannot hold; otherwise it is left out and listed.",
        ),
    ] = False,
    uses: UsedFiles = None,
    as_json: AsJson = False,
) -> None:
    """Write samples or traces in the format of another trainer, with their pictures."""
    from vtune.report.samples import render_export
    from vtune.runs.data.exporting import export_data
    from vtune.uses import use

    from .output import show

    use(uses or ())
    show(export_data(layout, file, out, strict=strict), render_export, as_json=as_json)


@app.command("index")
def index(
    corpus: Annotated[
        Path, typer.Argument(help="JSON lines or Parquet of passages (id, title, text), or a folder of them.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder to write.")],
    pictures: Annotated[
        bool,
        typer.Option(
            "--pictures", help="The corpus is a folder of pictures, or rows with image, title, text."
        ),
    ] = False,
    encoder: Annotated[
        str | None,
        typer.Option(
            "--encoder",
            help="Model that embeds passages, for a dense index (default: BM25). With --pictures: a "
            "CLIP or SigLIP model (default: hashes and colours).",
        ),
    ] = None,
    family: Annotated[
        EncoderFamily | None,
        typer.Option("--family", help="With --encoder: how it was trained to read queries and passages."),
    ] = None,
    search: Annotated[
        SearchMethod | None,
        typer.Option("--search", help="With --encoder: exact, or hnsw (graphs); by size."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build an index for text_search_tool (BM25, or dense), or with --pictures for image_search_tool."""
    if encoder is None and (family is not None or search is not None):
        raise typer.BadParameter("only with --encoder", param_hint="--family, --search")
    if pictures and (family is not None or search is not None):
        raise typer.BadParameter("not with --pictures", param_hint="--family, --search")
    if encoder is not None and family is None and not pictures:
        raise typer.BadParameter("required with --encoder", param_hint="--family")
    from vtune.report.values import render_values
    from vtune.runs.data.dense import index_dense
    from vtune.runs.data.indexing import index_passages, index_pictures

    from .output import show

    if encoder is not None and family is not None:
        result = index_dense(corpus, out, encoder=encoder, family=family, method=search)
    else:
        result = index_pictures(corpus, out, encoder=encoder) if pictures else index_passages(corpus, out)
    show(result, render_values, as_json=as_json)


@app.command("search")
def search(
    index: Annotated[Path, typer.Argument(help="Folder that `vtune data index` wrote.")],
    queries: Annotated[
        list[str], typer.Argument(metavar="QUERY", help="Texts; for an index of pictures, picture files.")
    ],
    top_k: Annotated[int, typer.Option("--top-k", min=1, max=100, help="Results per query.")] = 3,
    encoder: Annotated[
        str | None,
        typer.Option("--encoder", help="Where the index's model is now (default: where the index says)."),
    ] = None,
    device: Annotated[Device, typer.Option("--device", help="Device that embeds queries.")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Show what an index finds, with scores: what a run's search tools would find."""
    from vtune.report.found import render_found
    from vtune.runs.data.searching import search_index
    from vtune.tools.passages import IndexEncoder

    from .output import show

    moved = None if encoder is None and device == "cpu" else IndexEncoder(model=encoder, device=device)
    show(search_index(index, queries, top_k=top_k, encoder=moved), render_found, as_json=as_json)


@app.command("inspect")
def inspect(
    file: Annotated[Path, typer.Argument(help="Parquet file of samples, trajectories or traces.")],
    rows: Annotated[int, typer.Option("--rows", min=0, help="Rows to show.")] = 3,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write these rows, with pictures, as one page.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a file holds, and its first rows with the boxes on their pictures."""
    from vtune.report.samples import render_inspection, render_trajectories
    from vtune.runs.data.inspecting import inspect as inspect_file
    from vtune.runs.view.inspecting import holds_trajectories, inspect_trajectories

    from .output import show

    if holds_trajectories(file):
        show(inspect_trajectories(file, rows, html=html), render_trajectories, as_json=as_json)
        return
    show(inspect_file(file, rows, html=html), render_inspection, as_json=as_json)


@app.command("validate")
def validate(
    files: Annotated[list[Path], typer.Argument(help="Parquet files of samples.")],
    problems: Annotated[
        Path | None, typer.Option("--problems", help="Write all bad rows here, one per line.")
    ] = None,
    uses: UsedFiles = None,
    as_json: AsJson = False,
) -> None:
    """Check every row, and every ground truth against its own verifier; no model is needed."""
    from vtune.files.writing import check_file_output
    from vtune.report.samples import render_validation
    from vtune.runs.data.validating import validate as validate_files
    from vtune.runs.data.validating import write_problems
    from vtune.uses import use

    from .output import show

    use(uses or ())
    if problems is not None:
        check_file_output(problems, inputs=files, option="--problems")
    result = validate_files(files)
    if problems is not None:
        write_problems(problems, result["problems"])
    show(result, render_validation, as_json=as_json)
    if result["problems"]:
        raise typer.Exit(2)
