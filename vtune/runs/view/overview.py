"""The page of a run or an evaluation as plain values: headline, curves, tables, recipe, data."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vtune.errors import DataError, RecipeError
from vtune.files.json_text import read_record
from vtune.metrics.by_source import steps_done
from vtune.report.curves import charts_of
from vtune.report.evaluation import BY_BOXES, HABITS, is_by_boxes, needs_look
from vtune.report.values import cell, is_estimate
from vtune.runs.evaluate.unfinished import not_finished, unfinished
from vtune.runs.report.document import run_report
from vtune.runs.report.results import read_results
from vtune.runs.sweep.placeholders import PREPARED
from vtune.runs.view.audited import audited_tables, dependent_shares
from vtune.runs.view.habits import by_query, by_sample, calls_by_tool, flags_by_step
from vtune.runs.view.headline import headline
from vtune.runs.view.opened import Opened, error_line
from vtune.runs.view.reported import in_percent, reported_rows

Table = dict[str, Any]
"""`title`, `note`, `head` and `rows` of plain texts."""


def overview(opened: Opened) -> dict[str, Any]:
    """What is shown of a place before its trajectories.

    Returns:
        `name`, `path`, `kind`; `headline`, see `headline`; `sources`: source -> number -> `steps` and
        `values`; `charts`, see `charts_of`; `changes`, see `vtune.metrics.changes.telling`; `tables`;
        `recipe` and `environment`: dotted key -> text; `line`, equal for runs whose recipes differ only in
        their seed and whose own parts are the same; `seed`; `steps_done` and `total_steps`; `unfinished`, the
        progress of an evaluation, "" once it is finished; `funnels` of the curations that made the data;
        `by_sample` and `queries`, see `vtune.runs.view.habits`; `problem`, why a file cannot be read: all
        that does not come from trajectories is then empty, so that one damaged place hides no other.
    """
    place = opened.place
    found: dict[str, Any] = {
        "name": place.name,
        "path": str(place.path),
        "kind": place.kind,
        "headline": headline(opened.index.table),
        "sources": {},
        "charts": [],
        "changes": [],
        "tables": [],
        "recipe": {},
        "environment": {},
        "line": str(place.path),
        "seed": None,
        "steps_done": 0,
        "total_steps": None,
        "unfinished": "",
        "funnels": [],
        "by_sample": by_sample(opened.index.table) if place.kind != "samples" else None,
        "queries": by_query(opened.index.table) if place.kind != "samples" else [],
        "problem": "",
    }
    try:
        if place.kind == "run" and (place.path / "metrics.jsonl").is_file():
            found |= _run(place.path)
        elif place.kind == "evaluation" and (place.path / "results.json").is_file():
            found |= _evaluation(place.path)
        elif place.kind == "evaluation" and (pending := unfinished(place.path)) is not None:
            found["unfinished"] = f"{not_finished(pending)}; {pending.next_step}"
    except (DataError, RecipeError) as error:
        found["problem"] = error_line(error)
    found["tables"] += [
        one for of in (calls_by_tool, flags_by_step) if (one := of(opened.index.table)) is not None
    ]
    found["problem"] = "; ".join(filter(None, (found["problem"], *opened.problems)))
    return found


def _run(path: Path) -> dict[str, Any]:
    runs: Any = run_report([path])["runs"]
    (run,) = runs
    recipe = run["recipe"] if isinstance(run["recipe"], dict) else {}
    sources = {
        source: {name: {"steps": one["steps"], "values": one["values"]} for name, one in curves.items()}
        for source, curves in run["sources"].items()
    }
    # A recipe only names the files of a user's own parts; hashes of their content are in the environment.
    asked = {key: recipe[key] for key in sorted(recipe) if key != "seed"}
    own = {name: file["sha256"] for name, file in run.get("uses", {}).items()}
    seedless = json.dumps([asked, own], default=str)
    # What a sweep prepared differs by seed, each in its own folder.
    seedless = seedless.replace(f"{PREPARED}/seed-{recipe.get('seed')}/", f"{PREPARED}/")
    return {
        "sources": sources,
        "charts": charts_of(name for curves in sources.values() for name in curves),
        "changes": run["changes"],
        "tables": [*_tightenings(run["tightenings"]), *audited_tables(path)],
        "recipe": _flat(recipe),
        "environment": _flat(run["environment"]),
        "line": hashlib.sha256(seedless.encode()).hexdigest(),
        "seed": recipe.get("seed"),
        "steps_done": steps_done(sources),
        "total_steps": run["steps"],
        "funnels": list(_funnels(recipe.get("data"))),
    }


def _evaluation(path: Path) -> dict[str, Any]:
    keys = "score", "sources", "faithfulness"
    results = read_results(path / "results.json", *keys, fix="restore the file")
    suite = results.get("suite") or {}
    environment = {"model": results.get("model"), "engine": results.get("engine")}
    return {
        "headline": _scores(results, dependent_shares(path)),
        "tables": [
            *(_looks(results) if needs_look(results) else [_table("faithfulness", [], [], NO_LOOKS)]),
            _by_source(results["sources"]),
            *reported_rows(
                suite,
                results["score"],
                results["faithfulness"],
                by_boxes=is_by_boxes(results),
            ),
            *audited_tables(path),
        ],
        "recipe": _flat(suite),
        "environment": _flat(environment | (results.get("environment") or {})),
        "funnels": list(_funnels(suite.get("data"))),
    }


HEADLINE = {
    "accuracy": "right",
    "faithful_of_all": "right and faithful, of all",
    "faithful_of_correct": "faithful, of the right",
    "tool_calls": "tool calls",
    "red_flags": "calls with a red flag",
}
"""Number of `vtune.metrics.faithfulness.Faithfulness` -> its name in a headline."""
SHARED = ("right", "right and faithful, of all", "faithful, of the right")
"""Those that are always shares; the scores of benchmarks need not be."""


def _scores(results: Mapping[str, Any], dependent: dict[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The headline of an evaluation: its score, the faithful share, and the share that depends on a look."""
    score, looks = results["score"], results["faithfulness"]
    plain = score.get("score")  # for a suite whose score has no interval
    alone = {"value": plain, "low": None, "high": None} if isinstance(plain, int | float) else None
    estimates = {"score": score.get("intervals", {}).get("score") or alone}
    estimates |= {title: looks.get(name) for name, title in HEADLINE.items()}
    known = {name: one for name, one in estimates.items() if isinstance(one, Mapping) and is_estimate(one)}
    shares = {*SHARED, *dependent}
    rows = [
        {"name": name, "share": name in shares, "first": None, "last": one}
        for name, one in (known | dependent).items()
    ]
    return {"of": f"{results.get('samples')} samples, 95 % intervals", "rows": rows}


