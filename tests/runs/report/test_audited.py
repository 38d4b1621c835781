"""Audit results in the terminal, in the document and on pages."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.runs.commands import vtune
from tests.runs.report.test_document import LINES, write_run
from vtune.metrics.calibration import Judged, calibration
from vtune.metrics.calls import calls_of
from vtune.metrics.counterfactual import Answered, Rerun, dependence
from vtune.metrics.faithfulness import faithfulness
from vtune.reward.audit import AuditRow
from vtune.runs.view.opened import Opened
from vtune.runs.view.overview import overview
from vtune.schema.audit import keep_audit, read_audit
from vtune.view.place import find_places


def found() -> dict[str, Any]:
    """Audit results of eight right answers: two judges, one exchange, and labels."""
    rows = [
        AuditRow(
            sample_id=str(n), source="q", cluster=str(n), correct=True, calls=1, any_faithful=n < 6,
            flagged=0, helpful=int(n < 6), first=1 if n < 6 else None, looked=True, accepted=n < 6 or None,
        )
        for n in range(8)
    ]  # fmt: skip
    answered = [
        Answered(
            cluster=str(n), source="q", pixels=1, calls=1, correct=True, faithful=n < 6, looked=True,
            reruns={"black": Rerun(right=n % 2 == 0, tokens=9)},
        )
        for n in range(8)
    ]  # fmt: skip
    judged = [
        Judged(cluster=str(n), correct=True, target=0.01, said=n < 36 or n >= 58, truth=n < 40)
        for n in range(60)
    ]
    one = asdict(calibration(judged, seed=0))
    people = {
        "labels": "labels.jsonl", "labelled": 30, "not_found": 0, "looks": {}, "calibration": one,
        "answers": {"all": {"n": 30, "agree": 0.9, "kappa": 0.8, "first_only": 2, "second_only": 1}},
    }  # fmt: skip
    return {
        "all": asdict(faithfulness(rows, seed=0, max_unaudited=0.5)),
        "sources": {"q": asdict(faithfulness(rows, seed=0, max_unaudited=0.5))},
        "calls": {name: asdict(calls) for name, calls in calls_of(rows, seed=0, max_unaudited=0.5).items()},
        "note": "by a model, as in a paper",
        "judges": {"mine": one},
        "counterfactual": {
            "model": "runs/m", "temperature": 1.0, "drawn": 8, "tokens": 72, "record": "counterfactual.jsonl",
            "exchanges": {"black": asdict(dependence(answered, "black", seed=0, max_unscored=1.0))},
        },
        "people": people,
    }  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = write_run(tmp_path / "mine", LINES)
    keep_audit(folder, found() | {"path": "left out"})
    return folder


def test_a_report_shows_audit_results_also_as_json(run: Path) -> None:
    shown = vtune("report", run)
    assert shown.code == 0, shown.err
    for text in (
        "mine: what `vtune faithfulness` has found",
        "75.0 % of the right answers rest on a call", "drop-", "unhelpful", "judges of looks against boxes",
        "a perfect judge", "calls: by a model, as in a paper", "dependent, of", "labels of people: 30",
        "wrongly right 2",
    ):  # fmt: skip
        assert text in shown.out, text
    (told,) = json.loads(vtune("report", run, "--json").out)["runs"]
    kept = found()
    assert told["audit"] == json.loads(json.dumps(kept))
    assert told["audit"]["calls"]["correct"]["drop_unhelpful"]["value"] == 1.0
    assert told["audit"]["calls"]["correct"]["keep_unhelpful"]["value"] == 0.75


def test_the_page_of_a_run_has_a_table_of_each(run: Path) -> None:
    (place,) = find_places(run)
    page = overview(Opened(place, show=False))
    assert page["problem"] == ""
    tables = {table["title"].split(",")[0]: table for table in page["tables"]}
    looks = tables["looks"]
    assert looks["rows"][0][:2] == ["all", "8"]
    assert looks["rows"][0][3].startswith("75.0 [")
    assert looks["note"].startswith("75.0 % of the right answers rest on a call")
    assert looks["note"].endswith("; by a model, as in a paper")
    calls = tables["calls"]
    assert calls["head"][5:7] == ["keep-unhelpful", "drop-unhelpful"]
    assert calls["note"] == "calls: by a model, as in a paper"
    assert calls["rows"][0][5].startswith("75.0 [")
    assert tables["right answers with other pictures"]["rows"][0][:2] == ["black", "8"]
    corrected = tables["faithful of right answers with calls"]
    name, n, said, share, *_ = corrected["rows"][0]
    assert (name, n) == ("mine", "60")
    assert said == "63.3 %"
    assert share.startswith("66.7 [")
    assert tables["labels of people against verifiers"]["rows"] == [["all", "30", "0.9", "0.8", "2", "1"]]
    assert "perfect judge" in tables["judges of looks against boxes"]["note"]


def test_a_shared_page_also_has_audit_results(run: Path, tmp_path: Path) -> None:
    ended = vtune("report", run, "--html", tmp_path / "page.html")
    assert ended.code == 0, ended.err
    page = (tmp_path / "page.html").read_text()
    assert "drop-unhelpful" in page
    assert "as a perfect judge would" in page


def test_removed_labels_are_dropped_and_unrequested_results_are_kept(run: Path) -> None:
    keep_audit(run, {"calls": found()["calls"], "people": {}})
    assert read_audit(run) == json.loads(json.dumps({k: v for k, v in found().items() if k != "people"}))
    assert "labels of people" not in vtune("report", run).out


def test_an_unaudited_run_shows_nothing_and_a_damaged_audit_is_reported(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "other")
    (tmp_path / "other/audit.json").unlink()
    (told,) = json.loads(vtune("report", tmp_path / "other", "--json").out)["runs"]
    assert "audit" not in told
    (run / "audit.json").write_text('{"judges": {"mine": 3}}')
    ended = vtune("report", run)
    assert ended.code == 2
    assert "audit.json" in ended.err
    assert "remove it" in ended.err
