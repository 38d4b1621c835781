"""The file in which a person decides on samples that a judge doubts."""

from pathlib import Path

from tests.curate.build import sample
from vtune.curate.judging import queue_row
from vtune.runs.curate.results import Results
from vtune.runs.curate.review import take_reviews, write_queue


def test_a_queue_is_read_back_whatever_line_separators_its_questions_hold(tmp_path: Path) -> None:
    odd = "Which\u2028one\u2029is\u0085it?"
    rows = [queue_row("ab" * 16, sample(odd), "doubtful", "wrong") | {"decision": "keep"}]
    write_queue(tmp_path / "queue.jsonl", rows)
    assert odd in (tmp_path / "queue.jsonl").read_text(encoding="utf-8")
    with Results(tmp_path / "reviews.jsonl") as reviews:
        assert take_reviews(tmp_path / "queue.jsonl", reviews) == 1
