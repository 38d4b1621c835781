"""Replies without a readable grade are unscored, and `--resume` asks again."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runs.commands import Ended, vtune
from tests.runs.evaluate.reading import JUDGED, reads
from tests.runs.evaluate.test_judged import NOWHERE, grader, serve, stable, words
from vtune.data.formats.table import FORMATS
from vtune.errors import RunFailed
from vtune.runs.evaluate.judged import CACHE
from vtune.schema.audit import keep_audit

SUITE = "mathvista"
REPLIES = JUDGED[SUITE][0]
LENIENT = ["--set", "reward.max_unscored=0.5"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    specimen = FORMATS[SUITE].specimen
    assert specimen is not None
    return specimen(tmp_path / "data").path


@pytest.fixture
def saying(saying: list[str]) -> list[str]:
    saying += REPLIES
    return saying


@pytest.mark.parametrize("said", ["", "%%% ☃ lorem {{"])
def test_resume_asks_again_for_replies_left_unscored(
    said: str, tiny: Path, data: Path, saying: list[str], tmp_path: Path
) -> None:
    def garbles(body: dict[str, Any]) -> str:
        return said if REPLIES[0] in str(body) else reads(body)

    out, whole = tmp_path / "out", tmp_path / "whole"
    asked = [*words(SUITE, "official", tiny, data, out), *LENIENT]
    with serve(garbles) as judge:
        ended = vtune(*asked, *grader(judge))
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert (found["score"]["score"], found["score"]["unscored"]) == (1.0, 1)
    assert len(found["grader"]["unscored"]) == 1
    assert len(judge.requests) == len(REPLIES) + 1  # it was asked for once more

    with serve(reads) as judge:
        again = vtune(*words(SUITE, "official", tiny, data, whole), *LENIENT, *grader(judge))
        assert again.code == 0, again.err
        judge.requests.clear()
        saying.clear()  # generating again would find nothing to say
        assert vtune(*asked, *grader(NOWHERE, retries=0), "--resume").code == 1
        assert json.loads((out / "results.json").read_text())["score"] == found["score"]
        ended = vtune(*asked, *grader(judge), "--resume")
        assert ended.code == 0, ended.err
        assert "1 asked again" in ended.err
        assert len(judge.requests) == 1
        found, wanted = stable(out), stable(whole)
        for tokens in ("input_tokens", "output_tokens"):
            assert found["grader"].pop(tokens) > wanted["grader"].pop(tokens)
        assert found == wanted
        assert len((out / CACHE).read_text().splitlines()) > len(REPLIES)
        assert "nothing is left to do" in vtune(*asked, *grader(judge), "--resume").err


def test_results_are_kept_until_another_grader_has_graded_all(
    tiny: Path, data: Path, saying: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def garbles(body: dict[str, Any]) -> str:
        return "" if REPLIES[0] in str(body) else reads(body)

    out = tmp_path / "out"
    with serve(garbles) as judge:
        assert vtune(*words(SUITE, "official", tiny, data, out), *LENIENT, *grader(judge)).code == 0
    keep_audit(out, {"all": {"n": 4}})
    names = ("results.json", "suite.yaml", "items.jsonl", "trajectories.parquet", "audit.json")
    unchanged = {name: (out / name).read_bytes() for name in names}
    saying.clear()  # generating again would find nothing to say

    def full_disk(*_: Any, **__: Any) -> None:
        raise RunFailed("no room")

    def resumed(*more: str) -> Ended:
        return vtune("eval", "--resume", "--out", out, "--json", *more)

    with serve(lambda _: "As an AI, I cannot.") as bad:
        ended = resumed(*grader(bad, model="other"))
    assert ended.code == 1
    assert "it has another model or other settings now, and is asked about all replies" in ended.err
    assert f"other is asked about {len(REPLIES)} replies\n" in ended.err
    assert f"{out / 'results.json'} is as it was" in ended.err
    for name, content in unchanged.items():
        assert (out / name).read_bytes() == content, name
    assert vtune("report", out, "--json").code == 0
    assert json.loads(vtune("report", out, "--json").out)["evaluations"][0]["grader"]["model"] == "judge"

    lives = [2]
    with serve(lambda body: reads(body) if len(good.requests) <= lives[0] else 500) as good:
        assert resumed(*grader(good, model="third", retries=0, concurrency=1)).code == 1  # it dies midway
        assert (out / "results.json").read_bytes() == unchanged["results.json"]
        good.requests.clear()
        lives[0] = 99
        with monkeypatch.context() as patch:
            patch.setattr("vtune.runs.evaluate.evaluation.write_atomically", full_disk)
            ended = resumed()  # by the grader named last
        assert "no room" in ended.err
        for name, content in unchanged.items():
            assert (out / name).read_bytes() == content, name
        assert not list(out.glob("*.new"))
        assert "what it said about 2 is kept" in ended.err
        assert len(good.requests) == len(REPLIES) - 2
        ended = resumed()
        assert ended.code == 0, ended.err
        assert len(good.requests) == len(REPLIES) - 2
    found = json.loads((out / "results.json").read_text())
    assert (found["grader"]["model"], found["score"]["unscored"]) == ("third", 0)
    assert "model: third" in (out / "suite.yaml").read_text()
    left = {"audit.json", "started.json", "suite.resumed.yaml", "trajectories", "ended", "unjudged.jsonl"}
    assert not left & {file.name for file in out.iterdir()}
