"""The results of an attack suite, and what one piece of code did in the sandbox."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vtune.report.foreign import foreign
from vtune.report.numbers import GAP, number

LOUD = {"breach": "BREACH", "error": "ERROR"}


def render_attacks(result: Mapping[str, Any]) -> RenderableType:
    """The result of `vtune.runs.audit.attack.run_attack` as a table, then the counts."""
    table = Table("attack", "must not", "result", "ended", "stopped by", "seconds")
    for row in result["attacks"]:
        outcome = LOUD.get(row["outcome"], row["outcome"])
        outcomes = "\n".join((outcome, *row["breaches"], *filter(None, [row["note"]])))
        table.add_row(
            row["name"],
            Text(row["must_not"]),
            foreign(outcomes),
            row["status"] or GAP,
            Text(row["stopped_by"] or GAP),
            number(round(row["seconds"], 2)) if row["status"] else GAP,
        )
    heads = [Text(f"tier {result['tier']}; layers: {describe_layers(result['layers'])}")]
    heads += [Text(f"note: {note}") for note in result["notes"]]
    if result["without"]:
        left_out = ", ".join(result["without"])
        heads.append(Text(f"NEGATIVE CONTROL: run without {left_out}; breaches are expected here"))
    counts = f"{result['held']} held, {result['breached']} breached"
    counts += f", {result['allowed']} known leaks" if result["allowed"] else ""
    counts += f", {result['skipped']} skipped" if result["skipped"] else ""
    counts += f", {result['errors']} that could not be run" if result["errors"] else ""
    return Group(*heads, table, Text(counts))


def describe_layers(layers: Mapping[str, Any]) -> str:
    """The layers of `Sandbox.info` on one line, including those that are off."""
    return ", ".join(f"{name.replace('_', ' ')} {_level(value)}" for name, value in layers.items())


def _level(value: bool | int) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"ABI {value}" if value else "off"


def render_snippet(result: Mapping[str, Any]) -> RenderableType:
    """The result of `vtune.runs.audit.snippet.run_snippet` as a model would see it, with crop boxes."""
    parts: list[RenderableType] = [
        Text(f"{result['status']} in {result['seconds']:.3f} s, tier {result['tier']}")
    ]
    for title in ("output", "error"):
        if result[title]:
            parts.append(foreign(f"{title}:\n{_indented(result[title])}"))
    for index, image in enumerate(result["images"]):
        where = f", written to {image['path']}" if image["path"] else ""
        size = f"{image['width']}x{image['height']}, {image['bytes']} bytes"
        parts.append(foreign(f"picture {index}: {image['name']}, {size}{where}"))
    for crop in result["crops"]:
        box = ", ".join(number(side) for side in crop["bbox"])
        shown = "not shown" if crop["shown"] is None else f"shown in picture {crop['shown']}"
        parts.append(Text(f"crop: ({box}) of input {crop['image']}, {shown}"))
    return Group(*parts)


def render_reward_attack(result: Mapping[str, Any]) -> RenderableType:
    """The result of `vtune.runs.audit.reward_attack.run_reward_attack` as tables, then exceeded limits."""
    drawn, search = result["random"], result["search"]
    shares = Table("random programs", "full reward, unreadable", "honest, readable, not rewarded")
    shares.add_row("all", _share(drawn["paid_unreadable"]), _share(drawn["honest_unpaid"]))
    for kind, row in drawn["by_kind"].items():
        shares.add_row(kind, _share(row["paid_unreadable"]), _share(row["honest_unpaid"]))
    parts: list[RenderableType] = [
        Text(
            f"tier {result['tier']}, looks {result['looks']}, {drawn['programs']} programs, "
            f"{drawn['failed_calls']} of "
            f"{drawn['calls']} calls failed"
        ),
        shares,
    ]
    if search["generations"]:
        found = Table("bred program", "kind", "reward", "paid, unreadable")
        for one in search["best"]:
            found.add_row(
                Text(_ways(one["program"])), one["kind"], number(one["reward"]), f"{one['fooled']:.0%}"
            )
        parts += [Text(f"{search['tried']} programs bred in {search['generations']} generations"), found]
    return Group(*parts, Text("; ".join(result["breached"]) or "all within the limits"))


def _share(share: Mapping[str, Any]) -> str:
    if share["share"] is None:
        return GAP
    return (
        f"{share['share']:.2%} ({share['low']:.2%} to {share['high']:.2%}; {share['count']} of {share['of']})"
    )


def _ways(program: Any) -> str:
    """The names of a program's steps, one line for each picture."""
    return "\n".join(" > ".join(step[0] for step in shot) for call in program for shot in call)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
