import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.runs.commands import vtune
from vtune.advantage.recipe import PAPER
from vtune.errors import DataError
from vtune.runs.report.credit import run_credit
from vtune.schema.message import Message, Picture
from vtune.schema.parquet import write_trajectories
from vtune.schema.reward import Reward
from vtune.schema.trajectory import Call, Crop, Trajectory

SEARCH = Call(tool="image_search_tool", arguments="{}", status="ok", span=(1, 2))


def ask(query: str) -> Call:
    return Call(tool="text_search_tool", arguments=json.dumps({"query": query}), status="ok", span=(1, 2))


def zoom(x: float) -> Call:
    box = (x, 0.0, x + 100.0, 100.0)
    return Call(tool="python", arguments="{}", status="ok", crops=(Crop(0, box, shown=0),), span=(1, 2))


def rollout(group: int, right: bool, advantage: float, *calls: Call) -> Trajectory:
    return Trajectory(
        sample_id=f"q/{group}",
        source="q",
        group=group,
        messages=(Message("user", "<image>\nWhere?", (0,)), Message("assistant", "there")),
        images=(Picture(data=b"photo"),),
        calls=calls,
        token_ids=(5, 6, 7),
        loss_mask=(False, True, True),
        logprobs=(None, -0.5, -0.5),
        reward=Reward(total=float(right), accuracy=float(right), format=1.0, tool=None, why=""),
        tool_scores=(None,) * len(calls),
        advantage=advantage,
    )


STEPS = {
    # A question where a failure did the same as successes, and something else; and one that all fail.
    0: [
        rollout(0, True, 1.0, SEARCH, zoom(0)),
        rollout(0, True, 1.0, SEARCH),
        rollout(0, False, -2.0, SEARCH, zoom(0), ask("golf")),
        rollout(1, False, 0.0, SEARCH),
    ],
    # A query with similarity 0.3 x 3/4 + 0.5 + 0.2 x 19/23, and half of a crop.
    10: [
        rollout(2, True, 1.0, ask("legoland windsor park year"), zoom(0)),
        rollout(2, False, -1.0, ask("Legoland  Windsor park"), zoom(50)),
    ],
}


def write(folder: Path, credit: dict[str, Any] | None, *, logged: bool) -> Path:
    (folder / "trajectories").mkdir(parents=True)
    (folder / "recipe.yaml").write_text(yaml.safe_dump({"steps": 11, "credit": credit}))
    for step, found in STEPS.items():
        # As two processes would write them.
        for rank in range(2):
            mine = [t for t in found if t.group % 2 == rank]
            write_trajectories(folder / "trajectories" / f"step-{step:06d}-rank-{rank}.parquet", mine)
    cost = {"seconds_credit": 0.25} if logged else {}
    lines = [{"step": step, "source": "all", "seconds": 50.0, **cost} for step in STEPS]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def report(path: Path) -> dict[str, Any]:
    (run,) = run_credit([path])["runs"]
    return run


def test_the_correctable_share_is_reported_by_threshold(tmp_path: Path) -> None:
    run = report(write(tmp_path / "run", None, logged=False))
    assert (run["steps"], run["failing_trajectories"], run["failing_calls"]) == (2, 3, 6)
    shares = {round(row["theta"], 1): (row["trajectories"], row["calls"]) for row in run["correctable"]}
    # Exact matches in one of three; then the query (0.89) and the crop (1/3) of another one.
    assert shares[1.0] == (pytest.approx(1 / 3), pytest.approx(2 / 6))
    assert shares[0.8] == (pytest.approx(2 / 3), pytest.approx(3 / 6))
    assert shares[0.3] == (pytest.approx(2 / 3), pytest.approx(4 / 6))
    assert all(
        a["calls"] >= b["calls"] for a, b in zip(run["correctable"], run["correctable"][1:], strict=False)
    )


def test_support_is_reported_by_similarity(tmp_path: Path) -> None:
    bins = report(write(tmp_path / "run", None, logged=False))["support_by_similarity"]
    told = {round(row["low"], 1): (row["calls"], row["support"]) for row in bins if row["calls"]}
    # Both exact matches: the search is supported by both successes, the crop by one of two.
    assert told == {0.3: (1, 1.0), 0.8: (1, 1.0), 0.9: (2, 0.75)}
    assert [row["support"] for row in bins].count(None) == 7


