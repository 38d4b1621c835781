"""Answers graded several at a time: how they are grouped into calls, and the effect of a failed call."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.judge.batch_server import serve_batches
from tests.judge.server import serve as serve_any
from tests.runs.commands import vtune
from tests.runs.evaluate.reading import reads
from tests.runs.evaluate.rereading import reread
from tests.runs.evaluate.scripted import evaluate, evaluated, write_script
from tests.runs.evaluate.test_judged import grader
from vtune.data.formats.specimens import coded
from vtune.data.formats.specimens_tsv import table
from vtune.runs.evaluate.judged import CACHE
from vtune.runs.evaluate.unjudged import UNJUDGED

SUITE = "charxiv-descriptive"
TEMPLATES = [2, 18, 2, 2, 2, 2, 18, 2, 2]
"""Templates of nine questions: seven of one, two of another."""
serve = partial(serve_any, greets=True)


def named(number: int) -> str:
    return f"{SUITE}/{number}"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [
        {
            "index": str(number),
            "image": coded(number),
            "question": f"Question {number}?",
            "grading_query": f"* Ground Truth: truth {number}\n* Response: {{PREDICTION}}\n",
            "qid": str(template),
        }
        for number, template in enumerate(TEMPLATES)
    ]
    return table(tmp_path / "CharXiv_descriptive_val.tsv", rows)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """All are right except the fourth, which is empty, and the last."""
    said = [f"truth {number}" for number in range(9)]
    said[3], said[8] = "", "another"
    return write_script(tmp_path / "r.jsonl", {named(n): [text] for n, text in enumerate(said)})


def words(*more: str) -> tuple[str, ...]:
    return ("--agent", "direct", "--protocol", "official", *more)


def truths(body: dict[str, Any]) -> list[int]:
    """The questions in a request."""
    return [
        int(n)
        for n in re.findall(r'Ground Truth \d: "truth (\d)"', body["messages"][1]["content"][0]["text"])
    ]


def test_a_call_holds_five_answers_of_one_template_in_data_order(
    data: Path, model: str, tmp_path: Path
) -> None:
    with serve(reads) as judge:
        found = evaluated(SUITE, model, data, tmp_path / "out", *words(*grader(judge)))
    assert sorted(map(truths, judge.requests)) == [[0, 2, 3, 4, 5], [1, 6], [7, 8]]
    assert (found["score"]["score"], found["score"]["unreadable"]) == (pytest.approx(7 / 9), 1)
    assert found["grader"]["words"] == "ours"
    templates = found["score"]["facets"]["qid"]
    assert (templates["18"]["score"], templates["2"]["score"]) == (1.0, pytest.approx(5 / 7))
    with serve(reads) as judge:  # nothing that was answered is asked again
        again = reread(tmp_path / "out", "official")
        assert not judge.requests
    assert (again.score, again.items) == (found["score"]["score"], 0)


def test_each_rollout_has_separate_calls(data: Path, model: str, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    lines.append({"id": named(0), "rollout": 1, "turns": ["wrong"]})
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, lines)))
    more = ("--set", "rollouts=2")
    with serve(reads) as judge:
        found = evaluated(SUITE, model, data, tmp_path / "out", *words(*grader(judge), *more))
    # Calls that are the same in both rollouts are made once.
    assert sorted(map(truths, judge.requests)) == [[0, 2, 3, 4, 5], [0, 2, 3, 4, 5], [1, 6], [7, 8]]
    assert found["score"]["score"] == pytest.approx((7 + 6) / 18)


def test_batches_give_the_same_grades(data: Path, model: str, tmp_path: Path) -> None:
    with serve_batches(reads) as server:
        more = grader(server, batch=True, batch_poll_s=0.01)
        found = evaluated(SUITE, model, data, tmp_path / "out", *words(*more))
    assert (len(server.single), [len(file.splitlines()) for file in server.files]) == (1, [2])
    assert found["score"]["score"] == pytest.approx(7 / 9)


def test_an_unreadable_call_leaves_only_its_answers_unscored(data: Path, model: str, tmp_path: Path) -> None:
    def mumbles(body: dict[str, Any]) -> str:
        return "hm" if 2 in truths(body) else reads(body)

    with serve(mumbles) as judge:
        ended = evaluate(SUITE, model, data, tmp_path / "out", *words(*grader(judge)))
        assert ended.code == 1
        assert "4 of 9 replies have no grade" in ended.err
        more = ("--set", "reward.max_unscored=0.5")
        found = evaluated(SUITE, model, data, tmp_path / "lenient", *words(*grader(judge), *more))
    # The reply without an answer is wrong anyway.
    assert found["grader"]["unscored"] == [named(n) for n in (0, 2, 4, 5)]
    score = found["score"]
    assert (score["score"], score["unscored"], score["unreadable"]) == (pytest.approx(3 / 5), 4, 1)


def test_answers_left_by_a_dead_judge_are_named_and_the_run_can_resume(
    data: Path, model: str, tmp_path: Path
) -> None:
    def dies(body: dict[str, Any]) -> str | int:
        return 500 if 7 in truths(body) else reads(body)

    out = tmp_path / "out"
    with serve(dies) as dying:
        ended = evaluate(SUITE, model, data, out, *words(*grader(dying, retries=0)))
    assert ended.code == 1
    assert f"2 of 9 replies have no grade: {named(7)}, {named(8)}" in ended.err
    assert len((out / UNJUDGED).read_text().splitlines()) == 2
    kept = len((out / CACHE).read_text().splitlines())
    with serve(reads) as judge:
        found = evaluated(SUITE, model, data, out, *words(*grader(judge)), "--resume")
    assert (kept, len(judge.requests)) == (2, 1)
    assert found["score"]["score"] == pytest.approx(7 / 9)
    assert vtune("eval", "--out", out, "--against", out).code == 0
