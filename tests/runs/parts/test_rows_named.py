"""A user's part that fails, decides nonsense or does not return: the message names the row."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.conftest import ROOT
from tests.reward.build import TARGET, looks, recipe, sample
from tests.runs.commands import Ended, vtune
from tests.schema.records import SAMPLE
from vtune.cli import waiting
from vtune.errors import BrokenPart, RunFailed
from vtune.reward.checking import check_unscored
from vtune.reward.evidence_judge import opened_judge
from vtune.reward.score import Scorer
from vtune.schema.parquet import write_samples
from vtune.schema.verdict import Verdict
from vtune.uses import broken, use

pytestmark = pytest.mark.usefixtures("forgetting")

HERE = "        return %s\n\n    async def shows_small"
SHORT = (ROOT / "tests/own/short.py").read_text(encoding="utf-8")
RULE = 'return f"{count} words" if count > settings.words else None'
ALL = """
from vtune.curate.filters import FILTERS, Corpus, FilterPart, Like
from vtune.curate.item import Selected
from vtune.schema.sample import Sample


class All(Selected):
    "Drops what it says."


def key(settings, item):
    return item.sample.id


def decide(settings, entries, rng):
    return HERE


FILTERS.add("all", FilterPart(All, Corpus(key, decide)))
"""


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def curated(text: str, folder: Path, **keys: object) -> Ended:
    """A curation of three rows by the filter of a user's file."""
    (folder / "mine.py").write_text(text, encoding="utf-8")
    write_samples(folder / "s.parquet", [replace(SAMPLE, id=f"s/{number}") for number in range(3)])
    recipe = {
        "records": "samples",
        "uses": ["mine.py"],
        "seed": 0,
        "sources": {"s": {"files": [str(folder / "s.parquet")], "rename": False, "data_source": None}},
        "filters": [{"rows": "all", **keys}],
        "mix": {},
    }
    (folder / "r.yaml").write_text(json.dumps(recipe))
    return vtune("curate", folder / "r.yaml", "--out", folder / "out")


@pytest.mark.parametrize("fails", ["{}['no']", "'' if item.sample.id == 's/1' else None", "1 / 0"])
def test_a_filter_that_fails_names_the_row(tmp_path: Path, fails: str) -> None:
    only = f"({fails}) if item.sample.id == 's/1' else None"
    ended = curated(SHORT.replace(RULE, f"return {only}"), tmp_path, filter="short", words=3)
    assert ended.code == 1
    assert f"(sample 's/1', row 1 of {tmp_path}/s.parquet)" in ended.err
    assert not (tmp_path / "out/samples.parquet").exists()


def test_a_key_that_fails_names_the_row(tmp_path: Path) -> None:
    text = ALL.replace("HERE", "{}").replace("return item.sample.id", "return {'s/0': 0}[item.sample.id]")
    ended = curated(text, tmp_path, filter="all")
    assert ended.code == 1
    assert f"(sample 's/1', row 1 of {tmp_path}/s.parquet)" in ended.err


@pytest.mark.parametrize(
    "decided",
    ["[1]", "None", "{-1: 'x'}", "{3: 'x'}", "{'1': 'x'}", "{True: 'x'}", "{1: Like('as', -1)}", "{1: None}"],
)
def test_a_filter_over_all_rows_that_decides_nonsense_drops_nothing(tmp_path: Path, decided: str) -> None:
    """-1 would drop the last row."""
    ended = curated(ALL.replace("HERE", decided), tmp_path, filter="all")
    assert ended.code == 1, ended.err
    assert "filter `all` of mine.py is broken: TypeError: " in ended.err
    assert not (tmp_path / "out/drops.jsonl").exists()


def test_a_filter_over_all_rows_may_count_with_numpy(tmp_path: Path) -> None:
    decided = "{__import__('numpy').int64(1): 'x'}"
    assert curated(ALL.replace("HERE", decided), tmp_path, filter="all").code == 0
    (line,) = (tmp_path / "out/drops.jsonl").read_text().splitlines()
    assert json.loads(line)["id"] == "s/1"


def test_half_a_surrogate_pair_in_a_reason_can_be_stored(tmp_path: Path) -> None:
    assert (
        curated(
            SHORT.replace(RULE, "return 'a\\ud800' if item.sample.id == 's/1' else None"),
            tmp_path,
            filter="short",
            words=3,
        ).code
        == 0
    )
    assert "a?" in (tmp_path / "out/drops.jsonl").read_text("utf-8")
    assert Verdict(1.0, "a\ud800").why == "a?"


