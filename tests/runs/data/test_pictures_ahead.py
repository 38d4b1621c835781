"""Pictures are read ahead of their records."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runs.data.test_validating import encoded
from vtune.errors import DataError
from vtune.report import progress
from vtune.report.progress import Rows
from vtune.runs.data import pictures_ahead as ahead
from vtune.runs.data.pictures_ahead import AHEAD, THREADS, opening
from vtune.schema.message import Picture

GOOD, BAD = encoded(40, 30), b"no picture"
SOME = 4 * AHEAD * THREADS


def pictures(record: list[bytes]) -> list[Picture]:
    return [Picture(data=data) for data in record]


def test_records_keep_their_order_and_pictures(tmp_path: Path) -> None:
    records = [[encoded(30 + n, 30 + k) for k in range(n % 3)] for n in range(50)]
    found = [
        (record, [one.size for one in opened.facts()])
        for record, opened in opening(records, pictures, tmp_path)
    ]
    assert found == [(record, [(30 + n, 30 + k) for k in range(n % 3)]) for n, record in enumerate(records)]


def test_an_unreadable_picture_affects_only_its_record(tmp_path: Path) -> None:
    (_, first), (_, second), (_, third) = opening([[GOOD], [GOOD, BAD], [GOOD]], pictures, tmp_path)
    with pytest.raises(DataError, match=r"^picture 2 of 2 of the row: a picture cannot be opened"):
        second.facts()
    assert [one.size for one in (*first.facts(), *third.facts())] == [(40, 30)] * 2


def test_records_before_a_read_error_are_delivered_first(tmp_path: Path) -> None:
    def broken() -> Iterator[list[bytes]]:
        yield from [[GOOD]] * 5
        raise DataError("the file is cut short")

    found = opening(broken(), pictures, tmp_path)
    for _ in range(5):
        assert next(found)[1].facts()
    with pytest.raises(DataError, match="cut short"):
        next(found)


def test_read_ahead_is_limited_by_the_threads(tmp_path: Path) -> None:
    read = 0

    def counted() -> Iterator[list[bytes]]:
        nonlocal read
        for _ in range(SOME):
            read += 1
            yield [GOOD]

    for done, _ in enumerate(opening(counted(), pictures, tmp_path)):
        assert done < read <= done + 1 + AHEAD * THREADS
    assert read == SOME


def test_large_pictures_are_not_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "BYTES", 2 * len(GOOD))
    read = 0

    def counted() -> Iterator[list[bytes]]:
        nonlocal read
        for _ in range(20):
            read += 1
            yield [GOOD]

    for done, _ in enumerate(opening(counted(), pictures, tmp_path)):
        assert read <= done + 3
    assert read == 20


@pytest.mark.parametrize(("brief", "said"), [(True, ""), (False, "check: 3 rows\n")])
def test_progress_is_shown_only_if_reading_takes_long(
    brief: bool, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for every, lines in (
        (60.0, said),
        (-1.0, "check: 1 rows\ncheck: 2 rows\ncheck: 3 rows\ncheck: 3 rows\n"),
    ):
        monkeypatch.setattr(progress, "EVERY", every)
        with Rows("check", brief=brief) as rows:
            for _ in range(3):
                rows.advance()
        assert capsys.readouterr().err == lines
