"""The findings of a dry run, as comment lines above the recipe."""

from collections.abc import Iterator, Mapping
from typing import Any

from vtune.report.numbers import number


def plan_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """Lines for the result of `vtune.runs.plan.plan`: sizes, what is missing, the estimate."""
    sizes = {key: value for key, value in facts.items() if key not in ("plan", "missing", "warnings")}
    if sizes:
        yield from _table("the run", sizes)
    missing = facts.get("missing")
    if missing:
        yield "missing here, so a start would fail: " + "; ".join(missing)
    yield from (f"warning: {warning}" for warning in facts.get("warnings", ()))
    if "plan" in facts:
        yield from _estimate(facts["plan"])


def _estimate(plan: Mapping[str, Any]) -> Iterator[str]:
    machine = plan["machine"]
    unit = "GPU(s)" if machine["kind"] == "gpu" else "CPU process(es)"
    several = f" on {machine['hosts']} machines" if machine["hosts"] > 1 else ""
    where = f"{machine['gpus']} {unit} of {machine['memory_gb']:g} GB{several} ({machine['said']})"
    if plan["fits"] is None:
        yield f"no estimate for {where}"
        yield from plan["notes"]
        return
    verdict = "fits" if plan["fits"] else "DOES NOT FIT"
    yield f"{verdict}: {where}"
    if plan["servers"]:
        yield f"besides these, {plan['servers']} vLLM server(s) need their own GPUs to generate"
    yield f"at its peak {plan['peak_gb']:g} of the {plan['room_gb']:g} GB that tensors may fill"
    yield f"shape: {plan['shape']}"
    yield ""
    yield from _memory(plan["memory_gb"])
    if plan["host_gb"]:
        yield f"and {plan['host_gb']:g} GB of {_host(plan)} memory"
    if plan["sandbox"] is not None:
        sessions, gb = plan["sandbox"]["sessions"], plan["sandbox"]["gb"]
        yield f"and about {gb:g} GB there for the sandbox, with {sessions} sessions; with less, some wait"
    disk = plan["disk_gb"]
    count, together = disk["at the same time"], disk["together"]
    line = f"a checkpoint takes {disk['a checkpoint']:g} GB of disk; {count} at a time take {together:g} GB"
    every = disk.get("and one more every")
    yield line if every is None else f"{line}, and one more is kept every {every} steps"
    yield from plan["notes"]
    for index, remedy in enumerate(plan.get("remedies", ()), start=1):
        if index == 1:
            yield ""
            yield "what to change, in this order:"
        sets = " ".join(f"--set '{word}'" for word in remedy["set"])
        yield f"  {index}. {sets}: {remedy['why']}{_after(remedy, _host(plan))}"
    yield from (f"  then: {note}" for note in plan.get("then", ()))
    if "remedies" in plan and not any(remedy["fits"] for remedy in plan["remedies"]):
        yield "  no change of the recipe alone is enough"
    for other in plan.get("otherwise", ()):
        yield f"  or {other}"
    yield ""
    yield from _table("a step", plan["step"])
    yield from _table("assumed", plan["assumed"])


def _table(title: str, rows: Mapping[str, Any]) -> Iterator[str]:
    """One row per number, then an empty line."""
    width = max(map(len, [title, *rows]))
    yield f"{title}:"
    yield from (f"  {key:{width}}  {_word(value)}" for key, value in rows.items())
    yield ""


def _host(plan: Mapping[str, Any]) -> str:
    return "the host's" if plan["machine"]["hosts"] == 1 else "each host's"


def _after(remedy: Mapping[str, Any], whose: str) -> str:
    fits = ", fits" if remedy["fits"] else ""
    learning = " (changes what is learnt)" if remedy["changes_learning"] else ""
    host = f" and {remedy['host_gb']:g} GB of {whose} memory" if remedy["host_gb"] else ""
    return f" -> {remedy['peak_gb']:g} GB{host}{fits}{learning}"


def _memory(phases: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """One row per part, one column per phase."""
    parts = dict.fromkeys(part for row in phases.values() for part in row)
    width = max(map(len, [*parts, "GB on each"]))
    yield "  ".join([f"{'GB on each':{width}}", *(f"{phase:>14}" for phase in phases)])
    for part in parts:
        yield _row(part, [row.get(part) for row in phases.values()], width)
    yield _row("together", [sum(row.values()) for row in phases.values()], width)


def _row(name: str, values: list[float | None], width: int) -> str:
    cells = (f"{'' if value is None else format(value, '.2f'):>14}" for value in values)
    return "  ".join([f"{name:{width}}", *cells])


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, int | float) else str(value)
