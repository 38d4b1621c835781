"""A run begins with a line about packages installed outside their range."""

import importlib.metadata
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.runs.commands import vtune
from vtune.runs import versions

Installed = Callable[[dict[str, str | None]], None]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Pretend that other versions are installed; the required ones are those of this checkout.

    The metadata of an editable install dates from the day of its installation.
    """
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    real = versions.version_of

    def put(others: dict[str, str | None]) -> None:
        monkeypatch.setattr(importlib.metadata, "requires", lambda name: known)
        monkeypatch.setattr(versions, "version_of", lambda name: others.get(name, real(name)))

    return put


def test_matching_versions_print_nothing(installed: Installed, capsys: pytest.CaptureFixture[str]) -> None:
    installed({})
    versions.warn_of_versions()
    assert capsys.readouterr().err == ""


def test_mismatched_versions_print_one_line(installed: Installed, capsys: pytest.CaptureFixture[str]) -> None:
    installed({"transformers": "5.17.0", "peft": "0.30.1", "rich": None})
    versions.warn_of_versions()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    for words in (
        "warning: vtune was not tested with transformers 5.17.0 (wanted <5.25,>=5.18), peft 0.30.1 (wanted ",
        "rich is missing (wanted >=14); pip install 'transformers==5.19.0' 'peft",
    ):
        assert words in said


@pytest.mark.parametrize("verb", ["rl", "sft", "eval"])
def test_a_verb_that_uses_a_model_says_so_at_its_start(
    verb: str, installed: Installed, tmp_path: Path
) -> None:
    """Before it fails, if it does: here there is no such model."""
    installed({"transformers": "5.17.0"})
    asked = {
        "rl": ["--recipe", "codev-tiny", "--set", f"model={tmp_path}/none"],
        "sft": ["--recipe", "codev-tiny", "--set", f"model={tmp_path}/none"],
        "eval": ["--suite", "vstar", "--model", str(tmp_path / "none")],
    }[verb]
    ended = vtune(verb, *asked, "--out", tmp_path / "run")
    assert ended.code != 0
    assert ended.err.startswith("warning: vtune was not tested with transformers 5.17.0 (wanted")