SHARES = {
    "accuracy": "right",
    "faithful_of_correct": "faithful, of the correct",
    "faithful_by_chance": "by chance, of the correct",
    "faithful_of_all": "faithful, of all (Table 5)",
    "unfaithful_of_all": "right with calls that show no target",
    "small_of_all": "of them: a target, but too small",
    "no_tool_of_all": "right without a tool",
    "shown_of_all": "a call shows a target, whatever the answer",
    "tool_calls": "tool calls (of each trajectory)",
    "red_flags": "calls with a red flag (of each trajectory)",
}
"""Number of `vtune.metrics.faithfulness.Faithfulness` -> its row."""
FOLLOWED = {"share": "share", "accuracy": "accuracy", "by_cue": "by the cue", "by_target": "by the target"}
"""Number of a habit -> its column."""
NO_LOOKS = "no question needs a look"
"""Shown instead of tables that would be empty."""
COUNTS = ("tool_calls", "red_flags")
"""Those that are means of counts."""


def _looks(results: Mapping[str, Any]) -> Iterator[Table]:
    """How faithful an evaluation is, and how the model looks."""
    yield _faithfulness(results)
    yield _buckets(results["faithfulness"])
    yield from _habits(results.get("habits") or {})


def _faithfulness(results: Mapping[str, Any]) -> Table:
    looks = results["faithfulness"]
    rows = [
        [title, (cell if name in COUNTS else in_percent)(looks.get(name))]
        for name, title in SHARES.items()
        if name in looks
    ]
    judged = ", ".join(f"{count} by {who}" for who, count in (results.get("judged_by") or {}).items())
    said = [looks.get("no_shares"), f"looks were judged {judged}" if judged else None]
    said += [BY_BOXES] if is_by_boxes(results) else []
    return _table("faithfulness", ["", "in percent [95 % interval]"], rows, "; ".join(filter(None, said)))


