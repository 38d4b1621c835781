"""A record that names an unknown tool can be read: only running the tool requires it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reward.build import TARGET, looks, sample
from tests.runs.commands import vtune
from vtune.environments import ENVIRONMENTS
from vtune.runs.agent.unknown import unknown_tools
from vtune.schema.parquet import write_samples, write_trajectories
from vtune.tools import TOOLS

GONE = "tool_of_another_machine"
WARNING = f"warning: there is no tool '{GONE}' here"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Trajectories with calls of such a tool, and the samples that offer it."""
    assert GONE not in TOOLS
    done = looks(TARGET)
    calls = tuple(replace(call, tool=GONE) for call in done.calls)
    assert calls
    write_trajectories(tmp_path / "done.parquet", [replace(done, calls=calls)])
    write_samples(tmp_path / "asked.parquet", [replace(sample(TARGET), tools=(GONE,))])
    return tmp_path


def test_a_record_of_an_unknown_tool_is_shown_and_audited(kept: Path) -> None:
    done, data = kept / "done.parquet", ("--data", kept / "asked.parquet")
    shown = vtune("show", done, "done/0", *data)
    assert (shown.code, GONE in shown.out, shown.err.count(WARNING)) == (0, True, 1), shown.err
    audited = vtune("faithfulness", done, *data, "--json")
    assert (audited.code, audited.err.count(WARNING)) == (0, 1), audited.err
    assert json.loads(audited.out)["judged_by"] == {"boxes": 1, "model": 0}


@pytest.mark.parametrize(("name", "unknown"), [("maze_of_another", {"maze_of_another"}), ("tools", set())])
def test_actions_in_a_known_environment_are_not_unknown_tools(name: str, unknown: set[str]) -> None:
    assert "tools" in ENVIRONMENTS
    assert "tools" not in TOOLS
    done = looks(TARGET)
    assert (
        unknown_tools([replace(done, calls=tuple(replace(call, tool=name) for call in done.calls))])
        == unknown
    )


def test_samples_that_offer_an_unknown_tool_are_shown_exported_and_named_when_validated(kept: Path) -> None:
    data = kept / "asked.parquet"
    assert vtune("show", data).code == 0
    assert vtune("data", "inspect", data).code == 0
    assert vtune("data", "export", "samples", data, "--out", kept / "asked.jsonl").code == 0
    assert GONE in (kept / "asked.jsonl").read_text()
    validated = vtune("data", "validate", data)
    assert (validated.code, f"unknown tool '{GONE}'" in validated.out) == (2, True)
