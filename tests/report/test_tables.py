import doctest
import io
from collections.abc import Callable
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from vtune.report import numbers
from vtune.report.curation import render_curation
from vtune.report.demo import STAGES, render_demo
from vtune.report.samples import render_validation
from vtune.report.terminal import render_report
from vtune.report.values import render_values


def printed(renderable: RenderableType, width: int = 110) -> str:
    console = Console(width=width, record=True, markup=False, emoji=False, highlight=False, quiet=False)
    with console.capture() as captured:
        console.print(renderable, crop=False)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def curve(values: list[float], best: float | None = None) -> dict[str, Any]:
    return {
        "first": values[0],
        "last": values[-1],
        "best": best,
        "steps": list(range(len(values))),
        "values": values,
    }


def run(name: str, sources: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "path": f"runs/{name}", "last_step": 3, "sources": sources}


REPORT = {
    "runs": [
        run(
            "accuracy-only",
            {"all": {"seconds": curve([9.0, 8.5]), "reward": curve([0.1, 0.3, 0.45], 0.45)}},
        ),
        run(
            "evidence",
            {
                "all": {"reward": curve([0.1, 0.5, 0.75], 0.75), "red_flags": curve([0.5, 0.02], 0.02)},
                "lens": {"reward": curve([0.1, 0.5, 0.75], 0.75)},
            },
        ),
    ]
}


TIGHTENED = {
    "runs": [
        run("orsta", {"boxes": {"reward": curve([0.1, 0.5, 0.2, 0.9], 0.9)}})
        | {
            "tightenings": [
                {
                    "step": 2,
                    "old": 0.85,
                    "new": 0.95,
                    "sources": {"boxes": {"before": 0.5, "after": 0.2, "end": None}},
                }
            ],
            "replies": [
                {"step": 3, "source": "boxes", "reward": None, "reply": "[bold]\x1b[2J", "why": "worker died"}
            ],
        }
    ]
}


RUN = {"seed": 0, "seconds": 630.0, "folder": "runs/demo", "page": "runs/demo/report.html"}


def test_the_examples_in_the_docstrings_are_correct() -> None:
    failed, tried = doctest.testmod(numbers)
    assert (failed, tried) == (0, 3)


@example([0.0, 2.3e-308], 2)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.integers(1, 20))
def test_a_sparkline_fits_and_keeps_its_minimum(values: list[float], width: int) -> None:
    line = numbers.sparkline(values, width)
    assert len(line) == min(len(values), width)
    assert set(line) <= set("▁▂▃▄▅▆▇█")
    assert "▁" in line


def test_two_runs_side_by_side_match_the_golden_file(golden: Callable[[str, str], None]) -> None:
    golden("report.txt", printed(render_report(REPORT)))


def test_important_numbers_are_shown_by_default_and_all_on_request() -> None:
    fell = {
        "source": "lens",
        "name": "accuracy",
        "verdict": "fell back",
        "first": 0.2,
        "last": 0.3,
        "best": 0.9,
    }
    one = run("mine", {"lens": {"accuracy": curve([0.2, 0.3]), "seconds_own": curve([1.0, 2.0])}})
    report = {"runs": [one | {"changes": [fell | {"best_step": 60}]}]}
    short, whole = printed(render_report(report)), printed(render_report(report, everything=True))
    assert "fell back: accuracy of lens 0.2 → 0.3, after 0.9 until step 60" in short
    assert ("seconds_own" in short, "seconds_own" in whole) == (False, True)


def test_the_demos_table_matches_the_golden_file(golden: Callable[[str, str], None]) -> None:
    stage = {
        "accuracy": 0.5,
        "faithful_of_correct": None,
        "faithful_of_all": 0.231,
        "tool_calls": 0.98,
        "red_flags": 0.41,
        "n": 200,
    }
    result = dict.fromkeys(STAGES, stage) | RUN
    golden("demo.txt", printed(render_demo(result)))


