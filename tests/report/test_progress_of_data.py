"""How far the reading of data is, where it lasts."""

import pytest

from vtune.report import progress
from vtune.report.progress import Bytes, Rows, followed


def test_rows_that_are_counted_say_how_many_there_are(
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


def test_what_is_soon_done_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Rows("check", total=1, brief=True) as rows:
        rows.advance()
    Bytes("fingerprint", 9).advance(9)
    assert capsys.readouterr().err == ""


def test_rows_that_are_made_one_by_one_are_followed(
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
