"""Groups: what a paper reports together, as far as suites exist."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runs.commands import vtune
from tests.runs.evaluate.scripted import asked as questions
from tests.runs.evaluate.scripted import write_script
from vtune.config import find, load_recipe, shipped
from vtune.data.formats.specimens_tsv import countbench
from vtune.errors import RunFailed
from vtune.runs.evaluate.groups import GROUPS, SUITES, Asked, Group, Named, asked, run_several
from vtune.runs.evaluate.published import published_rows
from vtune.runs.evaluate.suite import EvalSuite

SHIPPED = {name: load_recipe(find(name, GROUPS), Group) for name in shipped(GROUPS)}


def test_a_path_with_a_comma_is_one_suite(tmp_path: Path) -> None:
    file = tmp_path / "a,b.yaml"
    file.write_text("scorer: mean\n")
    assert [one.path for one in asked(str(file)).suites] == [file]


def test_every_group_member_is_a_shipped_suite() -> None:
    assert len(SHIPPED) > 3
    suites = set(shipped(SUITES))
    assert {one for group in SHIPPED.values() for one in group.members} <= suites
    assert {one for group in SHIPPED.values() for one in group.without_suite} & suites == set()


def test_a_group_has_every_suite_with_a_published_number() -> None:
    rows = published_rows()
    assert len(rows) > 50
    for _, suite, name in rows.values():
        assert any(suite in group.members for group in SHIPPED.values()), f"{suite} of {name}"
    assert SHIPPED["orsta-table3"].average is None  # the paper gives none


def test_a_group_with_a_failing_suite_has_the_others_and_reports_the_failure(tmp_path: Path) -> None:
    data = tmp_path / "d.parquet"
    data.touch()
    suite = load_recipe(find("lens", SUITES), EvalSuite, [f"data=[{data}]"])
    group = Group(members=("good", "bad"), without_suite=(), average="mean")
    named = tuple(Named(name, Path(f"{name}.yaml"), "mine") for name in group.members)

    def run(name: str, _: EvalSuite) -> dict[str, Any]:
        if name == "bad":
            raise RunFailed("too many unscored")
        return {"score": {"score": 0.5}}

    found = run_several(Asked(named, {"mine": group}), lambda _: suite, lambda *_: None, run)
    assert found["failed"] == {"bad": "too many unscored"}
    assert found["groups"]["mine"]["scores"] == {"good": 0.5}
    assert found["groups"]["mine"]["reasons"] == {"bad": "too many unscored"}
    assert found["groups"]["mine"]["average"] is None


def test_a_member_without_a_rule_under_the_protocol_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = countbench(tmp_path).path
    monkeypatch.setenv("VTUNE_DATA", str(tmp_path))
    group = tmp_path / "mine.yaml"
    group.write_text("members: [treebench, countbench]\nwithout_suite: []\naverage: mean\n")
    replies = {one.id: ["3"] for one in questions("countbench", data)} | {"none": ["3"]}
    model = write_script(tmp_path / "r.jsonl", replies)
    words = ["--model", model, "--agent", "direct", "--set", "published.md5=null", "--out", tmp_path / "out"]
    ended = vtune("eval", "--suite", group, "--protocol", "lmms-eval", *words, "--json")
    assert ended.code == 0, ended.err
    # The suites are checked together and then one by one: a warning is printed only once.
    assert ended.err.count("1 id(s) in") == 1
    found = json.loads(ended.out)
    assert list(found["evaluations"]) == ["countbench"]
    why = "protocol `lmms-eval` has no rule for questions of the kind `treebench`"
    assert found["missing"] == {"treebench": why}
    assert found["groups"]["mine"]["missing"] == ["treebench"]
    shown = vtune("eval", "--suite", group, "--protocol", "lmms-eval", *words, "--resume")
    assert shown.code == 0, shown.err
    assert "missing: protocol `lmms-eval` has no rule" in " ".join(shown.out.split())
    assert found["groups"]["mine"]["no_average"] == "missing: treebench"
    alone = vtune("eval", "--suite", "treebench,countbench", "--protocol", "lmms-eval", *words, "--resume")
    assert (alone.code, why in alone.err) == (2, True)