@pytest.mark.parametrize(("why", "parts"), [(None, {}), (5, {}), ("it is", {3: 1.0})])
def test_a_verdict_has_texts_where_they_are_due(why: object, parts: object) -> None:
    with pytest.raises(TypeError, match="write a text"):
        Verdict(1.0, why, parts)  # type: ignore[arg-type]


def test_a_part_that_does_not_return_is_named_with_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOOK", 0.01)
    monkeypatch.setattr(waiting, "PATIENCE", 0.05)
    late = "return __import__('time').sleep(0.5 * (item.sample.id == 's/1'))"
    ended = curated(SHORT.replace(RULE, late), tmp_path, filter="short", words=3)
    assert ended.code == 0
    first = next(line for line in ended.err.splitlines() if "has not returned" in line)
    assert first.startswith("filter `short` of mine.py has not returned for 0 s (sample 's/1'): it is at ")
    assert f"mine.py:{SHORT[: SHORT.index(RULE)].count(chr(10)) + 1} (return" in first
    assert ended.err.count("has not returned") < 6  # the wait doubles; there are 50 looks


def test_a_file_that_does_not_load_is_named_while_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOOK", 0.01)
    monkeypatch.setattr(waiting, "PATIENCE", 0.05)
    ended = curated("import time; time.sleep(0.5)\n" + SHORT, tmp_path, filter="short", words=3)
    assert ended.code == 0
    assert "a part of mine.py has not returned for 0 s: it is at mine.py:1 (import time" in ended.err


def test_an_unscored_sample_is_named_and_a_process_that_ended_is_not_called_slow() -> None:
    lost = Mock(sample_id="s/7", reward=Mock(total=None, why="accuracy: the worker of verifier `math` died"))
    with pytest.raises(RunFailed) as failed:
        check_unscored([lost], 0.05)
    assert failed.value.where.endswith("died (sample 's/7')")


@pytest.mark.parametrize("given", ["'no'", "0", "'yes'"])
def test_an_evidence_judge_answers_the_audit_with_true_or_false(tmp_path: Path, given: str) -> None:
    """The text "no" counted as yes."""
    text = (ROOT / "tests/own/near.py").read_text(encoding="utf-8")
    (tmp_path / "mine.py").write_text(
        text.replace("        return False\n\n    async def shows_small", HERE % given)
    )
    use([tmp_path / "mine.py"])
    judge = opened_judge("near", recipe().evidence, None)
    with pytest.raises(BrokenPart, match=f"mine.py is broken: TypeError: `shows_target` returns {given}"):
        asyncio.run(judge.shows_target(sample(TARGET), looks((0, 0, 9, 9)), 0))


def test_an_evidence_judge_that_returns_no_verdict_is_named_with_its_line_and_the_sample(
    tmp_path: Path,
) -> None:
    text = (ROOT / "tests/own/near.py").read_text(encoding="utf-8")
    (path := tmp_path / "mine.py").write_text(
        text.replace('return Verdict(self._levels.full, "near: on a target")', 'return "full"').replace(
            "return Verdict(self._levels.miss", 'return "miss" or Verdict(self._levels.miss'
        )
    )
    use([path])
    judge, asked = opened_judge("near", recipe().evidence, None), sample(TARGET)
    with pytest.raises(BrokenPart, match="`judge` returns str, not Verdict") as failed:
        asyncio.run(judge.judge(asked, looks((0, 0, 9, 9)), 0))
    assert repr(asked.id) in failed.value.what
    assert failed.value.where.startswith(f"{path}:")


def test_a_part_of_the_reward_cannot_change_the_scores_of_others(tmp_path: Path) -> None:
    text = (ROOT / "tests/own/brief.py").read_text(encoding="utf-8")
    line = "    words = len("
    (tmp_path / "mine.py").write_text(
        text.replace(line, f"    scene.found['accuracy'] = Verdict(1.0, '')\n{line}")
    )
    use([tmp_path / "mine.py"])

    async def scored() -> None:
        async with Scorer(recipe(parts={"brief": {"weight": 0.2, "words": 60}})) as scorer:
            await scorer.score([sample(TARGET)], [looks(TARGET)])

    with pytest.raises(TypeError, match="item assignment") as failed:
        asyncio.run(scored())
    assert "part of the reward `brief` of mine.py" in str(broken(failed.value))
