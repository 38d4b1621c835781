"""Progress messages for slow reading of data."""

import pytest

from vtune.report import progress
from vtune.report.progress import Bytes, Rows, followed


def test_progress_over_a_known_number_of_rows_shows_the_total(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "EVERY", -1.0)
    with Rows("check", total=3, brief=True) as rows:
        rows.advance()
    with Rows("index") as rows:
        rows.advance()
    assert capsys.readouterr().err.splitlines()[0] == "check: 1 of 3 rows"
    Bytes("fingerprint", 4_000_000_000).advance(500_000_000)
    assert capsys.readouterr().err == "fingerprint: 0.5 of 4.0 GB\n"


def test_fast_reading_shows_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with Rows("check", total=1, brief=True) as rows:
        rows.advance()
    Bytes("fingerprint", 9).advance(9)
    assert capsys.readouterr().err == ""


def test_progress_follows_generated_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(followed("train", "abc", 3)) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "EVERY", -1.0)
    assert list(followed("train", "ab", 3)) == ["a", "b"]
    assert capsys.readouterr().err.splitlines() == [
        "train: 1 of 3 rows",
        "train: 2 of 3 rows",
        "train: 2 rows",
    ]
