import csv
import io
from typing import Any

import pytest

from tests.report.test_tables import printed
from vtune.report.faithfulness import (
    CALLS,
    faithfulness_csv,
    faithfulness_latex,
    render_faithfulness,
)
from vtune.report.tabular import LOOKS

ESTIMATE = {"value": 0.898, "low": 0.835, "high": 0.949}
NUMBERS: dict[str, Any] = {
    "n": 64,
    "clusters": 8,
    "n_unscored": 1,
    "n_unaudited": 0,
    "no_shares": None,
    "buckets": [{"calls": "0", "share": ESTIMATE, "accuracy": None}],
    **{column.name: ESTIMATE for column in LOOKS},
}
RESULT: dict[str, Any] = {
    "path": "runs/rl",
    "note": "by boxes",
    "need_no_look": {},
    "unscored": {"the judge is down": 1},
    "all": NUMBERS | {"faithful_of_all": None},
    "sources": {"charts_50%": NUMBERS, "=lens": NUMBERS},
    "calls": {
        among: {"n": 60, "calls": 70, "first_useful": ESTIMATE, **{name: ESTIMATE for name, _ in CALLS}}
        for among in ("correct", "all")
    },
    "files": {f"step-{step:06d}.parquet": NUMBERS for step in range(40)},
}


def test_the_report_is_one_short_table_by_default() -> None:
    text = printed(render_faithfulness(RESULT), width=160)
    assert text.startswith("89.8 % of the right answers")
    assert "step 0" in text
    assert "step 39" in text
    assert "step 7" not in text
    assert len(text.splitlines()) < 30
    whole = printed(render_faithfulness(RESULT, everything=True), width=160)
    assert "step 7" in whole
    assert "first useful" in whole


def test_questions_that_need_no_look_are_reported_as_left_out() -> None:
    text = printed(render_faithfulness(RESULT | {"need_no_look": {"vqa": 12, "ocr": 3}}), width=160)
    assert "not counted, since their questions need no look: ocr 3, vqa 12" in text
    assert "not counted" not in printed(render_faithfulness(RESULT), width=160)


def test_an_unmeasured_number_is_empty_with_a_reason() -> None:
    text = printed(render_faithfulness(RESULT), width=160)
    assert "–" in text
    assert "1 times: the judge is down" in text
    nothing = RESULT | {
        "all": RESULT["all"] | {"faithful_of_correct": None, "no_shares": "too many unaudited"}
    }
    assert printed(render_faithfulness(nothing)).startswith("too many unaudited")


def test_the_chance_level_is_next_to_the_share_and_empty_for_older_audits() -> None:
    text = printed(render_faithfulness(RESULT), width=200)
    assert text.startswith("89.8 % of the right answers rest on a call that shows what was asked for")
    assert "(95 % interval: 83.5 to 94.9); by chance it would be 89.8 %" in " ".join(text.split())
    assert [column.name for column in LOOKS][1:3] == ["faithful_of_correct", "faithful_by_chance"]
    older = {name: value for name, value in NUMBERS.items() if name != "faithful_by_chance"}
    text = printed(render_faithfulness(RESULT | {"all": older}), width=200)
    assert "by chance it would be" not in text
    why = "no chance level: 2 of 3 right answers are not judged by boxes"
    unknown = NUMBERS | {"faithful_by_chance": None, "no_chance": why}
    assert why in printed(render_faithfulness(RESULT | {"all": unknown}), width=200)


def test_csv_has_every_row_with_its_interval_and_no_formula() -> None:
    rows = list(csv.DictReader(io.StringIO(faithfulness_csv(RESULT))))
    assert len(rows) == 1 + 2 + 40
    assert (rows[0]["faithful_of_correct_low"], rows[0]["faithful_of_all"]) == ("0.835", "")
    assert rows[2]["rows"] == "'=lens"


def test_latex_rows_have_equal_numbers_of_cells() -> None:
    text = faithfulness_latex(RESULT)
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 1 + 1 + 2 + 2
    assert {line.count(" & ") for line in rows} == {len(LOOKS) + 1}
    assert r"charts\_50\%" in text
    assert r"89.8 {\scriptsize [83.5, 94.9]}" in text
    assert text.count("{tabular}") == 2


@pytest.mark.parametrize("hostile", ["a\n\\end{tabular}", "x & y", "~^#$"])
def test_names_are_escaped_for_latex(hostile: str) -> None:
    text = faithfulness_latex(RESULT | {"sources": {"lens": NUMBERS, hostile: NUMBERS}})
    assert text.count(r"\end{tabular}") == 1
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {line.replace(r"\&", "").count("&") for line in rows} == {len(LOOKS) + 1}