def test_training_is_reported_by_step_and_tool(tmp_path: Path) -> None:
    run = report(write(tmp_path / "run", PAPER.model_dump(mode="json"), logged=True))
    assert run["transferred"]
    first, last = run["training"]
    assert (first["step"], last["step"]) == (0, 10)
    assert first["accuracy"] == last["accuracy"] == 0.5
    assert (first["correctable_trajectories"], first["correctable_calls"]) == (0.5, 0.5)
    assert (first["corrected"], last["corrected"]) == (2, 1)
    # The search: 0.25 x 1 x 1 x 1. The crop: 0.25 x 1 x 0.5 x 1. Two calls each.
    assert first["correction"] == pytest.approx((0.25 + 0.125) / 2)
    assert first["correction_relative"] == pytest.approx((0.25 + 0.125) / 4)
    tools = {(row["step"], row["tool"]): row for row in run["training_tools"]}
    assert set(tools) == {(0, "image_search"), (0, "zoom"), (10, "text_search"), (10, "zoom")}
    assert tools[0, "zoom"]["alpha"]["median"] == 0.5
    assert tools[10, "text_search"]["delta"]["mean"] == pytest.approx(0.3 * 3 / 4 + 0.5 + 0.2 * 19 / 23)
    assert tools[10, "zoom"]["corrected"] == 0
    # Δ in the figures: F of the search (1) and of the crop, which one of two successes supports (0.5).
    assert (first["gated_calls"], first["delta_gated"], first["delta_gated_why"]) == (
        2,
        pytest.approx(0.75),
        None,
    )
    assert tools[0, "zoom"]["delta_gated"]["median"] == pytest.approx(0.5)
    # Half of a crop passes no gate: it is in the mean over all calls, but has no Δ itself.
    assert tools[10, "zoom"]["delta"]["mean"] == pytest.approx(1 / 3)
    assert (tools[10, "zoom"]["gated"], tools[10, "zoom"]["delta_gated"]) == (0, None)
    assert last["delta"] < last["delta_gated"] == pytest.approx(0.3 * 3 / 4 + 0.5 + 0.2 * 19 / 23)
    assert run["tools"]["zoom"]["calls"] == 2


def test_the_cost_is_the_runs_if_it_logged_one(tmp_path: Path) -> None:
    cost = report(write(tmp_path / "run", PAPER.model_dump(mode="json"), logged=True))["cost"]
    assert cost == {"seconds_credit": 0.25, "seconds": 50.0, "share": 0.005, "measured": "in the run"}
    cost = report(write(tmp_path / "other", None, logged=False))["cost"]
    assert 0 < cost["share"] < 0.01
    assert cost["measured"].startswith("now")
    (tmp_path / "other" / "metrics.jsonl").unlink()
    assert report(tmp_path / "other")["cost"] is None


def test_the_constants_are_those_of_the_run(tmp_path: Path) -> None:
    only = {"beta": 1.0, "tools": {"zoom": {"similarity": 0.3, "confidence": 0.0}}}
    run = report(write(tmp_path / "run", only, logged=False))
    assert run["credit"] == only | {"support": True, "clip": True}
    assert set(run["tools"]) == {"zoom"}
    assert run["training"][1]["corrected"] == 1
    assert not report(write(tmp_path / "other", None, logged=False))["transferred"]


def test_the_command_shows_tables_or_one_document(tmp_path: Path) -> None:
    path = write(tmp_path / "run", None, logged=False)
    shown = vtune("report", str(path), "--credit")
    assert shown.code == 0, shown.err
    for words in (
        "by the paper's constants",
        "3 failing trajectories",
        "image_search",
        "66.7 %",
        "both phases",
    ):
        assert words in shown.out
    told = vtune("report", str(path), "--credit", "--json")
    assert json.loads(told.out)["runs"][0]["failing_calls"] == 6


def test_a_step_without_a_gated_call_says_why_it_has_no_delta(tmp_path: Path) -> None:
    path = write(
        tmp_path / "run",
        {"beta": 1.0, "tools": {"zoom": {"similarity": 0.7, "confidence": 0.9}}},
        logged=False,
    )
    first, last = report(path)["training"]
    why = "no call passes both gates in a trajectory that was punished"
    assert (first["delta_gated"], first["delta_gated_why"]) == (last["delta_gated"], last["delta_gated_why"])
    assert (first["delta_gated"], first["delta_gated_why"]) == (None, why)
    assert "no call passes" in vtune("report", str(path), "--credit").out


def test_folders_that_hold_no_such_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no recipe\.yaml"):
        run_credit([tmp_path])
    (tmp_path / "recipe.yaml").write_text("credit: null\n")
    with pytest.raises(DataError, match="there are no trajectories"):
        run_credit([tmp_path])
    path = write(tmp_path / "run", None, logged=False)
    (path / "recipe.yaml").write_text("credit: {beta: -1}\n")
    with pytest.raises(DataError, match="credit section cannot be read"):
        run_credit([path])
    (path / "recipe.yaml").write_text("- a list\n")
    with pytest.raises(DataError, match="credit section cannot be read"):
        run_credit([path])


def test_a_run_in_which_nothing_fails_has_gaps_not_zeros(tmp_path: Path) -> None:
    path = write(tmp_path / "run", None, logged=False)
    for file in (path / "trajectories").iterdir():
        file.unlink()
    right = replace(rollout(0, True, 0.0, SEARCH))
    write_trajectories(path / "trajectories" / "step-000000.parquet", [right])
    run = report(path)
    assert run["correctable"][0] == {"theta": 0.1, "trajectories": None, "calls": None}
    assert (run["tools"], run["training"][0]["delta"]) == ({}, None)
    assert (run["training"][0]["gated_calls"], run["training"][0]["delta_gated"]) == (0, None)
    assert run["training"][0]["delta_gated_why"] == "no failing trajectory has a call"
    assert vtune("report", str(path), "--credit").code == 0
