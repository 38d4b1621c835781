"""The scorers of VLMEvalKit and lmms-eval agree with our protocols on our exports: `make test-harness`.

Skipped if their environment, `.venv-harness`, does not exist.
"""

import json
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.harness.questions import SUITES
from tests.pages import text_of
from tests.runs.commands import vtune
from tests.runs.evaluate.scripted import asked, evaluated, write_script
from vtune.runs.evaluate.finished import read_finished
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

PYTHON = ROOT / ".venv-harness/bin/python"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="make test-harness makes .venv-harness"),
]


@dataclass(frozen=True)
class Known:
    """A known reason why upstream scores a reply differently."""

    why: str
    of: Callable[[str, Sample], bool]
    """Whether the reason applies to a reply."""


PHRASE = Known(
    "ms-vlmeval 0.0.20 is older than e8e78f05, which takes the letter behind `answer is`",
    lambda reply, _: bool(re.search(r"answer\s+is\s+\**[ABCD]", reply, re.IGNORECASE)),
)
COMMA = Known(
    "ms-vlmeval 0.0.20 lacks two commas that e8e78f05 has: four phrases are not taken out",
    lambda reply, _: bool(re.search(r"Best (answer|option):|The (best|correct) option is", reply)),
)
KNOWN: Mapping[tuple[str, str], tuple[Known, ...]] = {
    ("vlmevalkit", "vstar"): (PHRASE,),
    ("vlmevalkit", "hrbench-4k"): (PHRASE,),
    ("vlmevalkit", "mmmu"): (PHRASE,),
    ("vlmevalkit", "mathvista"): (PHRASE,),
    ("vlmevalkit", "mme-realworld-lite"): (COMMA,),
}
"""(harness, suite) -> why scores differ."""
HARNESSES = ("vlmevalkit", "lmms-eval")


@pytest.fixture(scope="module", params=HARNESSES)
def scored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The name of a harness, and a folder with our evaluations and the harness's scores."""
    harness, folder = request.param, tmp_path_factory.mktemp("upstream")
    for suite in SUITES:
        _evaluated(suite, harness, folder / suite)
    _upstream(harness, list(SUITES), folder)
    return harness, folder


@pytest.mark.parametrize("suite", SUITES)
def test_upstream_scores_an_export_like_our_protocol(scored: tuple[str, Path], suite: str) -> None:
    harness, folder = scored
    found = json.loads((folder / "found.json").read_text())[suite]
    finished = read_finished(folder / suite / "e")
    numbers = {name: str(number) for number, name in enumerate(finished.samples)}
    indices = {name: str(one.extra.get("index", numbers[name])) for name, one in finished.samples.items()}
    drawn = list(finished.trajectories())
    assert len(found) == len(drawn) > 100
    assert len({_score(t) for t in drawn}) == 2
    known = KNOWN.get((harness, suite), ())
    differ = [t for t in drawn if _score(t) != found[indices[t.sample_id]]]
    row = f"| `{suite}` | {harness} | {len(drawn)} | {len(drawn) - len(differ)} | {len(differ)} |"
    why = {t.reply: [one for one in known if one.of(t.reply, finished.samples[t.sample_id])] for t in differ}
    assert {reply: reasons for reply, reasons in why.items() if not reasons} == {}
    assert {one.why for reasons in why.values() for one in reasons} == {one.why for one in known}, "no longer"
    assert row in text_of("vtune/protocols/README.md"), row


def test_inspect_reads_our_exported_log(tmp_path: Path) -> None:
    _evaluated("countbench", "vlmevalkit", tmp_path / "countbench", "inspect")
    _upstream("inspect", ["countbench"], tmp_path)
    found = json.loads((tmp_path / "found.json").read_text())["countbench"]
    finished = read_finished(tmp_path / "countbench/e")
    ours = {str(finished.samples[t.sample_id].extra["index"]): _score(t) for t in finished.trajectories()}
    assert found == ours


def _score(trajectory: Trajectory) -> float:
    """The score by our protocol; for unreadable replies upstream's fallback, if it is deterministic."""
    reward = trajectory.reward
    assert reward is not None
    assert reward.accuracy is not None
    return max(reward.accuracy, float(reward.parts["fallback"] == 1.0))


def _evaluated(suite: str, protocol: str, folder: Path, harness: str | None = None) -> None:
    """Evaluate replies in `folder`/e and export them to `folder`/x."""
    folder.mkdir()
    data, replies = SUITES[suite](folder)
    names = [sample.id for sample in asked(suite, data)]
    assert len(names) == len(replies)
    model = write_script(folder / "r.jsonl", {n: [reply] for n, reply in zip(names, replies, strict=True)})
    evaluated(suite, model, data, folder / "e", "--agent", "direct", "--protocol", protocol)
    ended = vtune("export", folder / "e", folder / "x", "--as", harness or protocol)
    assert ended.code == 0, ended.err
    (folder / "data").write_text(str(data))


def _upstream(harness: str, suites: list[str], folder: Path) -> None:
    jobs = [(suite, str(folder / suite / "x"), (folder / suite / "data").read_text()) for suite in suites]
    (folder / "jobs.json").write_text(json.dumps(jobs))
    script = ROOT / "tests/harness/upstream.py"
    words = [PYTHON, script, harness, folder / "jobs.json", folder / "found.json"]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=folder, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
