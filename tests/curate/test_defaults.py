"""The defaults of filters, and that the page of data recipes states the same."""

import io
import re
from typing import Any

import pytest
from rich.console import Console

from tests.conftest import ROOT
from vtune.curate.filters import FILTERS as TABLE
from vtune.curate.item import Selected
from vtune.report.curation import _funnel
from vtune.report.curation_page import RATES, curation_page, rate_bin
from vtune.runs.curate.recipe import DataRecipe, PassRate

FILTERS = {name: part.section for name, part in TABLE.items()}
PAGE = (ROOT / "data_recipes" / "README.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]*)\|$", PAGE, re.MULTILINE))


def recipe(**section: Any) -> DataRecipe:
    return DataRecipe.model_validate(
        {"records": "samples", "sources": {"mine": {"files": ["mine.parquet"]}}, "filters": [section]}
    )


@pytest.mark.parametrize("name", FILTERS)
def test_the_page_lists_every_key_of_a_filter_with_its_default(name: str) -> None:
    told = ROWS[name]
    if FILTERS[name] is PassRate:
        told = PAGE[PAGE.index("### `pass_rate`") : PAGE.index("## In small")]
    for key, field in FILTERS[name].model_fields.items():
        if key in ("filter", "rows"):
            continue
        assert f"`{key}`" in told
        if isinstance(field.default, int | float) and FILTERS[name] is not PassRate:
            assert f"`{key}` {field.default}" in told


def test_filters_without_required_keys_need_only_their_name() -> None:
    simple = [name for name, kind in FILTERS.items() if not any(f.is_required() for f in _own(kind))]
    assert len(simple) > 12
    for name in simple:
        if name not in ("tool_rounds", "complete_traces"):
            (spec,) = recipe(filter=name).filters
            assert spec.rows == "all"


def _own(kind: type[Selected]) -> list[Any]:
    return [field for key, field in kind.model_fields.items() if key != "filter"]


def test_the_page_shows_pass_rates_and_the_share_that_is_kept() -> None:
    bins = {"kept": [0, 3, *[0] * 10], "dropped": [0, 1, *[0] * 9, 4]}
    result = {
        "warnings": [],
        "funnel": {"mine": {"before": 8, "sampled": 8, "pass_rate": 3, "after": 3}},
        "rates": {"pass_rate": bins},
    }
    page = curation_page(result, {}, {})
    assert "pass_rate: how hard the rows are" in page
    assert "<td>to 0.1</td><td>3</td><td>1</td>" in page
    assert "<td>1</td><td>0</td><td>4</td>" in page
    assert 'style="width:75.0%"' in page
    assert "how hard" not in curation_page(result | {"rates": {}}, {}, {})


def test_a_filter_that_drops_nothing_keeps_its_line_in_the_funnel() -> None:
    row = {"before": 8, "sampled": 8, "valid": 8, "english": 8, "verifiable": 5, "mix": 5, "after": 5}
    result = {"published": {}, "funnel": {"mine": row}}
    console = Console(width=120, file=io.StringIO())
    console.print(_funnel(result))
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert "english 0 → 8" in told
    assert "verifiable 3 → 5" in told
    assert "valid 0" not in told
    assert "mix" not in told


@pytest.mark.parametrize(
    ("rate", "bin_"), [(0.0, "0"), (0.1, "to 0.1"), (0.125, "to 0.2"), (0.3, "to 0.3"), (7 / 8, "to 0.9")]
)
def test_a_mean_score_falls_into_the_right_bin(rate: float, bin_: str) -> None:
    assert RATES[rate_bin(rate)] == bin_


def test_always_right_has_a_separate_bin() -> None:
    assert RATES[rate_bin(1.0)] == "1"
    assert RATES[rate_bin(0.99)] == "below 1"