def _buckets(looks: Mapping[str, Any]) -> Table:
    rows = [
        [bucket["calls"], in_percent(bucket["share"]), in_percent(bucket["accuracy"])]
        for bucket in looks.get("buckets", ())
    ]
    return _table("by number of calls", ["calls", "share, in percent", "accuracy, in percent"], rows)


def _habits(habits: Mapping[str, Any]) -> Iterator[Table]:
    """How the model looks, and what its answers follow then; evaluations older than habits have none."""
    found = {title: habits[look] for look, title in HABITS.items() if look in habits}
    known = {
        key: title
        for key, title in FOLLOWED.items()
        if any(habit[key] is not None for habit in found.values())
    }
    rows = [
        [title, cell(habit["n"]), *(in_percent(habit[key]) for key in known)]
        for title, habit in found.items()
    ]
    if rows:
        left_out = habits["left_out"]
        note = f"{left_out} left out: unscored, or with looks that could not be judged" if left_out else ""
        yield _table("habits, in percent [95 % interval]", ["", "n", *known.values()], rows, note)


def _by_source(sources: Mapping[str, Mapping[str, Any]]) -> Table:
    names = list(dict.fromkeys(name for row in sources.values() for name in row if name != "intervals"))
    rows = [[name, *(_text(row.get(name)) for row in sources.values())] for name in names]
    return _table("by source", ["number", *sources], rows)


def _tightenings(found: list[dict[str, Any]]) -> Iterator[Table]:
    rows = [
        [str(one["step"]), f"{cell(one['old'])} → {cell(one['new'])}", source, *map(cell, values.values())]
        for one in found
        for source, values in one["sources"].items()
    ]
    if rows:
        head = ["step", "threshold", "source", "before", "after", "end of stage"]
        yield _table("accuracy where the IoU threshold rises", head, rows)


def _funnels(data: object) -> Iterator[Table]:
    """Rows left after each filter of the curations that made the data, if their reports lie next to it."""
    files = [Path(one) for one in data if isinstance(one, str)] if isinstance(data, list) else []
    for folder in dict.fromkeys(file.parent for file in files):
        report = folder / "curation.json"
        if not report.is_file():
            continue
        result = read_record(report, "result", fix="the curation wrote it; restore it")["result"]
        funnel = result.get("funnel") if isinstance(result, dict) else None
        if not isinstance(funnel, dict) or not all(isinstance(row, dict) for row in funnel.values()):
            raise DataError("this is not the funnel of a curation", where=str(report), fix="restore the file")
        steps = list(next(iter(funnel.values()), {}))
        rows = [[source, *(_text(row.get(step)) for step in steps)] for source, row in funnel.items()]
        yield _table(str(folder), ["source", *steps], rows)


def _table(title: str, head: list[str], rows: list[list[str]], note: str = "") -> Table:
    return {"title": title, "note": note, "head": head, "rows": rows}


def _flat(values: object, prefix: str = "") -> dict[str, str]:
    """Nested values as dotted key -> text."""
    if isinstance(values, Mapping) and values and not is_estimate(values):
        return {
            key: text
            for name, value in values.items()
            for key, text in _flat(value, f"{prefix}.{name}" if prefix else str(name)).items()
        }
    return {prefix: _text(values)} if prefix else {}


def _text(value: object) -> str:
    if isinstance(value, Mapping) and not is_estimate(value):
        return json.dumps(value, ensure_ascii=False, default=str)
    return cell(value)
