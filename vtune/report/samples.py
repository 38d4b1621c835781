"""Sample files in the terminal: what they hold, a few rows, and what is wrong with them."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vtune.files.terminal import one_line
from vtune.report.numbers import GAP
from vtune.report.sketch import MARKS, sketch
from vtune.report.trajectory import render_trajectory


class Problem(TypedDict):
    """One bad row, or a file that cannot be read."""

    file: str
    row: int | None
    """From 0; None if the file itself is the problem."""
    what: str
    fix: str


SHOWN_PROBLEMS = 10
"""Maximum number of row problems shown on screen (ours)."""
NAMED_KINDS = 5
"""Maximum number of skipped kinds named on screen (ours)."""
NAMED_ROWS = 5
"""Maximum number of rows with the same problem named on screen (ours)."""


def first_problems(problems: Sequence[Problem], rest: str | None = None) -> list[str]:
    """The first problems, and the number of further ones. Rows of a file with the same problem share a line.

    Args:
        problems: All problems.
        rest: A sentence on where to find them all, if anywhere.
    """
    alike: dict[tuple[str, str, str], list[Problem]] = {}
    for problem in problems:
        alike.setdefault((problem["file"], problem["what"], problem["fix"]), []).append(problem)
    shown = list(alike.values())[:SHOWN_PROBLEMS]
    lines = [_line_of(some) for some in shown]
    more = len(problems) - sum(map(len, shown))
    last = [f"… and {more} more"] if more else []
    if rest is not None and (more or any(len(some) > NAMED_ROWS for some in shown)):
        last.append(rest)
    return [*lines, "; ".join(last)] if last else lines


def describe_problem(problem: Problem) -> str:
    """A problem as one line: place, what, fix."""
    return _line_of([problem])


def _line_of(same: Sequence[Problem]) -> str:
    """The same problem in several rows of a file, as one line."""
    first = same[0]
    place = first["file"] if first["row"] is None else f"{first['file']}, {_rows(same)}"
    what = " ".join(first["what"].split())
    if first["row"] is None and first["file"] in what:
        place = ""  # the error already names the file
    said = f"{place}: {what}" if place else what
    return one_line(f"{said}; {first['fix']}" if first["fix"] else said)


def _rows(problems: Sequence[Problem]) -> str:
    numbers = [str(problem["row"]) for problem in problems]
    if len(numbers) > NAMED_ROWS:
        return f"rows {', '.join(numbers[:NAMED_ROWS])} and {len(numbers) - NAMED_ROWS} more"
    *before, last = numbers
    return f"rows {', '.join(before)} and {last}" if before else f"row {last}"


def render_validation(result: Mapping[str, Any]) -> RenderableType:
    """The first problems from the result of `vtune.runs.data.validating.validate`, then the counts."""
    problems = map(_line, first_problems(result["problems"], "--problems FILE writes all of them"))
    sources = ", ".join(f"{source} {rows}" for source, rows in result["by_source"].items())
    good = sum(result["by_source"].values())
    kept = f"{good} of {result['rows']} rows are good: {sources or GAP}"
    return Group(*problems, *([_line(kept)] if result["rows"] else []), *_turned(result))


def render_inspection(result: Mapping[str, Any]) -> RenderableType:
    """The result of `vtune.runs.data.inspecting.inspect` as tables."""
    head = (
        f"{result['file']}: {result['rows']} rows, {result['with_tools']} with tools, "
        f"{result['with_evidence']} with evidence"
    )
    examples = map(_example, result["examples"])
    return Group(_line(head), _counted(result, "rows"), _columns(result), *examples, *_problems(result))


def render_trajectories(result: Mapping[str, Any]) -> RenderableType:
    """The result of `vtune.runs.view.inspecting.inspect_trajectories` as tables, then its first rows."""
    head = (
        f"{result['file']}: {result['rows']} {result['kind']}, {result['with_calls']} with calls, "
        f"{result['with_pictures']} with pictures"
    )
    examples = map(render_trajectory, result["examples"])
    return Group(_line(head), _counted(result, "count"), _columns(result), *examples, *_problems(result))


def _counted(result: Mapping[str, Any], what: str) -> Table:
    """Number of rows, or calls, of each kind: one table row for each value of each `by_…`."""
    counts = Table()
    for column in ("by", "value", what):
        counts.add_column(column, justify="right" if column == what else "left")
    for key, values in result.items():
        if key.startswith("by_"):
            for value, count in values.items():
                counts.add_row(key.removeprefix("by_"), value or GAP, str(count))
    return counts


def _columns(result: Mapping[str, Any]) -> Table:
    columns = Table("column", "type")
    for name, kind in result["columns"].items():
        columns.add_row(name, Text(kind))
    return columns


def _problems(result: Mapping[str, Any]) -> list[RenderableType]:
    return [
        *map(
            _line,
            first_problems(result["problems"], "`vtune data validate FILE --problems OUT` lists all of them"),
        )
    ]


def render_import(result: Mapping[str, Any]) -> RenderableType:
    """The first rows that `vtune.runs.data.importing.import_data` left out, then the counts."""
    sources = ", ".join(f"{source} {rows}" for source, rows in result["by_source"].items())
    verifiers = ", ".join(f"{name} {rows}" for name, rows in result["by_verifier"].items())
    kept = f"{result['file']}: {result['kept']} {result['makes']} of {result['rows']} rows: {sources}"
    judged = [_line(f"verifiers: {verifiers}")] if verifiers else []
    warnings = [*_passed_over(result), *_doubts(result), *_turned(result)]
    return Group(*_left_out(result), _line(kept), *judged, *warnings)


def render_export(result: Mapping[str, Any]) -> RenderableType:
    """The first rows that `vtune.runs.data.exporting.export_data` left out, then the counts."""
    rows = result["rows"] + len(result["problems"])
    return Group(
        *_left_out(result), _line(f"{result['file']}: {result['rows']} of {rows} rows as {result['layout']}")
    )


def _left_out(result: Mapping[str, Any]) -> list[Text]:
    rest = f"all of them are in {result['problems_file']}"
    return [_line(f"left out: {line}") for line in first_problems(result["problems"], rest)]


def _passed_over(result: Mapping[str, Any]) -> list[Text]:
    """What a format skips by its own rules."""
    lines = []
    for why, counts in result["passed_over"].items():
        named = [f"{what} {count}" for what, count in list(counts.items())[:NAMED_KINDS]]
        more = [f"and {len(counts) - NAMED_KINDS} more in --json"] if len(counts) > NAMED_KINDS else []
        lines.append(
            _line(f"passed over, {sum(counts.values())} in all: {why}: {', '.join([*named, *more])}")
        )
    return lines


def _doubts(result: Mapping[str, Any]) -> list[Text]:
    doubts = result["doubts"].items()
    return [_line(f"warning: {count} row{'s' * (count > 1)} with {what}") for what, count in doubts]


def _turned(result: Mapping[str, Any]) -> list[Text]:
    """A warning about good rows whose pictures look different to people and to the policy."""
    count = result["turned"]
    warning = (
        f"warning: {count} of these rows {'has' if count == 1 else 'have'} a picture that EXIF "
        "rotates: the policy sees it as stored, and boxes are in those pixels; if that is not "
        "intended, store it upright (Pillow: ImageOps.exif_transpose)"
    )
    return [_line(warning)] if count else []


def _line(text: str) -> Text:
    """Text that stays on one line however narrow the terminal, as other programs read it line by line."""
    return Text(text, no_wrap=True, overflow="ignore")


def _example(example: Mapping[str, Any]) -> Table:
    table = Table(title=Text(example["id"]), title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    images = ", ".join(f"{image['width']}x{image['height']}" for image in example["images"])
    boxes = [
        f"{number} {box['label']} ({box['of']}): {[round(side, 1) for side in box['bbox_2d']]}"
        for number, box in _numbered(example)
    ]
    rows = {
        "source": example["source"],
        "question": example["question"],
        "choices": "; ".join(example["choices"]),
        "ground truth": f"{example['ground_truth']}  (verifier {example['verifier']})",
        "images": images,
        "boxes": "\n".join(boxes),
        "tools": ", ".join(example["tools"]),
    }
    if example["environment"]:
        rows["environment"] = example["environment"]
    for name, value in rows.items():
        table.add_row(name, Text(value or GAP))
    for index, image in enumerate(example["images"]):
        drawn = [(number, box["bbox_2d"]) for number, box in _numbered(example) if box["image"] == index]
        if drawn:
            lines = sketch(image["width"], image["height"], drawn)
            table.add_row(f"image {index}", Text("\n".join(lines), no_wrap=True))
    return table


def _numbered(example: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The boxes with their marks, the same in sketches and in the list."""
    return [
        (MARKS[number] if number < len(MARKS) else "+", box) for number, box in enumerate(example["boxes"])
    ]
