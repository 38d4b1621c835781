"""`vtune data inspect` of trajectories and traces."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runs.commands import vtune
from tests.view.runs import LOOKED, MISSED, UNSCORED
from vtune.data import lens
from vtune.schema.message import Message
from vtune.schema.parquet import write_rows, write_samples, write_trajectories
from vtune.schema.trajectory_row import TRAJECTORY_COLUMNS, trajectory_to_row


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [trajectory_to_row(one) for one in (LOOKED, MISSED, UNSCORED)]
    rows[1]["loss_mask"] = [True]
    write_rows(tmp_path / "drawn.parquet", TRAJECTORY_COLUMNS, rows)
    return tmp_path / "drawn.parquet"


def test_trajectories_are_counted_and_the_first_ones_shown(file: Path) -> None:
    found = json.loads(vtune("data", "inspect", file, "--rows", "1", "--json").out)
    assert (found["kind"], found["rows"], found["with_calls"]) == ("trajectories", 3, 1)
    assert found["by_source"] == {"lens": 1, "charts": 1}
    assert found["by_outcome"] == {"right": 1, "unscored": 1}
    assert (found["by_tool"], found["by_call"]) == ({"python": 1}, {"ok": 1})
    assert [(one["row"], "loss_mask" in one["what"]) for one in found["problems"]] == [(1, True)]
    (example,) = found["examples"]
    assert (example["key"], example["answer"]) == ("drawn/0", "4")
    said = vtune("data", "inspect", file, "--rows", "1").out
    assert "3 trajectories, 1 with calls" in said
    assert "showed [8, 8, 24, 20] of picture 0 as picture 1, verified" in said
    assert "0──" in said


def test_unscored_trajectories_without_tokens_are_traces(tmp_path: Path) -> None:
    trace = replace(
        LOOKED, token_ids=(), loss_mask=(), logprobs=(), reward=None, tool_scores=(), call_advantages=()
    )
    bare = replace(trace, calls=(), messages=(Message("user", "?"), Message("assistant", "4")), images=())
    write_trajectories(
        tmp_path / "traces.parquet", [replace(trace, calls=(replace(trace.calls[0], span=(0, 0)),)), bare]
    )
    found = json.loads(vtune("data", "inspect", tmp_path / "traces.parquet", "--json").out)
    assert (found["kind"], found["with_pictures"], found["by_outcome"]) == ("traces", 1, {})
    assert "2 traces, 1 with calls" in vtune("data", "inspect", tmp_path / "traces.parquet").out


def test_the_page_of_inspect_is_that_of_a_report(file: Path, tmp_path: Path) -> None:
    write_trajectories(tmp_path / "good.parquet", [LOOKED, MISSED])
    page = tmp_path / "page.html"
    assert vtune("data", "inspect", tmp_path / "good.parquet", "--html", page).code == 0
    assert 'id="held"' in page.read_text()
    refused = vtune("data", "inspect", file, "--html", file)
    assert refused.code == 2


def test_samples_are_inspected_as_before(tmp_path: Path) -> None:
    write_samples(tmp_path / "samples.parquet", lens.samples(2, 1, seed=0, split="train"))
    assert (
        "1 rows, 1 with tools, 1 with evidence" in vtune("data", "inspect", tmp_path / "samples.parquet").out
    )
