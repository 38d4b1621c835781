"""Bad input of every kind, to every verb: a message and exit code 2, or a listed drop; never a traceback."""

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import HANGS, ROOT
from tests.fuzz.cases import Case, cases
from tests.fuzz.messages import messages
from tests.fuzz.world import build as build_world

SECONDS = 20.0
"""Limit in CPU seconds; about the same in wall-clock seconds on an idle machine."""
MEGABYTES = 1536.0
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters from data that must never reach a terminal."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return build_world(tmp_path_factory.mktemp("fuzz") / "world")


@pytest.fixture(scope="module")
def outcomes(
    world: dict[str, Any], tiny: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[Case, dict[str, Any]]:
    """The outcome of every command, all run from one warm process."""
    folder = tmp_path_factory.mktemp("commands")
    everything = list(cases(world))
    lines = [[word.replace("MODEL", str(tiny)) for word in case.words] for case in everything]
    (folder / "cases.json").write_text(json.dumps(lines))
    before = _inputs(world["samples"].parent.parent)
    subprocess.run(
        [sys.executable, "-m", "tests.fuzz.warm", "cases.json", "results.json", str(folder), str(tiny)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        check=True,
        timeout=HANGS,
    )
    results = json.loads((folder / "results.json").read_text())
    for number, result in enumerate(results):
        for stream in ("stdout", "stderr"):
            result[stream] = (folder / str(number) / stream).read_text(encoding="utf-8", errors="replace")
    assert _inputs(world["samples"].parent.parent) == before, "a command has changed what it was to read"
    return dict(zip(everything, results, strict=True))


def _inputs(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Type, size and modification time of every file."""
    found = {}
    for path in sorted(folder.rglob("*")):
        facts = path.lstat()
        when = 0 if stat.S_ISDIR(facts.st_mode) else facts.st_mtime_ns
        found[str(path)] = facts.st_mode, facts.st_size * bool(when), when
    return found


def _wrong(case: Case, result: dict[str, Any]) -> list[str]:
    """What a command did wrong."""
    told = result["stdout"] + result["stderr"]
    found = []
    if result["code"] not in case.codes:
        found.append(f"exit code {result['code']}, not one of {case.codes}")
    if "Traceback" in told:
        found.append("a traceback")
    if STEERING.search(told):
        found.append(f"control characters: {STEERING.search(told)!r}")
    if result["seconds"] > SECONDS:
        found.append(f"{result['seconds']:.1f} s")
    if result["mb"] > MEGABYTES:
        found.append(f"{result['mb']:.0f} MB")
    found += [f"it does not say {text!r}" for text in case.says if text not in told]
    if result["code"] and not result["stderr"].strip() and not result["stdout"].strip():
        found.append("it says nothing")
    return found


def test_there_are_300_distinct_cases_covering_every_verb(world: dict[str, Any]) -> None:
    everything = list(cases(world))
    assert len({case.words for case in everything}) >= 300
    assert len({case.name for case in everything}) == len(everything)
    verbs = {"demo", "data", "curate", "sft", "rl", "eval", "export", "faithfulness", "report", "serve"}
    assert verbs | {"compare", "doctor", "sandbox", "recipes"} <= {case.words[0] for case in everything}


def test_bad_input_is_a_message_and_never_a_traceback(outcomes: dict[Case, dict[str, Any]]) -> None:
    assert len(outcomes) >= 300
    wrong = []
    for case, result in outcomes.items():
        if found := _wrong(case, result):
            told = (result["stderr"] + result["stdout"])[-600:]
            wrong.append(f"{case.name}: {'; '.join(found)}\n    vtune {' '.join(case.words)[:300]}\n{told}")
    assert not wrong, f"{len(wrong)} of {len(outcomes)}\n" + "\n".join(wrong)


def test_the_messages_match_the_golden_file(
    outcomes: dict[Case, dict[str, Any]],
    world: dict[str, Any],
    tiny: Path,
    golden: Callable[[str, str], None],
) -> None:
    folders = {world["samples"].parent.parent: "DATA", tiny: "MODEL", ROOT: "VTUNE"}
    golden("errors.txt", messages(outcomes, folders))


CONSOLE = {
    "a device as an output": ("data", "export", "verl", "lens/train.parquet", "--out", "special/full"),
    "escapes in a name": ("data", "inspect", "\x1b[31m[/]\u202e.parquet"),
}
"""Cases to run as the installed console script, which otherwise behaves like the warm process."""


@pytest.mark.parametrize("name", CONSOLE)
def test_the_installed_command_gives_the_same_messages(name: str, world: dict[str, Any]) -> None:
    folder = world["samples"].parent.parent
    script = Path(sys.executable).with_name("vtune")
    result = subprocess.run(
        [script, *CONSOLE[name]], cwd=folder, capture_output=True, text=True, timeout=HANGS
    )
    assert result.returncode == 2, result.stderr
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    assert STEERING.search(result.stderr) is None