def test_a_comparison_has_a_table_per_held_out_set() -> None:
    def held(accuracy: float, by_cue: float | None) -> dict[str, object]:
        numbers = {"accuracy": accuracy, "faithful": 0.7, "no look": 0.125, "whole picture": 0.25}
        found: dict[str, object] = {name: {"value": value} for name, value in numbers.items()}
        return found | {"by cue": None if by_cue is None else {"value": by_cue}}

    rows = {"accuracy-only": held(0.94, 0.9), "evidence": held(0.87, None)}
    table = {
        "suites": ["same", "broken"],
        "variants": {name: {"held_out": {"same": row, "broken": row}} for name, row in rows.items()},
    }
    shown = printed(render_demo({"compared": table} | RUN))
    assert shown.count("94.0 %") == shown.count("90.0 %") == shown.count("87.0 %") == 2
    assert "held-out puzzles: broken" in shown
    assert shown.strip().endswith("runs/demo/report.html")
    line = next(line for line in shown.splitlines() if "evidence" in line)
    assert [cell.strip() for cell in line.split("│")[2:-1]] == ["87.0 %", "70.0 %", "12.5 %", "25.0 %", "–"]


def test_a_stage_that_did_not_run_has_no_row() -> None:
    assert "black" not in printed(render_demo(RUN))


def test_results_of_any_shape_become_tables() -> None:
    estimate = {"value": 0.5, "low": 0.25, "high": 0.75}
    text = printed(
        render_values(
            {
                "n": 3,
                "model": "runs/[red]x",
                "accuracy": estimate,
                "missing": None,
                "by_source": {"lens": {"accuracy": 0.5, "calls": 2}, "coco": {"accuracy": 0.25}},
                "buckets": [{"calls": "0", "share": estimate}],
                "suite": {"seed": 0, "rollout": {"turns": 3}},
                "empty": {},
            }
        )
    )
    for part in ("runs/[red]x", "0.5 [0.25, 0.75]", "by_source", "suite.rollout", "buckets"):
        assert part in text
    assert "–" in next(line for line in text.splitlines() if "missing" in line)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=10,
    )
)
def test_no_result_breaks_the_tables(value: Any) -> None:
    printed(render_values({"result": value}))


def test_each_problem_of_a_file_is_one_line() -> None:
    problem = {"file": "a.parquet", "row": 3, "what": "no\nbox", "fix": "draw one" * 20}
    text = printed(
        render_validation({"rows": 4, "by_source": {"signs": 3}, "turned": 0, "problems": [problem]})
    )
    assert text == f"a.parquet, row 3: no box; {'draw one' * 20}\n3 of 4 rows are good: signs 3\n"


def test_tightenings_and_last_replies_are_below_the_numbers() -> None:
    text = printed(render_report(TIGHTENED))
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines()]
    assert ["2", "0.85 → 0.95", "boxes", "0.5", "0.2", "–"] in rows
    assert ["boxes", "–", "[bold]\ufffd[2J", "worker died"] in rows


def test_curation_benchmarks_take_one_line_for_present_and_one_for_missing_ones() -> None:
    rows = {"all": {"before": 0, "sampled": 0, "after": 0}}
    result = {"records": "traces", "data_sources": {}, "funnel": rows, "published": {}, "unscored": {}}
    result |= {"benchmarks": {"vstar": False, "lens": True, "mmmu": False}, "warnings": []}
    result |= {"waiting_for_review": 0, "out": "out", "files": []}
    lines = printed(render_curation(result)).splitlines()
    assert [line for line in lines if line.startswith("benchmarks")] == [
        "benchmarks kept apart from: lens",
        "benchmarks not here, not checked: vstar, mmmu",
    ]


def test_a_tightening_that_no_source_saw_has_no_table() -> None:
    run = {"name": "rl", "path": "runs/rl", "last_step": 3, "sources": {}}
    said = io.StringIO()
    console = Console(width=100, file=said)
    unseen = [{"step": 2, "old": 0.5, "new": 0.7, "sources": {}}]
    console.print(render_report({"runs": [run | {"tightenings": unseen}]}))
    assert "IoU threshold rises" not in said.getvalue()
