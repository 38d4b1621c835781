"""`vtune sandbox`: run code in the sandbox, or attack it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from .options import AsJson, Seed

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Isolation = Literal["auto", "namespaces", "flat", "unsafe"]
Attacked = Literal["auto", "namespaces", "flat"]
"""Tiers that may be attacked; the unsafe one stops nothing."""


class Layer(StrEnum):
    """Layers that a negative control may leave out."""

    LANDLOCK = "landlock"
    SECCOMP = "seccomp"
    NAMESPACES = "namespaces"
    UID = "uid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The size of an attack on the reward: options that only `--reward` reads."""

    programs: int
    """Number of random programs."""
    generations: int
    """Generations of the search."""
    population: int
    """Programs per generation."""
    claimed: bool
    """Attack a judge that believes what the session claims."""


@app.command("run", epilog="Exit codes: 0 the code ran to its end, 1 it did not, 2 the input is wrong.")
def run(
    file: Annotated[str, typer.Argument(help="File of Python; - reads standard input.")],
    images: Annotated[list[Path] | None, typer.Option("--image", help="Input picture; repeatable.")] = None,
    isolation: Annotated[
        Isolation, typer.Option("--isolation", help="auto takes the strongest that this machine offers.")
    ] = "auto",
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the pictures that come back.")] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Run code as a model's would run: what it prints, shows and crops."""
    from vtune.report.attacks import render_snippet
    from vtune.runs.audit.snippet import run_snippet

    from .output import show

    result = run_snippet(file, images or [], isolation=isolation, out=out, seed=seed)
    show(result, render_snippet, as_json=as_json)
    if result["status"] != "ok":
        raise typer.Exit(1)


@app.command(
    "attack",
    epilog="A suite is a folder of *.py files that begin with `# MUST NOT:` and `# CHECK:`; {{CANARY}},"
    " {{PORT}}, {{VICTIM}} and the like in them are filled in. Exit codes: 0 all held, 1 a breach, or an"
    " attack that could not be run, 2 the suite is wrong.",
)
def attack(
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Folder of another suite; the shipped one if not given.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Run this attack alone; repeatable.")
    ] = None,
    isolation: Annotated[
        Attacked, typer.Option("--isolation", help="auto takes the strongest that this machine offers.")
    ] = "auto",
    without: Annotated[
        list[Layer] | None,
        typer.Option(
            "--without",
            help="Leave out a layer, to test that breaches are noticed; repeatable. Breaches are real.",
        ),
    ] = None,
    reward: Annotated[
        bool,
        typer.Option(
            "--reward",
            help="Attack the evidence reward instead: random programs, then a search for programs "
            "that are rewarded and show nothing.",
        ),
    ] = False,
    programs: Annotated[
        int, typer.Option("--programs", min=1, help="With --reward: random programs.")
    ] = 2000,
    generations: Annotated[
        int,
        typer.Option("--generations", min=0, help="With --reward: generations of the search; 0 for none."),
    ] = 20,
    population: Annotated[
        int, typer.Option("--population", min=6, help="With --reward: programs of a generation.")
    ] = 24,
    claimed: Annotated[
        bool,
        typer.Option(
            "--claimed",
            help="With --reward: attack a judge that believes what the session claims, for comparison.",
        ),
    ] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Run hostile snippets in this machine's sandbox, and report what held and which layer held it."""
    if reward:
        if folder or only or without:
            raise typer.BadParameter("--dir, --only and --without apply to snippets, not to --reward")
        search = Search(programs=programs, generations=generations, population=population, claimed=claimed)
        _attack_reward(search, isolation, seed, as_json=as_json)
    else:
        _attack_sandbox(folder, only or [], isolation, without or [], as_json=as_json)


def _attack_reward(search: Search, isolation: Attacked, seed: int, *, as_json: bool) -> None:
    from vtune.report.attacks import render_reward_attack
    from vtune.runs.audit.reward_attack import run_reward_attack

    from .output import show

    found = run_reward_attack(
        programs=search.programs,
        generations=search.generations,
        population=search.population,
        seed=seed,
        isolation=isolation,
        claimed=search.claimed,
    )
    show(found, render_reward_attack, as_json=as_json)
    if found["breached"]:
        raise typer.Exit(1)


def _attack_sandbox(
    folder: Path | None,
    only: Sequence[str],
    isolation: Attacked,
    without: Sequence[Layer],
    *,
    as_json: bool,
) -> None:
    from vtune.report.attacks import render_attacks
    from vtune.runs.audit.attack import run_attack

    from .output import show

    result = run_attack(folder, only, isolation=isolation, without=[layer.value for layer in without])
    show(result, render_attacks, as_json=as_json)
    if result["breached"] or result["errors"]:
        raise typer.Exit(1)
