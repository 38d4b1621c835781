"""`vtune serve`: serve rewards, searches or an agent."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .options import AsJson, Overrides, Protection, with_protection

if TYPE_CHECKING:
    from vtune.runs.serve.listening import Binding

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Device = Literal["cpu", "cuda"]
Content = Literal["turn", "answer"]
Host = Annotated[
    str, typer.Option("--host", help="Address to listen on; beyond this machine, requests need a token.")
]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 picks a free one.")]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", help="File with the token that requests must carry.")
]
MaxMb = Annotated[int, typer.Option("--max-mb", min=1, help="Largest request, in MiB.")]


@contextmanager
def serve_extra() -> Iterator[None]:
    """Around imports that need `vtune[serve]`.

    Raises:
        MissingExtra: If a package is not installed.
    """
    from vtune.errors import MissingExtra

    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is not installed", fix="pip install 'vtune[serve]'") from None


def shown_facts(*, as_json: bool) -> Callable[[dict[str, Any]], None]:
    """The function that prints what a service says once it listens."""
    from vtune.report.values import render_values

    from .output import show

    return lambda facts: show(facts, render_values, as_json=as_json)


def _binding(
    host: str, port: int, token_file: Path | None, max_mb: int, *, token: str | None = None
) -> "Binding":
    from vtune.runs.serve.listening import Binding
    from vtune.runs.serve.rewards import read_token

    secret = token if token_file is None else read_token(token_file)
    return Binding(host=host, port=port, token=secret, max_bytes=max_mb * 2**20)


@app.callback()
def serve() -> None:
    """Serve rewards, searches or an agent over HTTP."""


@app.command(
    "rewards",
    epilog="POST /score takes vtune's records, POST /judge V-Triune's requests; GET /health, GET "
    "/metrics. SIGINT, SIGTERM and SIGHUP end it.",
)
def rewards(
    host: Host = "127.0.0.1",
    port: Port = 8192,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes that run verifiers.")] = 2,
    token_file: TokenFile = None,
    token: Annotated[
        str | None, typer.Option("--token", help="The token itself; other users here may see it.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            help="Recipe whose reward section scores requests without their own, and whose judge is asked.",
        ),
    ] = None,
    max_mb: MaxMb = 64,
    as_json: AsJson = False,
) -> None:
    """Score trajectories for runs with `reward.service`, and for anyone who speaks HTTP."""
    with serve_extra():
        from vtune.runs.serve.rewards import run_rewards
    if token is not None and token_file is not None:
        raise typer.BadParameter("give one of --token and --token-file", param_hint="--token")
    at = _binding(host, port, token_file, max_mb, token=token)
    run_rewards(at, workers=workers, recipe=recipe, ready=shown_facts(as_json=as_json))


@app.command(
    "search",
    epilog="POST /search takes {query, top_k}, POST /retrieve {queries, topk, return_scores}, POST /images "
    "{picture: base64, top_k}; GET /health."
    " SIGINT, SIGTERM and SIGHUP end it.",
)
def search(
    index: Annotated[
        Path | None, typer.Argument(metavar="[INDEX]", help="Index of passages: `vtune data index`.")
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option("--pictures", help="Index of pictures: `vtune data index --pictures`.")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            "--encoder", help="For a dense index: where its model is now (default: where the index says)."
        ),
    ] = None,
    picture_encoder: Annotated[
        str | None,
        typer.Option("--picture-encoder", help="The same for an index of pictures that a model embedded."),
    ] = None,
    device: Annotated[
        Device | None,
        typer.Option("--device", help="Device that embeds queries and pictures (default: cpu)."),
    ] = None,
    min_score: Annotated[
        float | None,
        typer.Option(
            "--min-score", min=0, max=1, help="Pictures that score less are not found (default: 0.75)."
        ),
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8193,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Questions answered at a time.")] = 4,
    token_file: TokenFile = None,
    max_mb: MaxMb = 32,
    as_json: AsJson = False,
) -> None:
    """Search local indexes for runs with `tools.text_search.url` or `tools.image_search.url`."""
    with serve_extra():
        from vtune.runs.serve.search import Encoders, run_search
    at = _binding(host, port, token_file, max_mb)
    run_search(
        index,
        pictures,
        at,
        threads=threads,
        encoders=Encoders(encoder, picture_encoder, device),
        min_score=min_score,
        ready=shown_facts(as_json=as_json),
    )


@app.command(
    "agent",
    epilog="POST /v1/chat/completions takes a conversation, its pictures as data URLs; GET /v1/models,"
    " GET /health. SIGINT, SIGTERM and SIGHUP end it.",
)
def agent(
    settings: Annotated[str, typer.Option("--agent", help="Agent to run: a shipped one, or a path.")],
    model: Annotated[
        str, typer.Option("--model", help="Folder of weights or of a run, hub name, or openai:URL#model.")
    ],
    overrides: Overrides = None,
    sandbox: Protection = None,
    name: Annotated[str, typer.Option("--name", help="What clients call the agent.")] = "agent",
    content: Annotated[
        Content, typer.Option("--content", help="Return the whole last turn, or only its answer.")
    ] = "turn",
    vllm: Annotated[bool, typer.Option("--vllm", help="Generate with vLLM; needs vtune[vllm].")] = False,
    host: Host = "127.0.0.1",
    port: Port = 8194,
    token_file: TokenFile = None,
    max_mb: MaxMb = 64,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder to record the web's answers in (default: runs/serve-<name>)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Answer chat requests with an agent that calls its tools: one conversation per request."""
    with serve_extra():
        from vtune.runs.serve.agent import read_agent, run_agent
    at = _binding(host, port, token_file, max_mb)
    run_agent(
        read_agent(settings, with_protection(overrides, sandbox)),
        model,
        at,
        name=name,
        content=content,
        kind="vllm" if vllm else "transformers",
        out=out or Path("runs") / f"serve-{name}",
        ready=shown_facts(as_json=as_json),
    )
