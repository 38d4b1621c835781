"""Counterfactual re-runs as tables: what right answers depend on, and whether the judge agrees."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vtune.metrics.counterfactual import SHOWN
from vtune.report.numbers import GAP

Result = Mapping[str, Any]
"""The result of `vtune.runs.audit.counterfactual.run_counterfactual`."""

COLUMNS = (
    ("dependent_of_looked", "dependent, of\nthose with a look"),
    ("dependent_of_correct", "of the\ncorrect"),
    ("dependent_of_all", "of all"),
    ("beyond_chance", "beyond\nchance"),
    ("follows", "say what\nwas shown"),
    ("asked_again", "look\nagain"),
    ("same_text", "word for\nword"),
)
CELLS = (
    ("faithful_dependent", "faithful,\ndependent"),
    ("faithful_independent", "faithful,\nindependent"),
    ("unfaithful_dependent", "unfaithful,\ndependent"),
    ("unfaithful_independent", "unfaithful,\nindependent"),
)


def render_counterfactual(result: Result) -> RenderableType:
    """One row per exchange, then the judge compared with each, then breakdowns, then notes."""
    exchanges = result["exchanges"]
    parts: list[RenderableType] = [
        _table("right answers with other pictures (in percent [95 % interval])", COLUMNS, exchanges),
        _table(
            "the judge's verdict x the exchange's, of right answers with a look",
            CELLS,
            {name: found["table"] | {"n": found["agreement"]["n"]} for name, found in exchanges.items()},
        ),
    ]
    parts += _where(exchanges)
    return Group(*parts, *map(Text, _notes(result)))


def _table(title: str, columns: tuple[tuple[str, str], ...], rows: Mapping[str, Any]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    table.add_column("n", justify="right")
    for _, name in columns:
        table.add_column(name, justify="right", vertical="bottom", no_wrap=True)
    for name, row in rows.items():
        table.add_row(name, str(row["n"]), *(share_text(row[key]) for key, _ in columns))
    return table


def _where(exchanges: Mapping[str, Any]) -> Iterator[RenderableType]:
    """The dependent share, broken down by each property in which answers differ."""
    for kind, values, rows in splits(exchanges):
        table = Table(title=f"dependent, by {kind}", title_justify="left")
        table.add_column("")
        for value in values:
            table.add_column(value, justify="right")
        for row in rows:
            table.add_row(*row)
        yield table


def splits(exchanges: Mapping[str, Any]) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """(kind, its values, rows) for each kind with several values.

    A row has the exchange and, for each value, the dependent share with its interval and the number of
    answers.
    """
    for kind in next(iter(exchanges.values()), {"by": ()})["by"]:
        values = sorted({value for found in exchanges.values() for value in found["by"][kind]})
        if len(values) < 2:
            continue
        rows = []
        for name, found in exchanges.items():
            parts = [found["by"][kind].get(value) for value in values]
            cells = [
                GAP if one is None else f"{share_text(one['dependent'])}\nof {one['n']}" for one in parts
            ]
            rows.append([name, *cells])
        yield kind, values, rows


def _notes(result: Result) -> Iterator[str]:
    if result.get("drawn_by"):
        yield (
            f"the evaluation names another model, {result['drawn_by']}: if its weights are not those of "
            f"{result['model']}, answers may have changed with them"
        )
    yield (
        f"generated with {result['model']} at temperature {result['temperature']:g}: {result['drawn']} "
        f"turns now, {GAP if result['tokens'] is None else result['tokens']} tokens on record in "
        f"{result['record']}"
    )
    for name, found in result["exchanges"].items():
        if found["n_unscored"]:
            yield f"{name}: {found['n_unscored']} not known, most often: {found['why']}"
        yield from agreement_note(name, found["agreement"])


def agreement_note(name: str, agreement: Mapping[str, Any]) -> Iterator[str]:
    """How far the verdicts of the judge and of an exchange agree; nothing if no picture was exchanged."""
    kappa = agreement["kappa"]
    if agreement["n"] and name != SHOWN:
        yield (
            f"{name}: the judge and the exchange agree on {100 * agreement['agree']:.1f} % of "
            f"{agreement['n']}, kappa {GAP if kappa is None else f'{kappa:.2f}'}"
        )


def share_text(estimate: Mapping[str, float | None] | None) -> str:
    """A share in percent, with its interval, if it has one, on a second line."""
    if estimate is None or estimate["value"] is None:
        return GAP
    value = f"{100 * estimate['value']:.1f}"
    low, high = estimate["low"], estimate["high"]
    return value if low is None or high is None else f"{value}\n[{100 * low:.1f}, {100 * high:.1f}]"
