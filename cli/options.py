"""Arguments that several verbs share."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer
from typer.core import TyperCommand


class NoArguments(TyperCommand):
    """A verb that takes only options; a bare word was probably meant for the first one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line; a bare word is refused, with the option that it needs."""
        given, bare, _ = self.make_parser(ctx).parse_args(args=list(args))
        first = self.params[0]
        if bare and bare[0].isprintable() and "--help" not in args:
            option = "--set" if "=" in bare[0] else first.opts[0]
            if option == "--set" or first.name not in given:
                ctx.fail(f"unexpected argument {bare[0]!r}; did you mean `{option} {quote(bare[0])}`?")
        return super().parse_args(ctx, args)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How to start training: options that `vtune sft`, `vtune rl` and its sweeps share."""

    out: Path | None
    """The folder of the run or sweep; None for the default."""
    resume: bool
    """Continue what is in the folder."""
    gpus: int | None
    """Processes per machine; None for this process only."""
    hostfile: Path | None
    """File that lists the machines; None for this one."""
    track: str | None
    """Name of a tracker."""
    profile: int | None
    """The step to profile, counted from 1."""
    dry_run: bool
    """Only check."""
    as_json: bool
    """Show one JSON document."""


Recipe = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        help="Name of a shipped recipe, or a path; with --resume, the default is the recipe of the "
        "run in --out.",
    ),
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY.PATH=VALUE", help="Override one key; repeatable.")
]
RunFolder = Annotated[Path | None, typer.Option("--out", help="Run folder (default: runs/<recipe>).")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in the folder.")]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Check and print the recipe, estimate memory and time, and start nothing."
    ),
]
Gpus = Annotated[
    int | None,
    typer.Option(
        "--gpus",
        min=1,
        help="Start this many processes on each machine: one per GPU, or CPU processes where it has no GPU.",
    ),
]
GpuName = Annotated[
    str | None,
    typer.Option(
        "--gpu", metavar="NAME", help="With --dry-run: plan for GPUs of this kind, e.g. A100 or 'H100 PCIe'."
    ),
]
GpuMemory = Annotated[
    float | None,
    typer.Option(
        "--gpu-memory", metavar="GB", min=1, max=100_000, help="With --dry-run: plan for GPUs of this memory."
    ),
]
ShapeOf = Annotated[
    str | None,
    typer.Option(
        "--shape", metavar="MODEL", help="With --dry-run: plan for a known shape, e.g. Qwen2.5-VL-7B."
    ),
]
Track = Annotated[
    str | None,
    typer.Option("--track", metavar="TRACKER", help="Also report to trackio, wandb, tensorboard or mlflow."),
]
Profiled = Annotated[
    int | None,
    typer.Option(
        "--profile",
        metavar="STEP",
        min=1,
        help="Record this step with torch's profiler: a trace and a table of operators per process.",
    ),
]
Hostfile = Annotated[
    Path | None,
    typer.Option(
        "--hostfile", help="File of machines to run on, `name slots=N` per line; needs --gpus, pdsh and ssh."
    ),
]
SweepName = Annotated[
    str | None,
    typer.Option(
        "--sweep",
        help="Run the recipe with every variant and seed of a sweep (name of a shipped one, or a "
        "path). --out is then a folder of runs (default: runs/sweep-<sweep>).",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="VARIANT",
        help="With --sweep: only these variants, besides those already in the folder; repeatable.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs", min=1, help="With --sweep: how many runs at a time, each on its own GPUs or cores."
    ),
]
TIERS = ("auto", "namespaces", "flat", "unsafe")
Protection = Annotated[
    str | None,
    typer.Option(
        "--sandbox",
        metavar="TIER",
        help="auto (default: the best that works here), namespaces, flat, or unsafe: no protection at all.",
    ),
]
UsedFiles = Annotated[
    list[Path] | None, typer.Option("--uses", help="File with parts of your own (`vtune parts`); repeatable.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, and nothing else.")]
Seed = Annotated[int, typer.Option("--seed", help="The same seed gives the same result.")]


def with_protection(overrides: list[str] | None, protection: str | None) -> list[str]:
    """The overrides, plus one for the sandbox's tier.

    Raises:
        typer.BadParameter: If there is no such tier.
    """
    if protection is not None and protection not in TIERS:
        raise typer.BadParameter(f"{protection!r} is not one of {', '.join(TIERS)}", param_hint="--sandbox")
    return [*(overrides or ()), *([] if protection is None else [f"sandbox.isolation={protection}"])]
