"""Inputs must be regular files of bounded size, whatever their name refers to."""

import os
from pathlib import Path

import pytest

from vtune.files.reading import open_input, read_bytes, read_lines, read_text, whole_lines, why_unread


def test_a_pipe_without_a_writer_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is a named pipe, not a regular file"):
        open_input(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("name", "reason"), [("/dev/zero", "a device"), ("/", "a folder"), ("a\0b", "no file can have this name")]
)
def test_a_file_that_is_not_regular_is_refused_with_its_kind(name: str, reason: str) -> None:
    with pytest.raises(OSError, match=reason) as told:
        read_bytes(Path(name))
    assert told.value.strerror


def test_a_refused_file_is_closed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(OSError, match="pipe"):
            open_input(tmp_path / "pipe")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_sparse_giant_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(OSError, match="larger than 256 MiB"):
        read_bytes(tmp_path / "huge")


def test_a_file_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 10)
    assert read_bytes(tmp_path / "file", limit=10) == b"x" * 10
    with pytest.raises(OSError, match="larger"):
        read_bytes(tmp_path / "file", limit=9)


def test_windows_text_files_read_like_others(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    assert read_text(tmp_path / "file") == "a\nb\n"


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_only_a_line_truncated_by_a_kill_is_removed(tmp_path: Path, mark: bytes, end: bytes) -> None:
    file = tmp_path / "log.jsonl"
    good, cut = mark + '{"a": "é"}'.encode() + end, '{"b": "Málaga 乌"}'.encode()
    for count in range(1, len(cut) + 1):
        file.write_bytes(good * 2 + cut[:count])
        assert len(whole_lines(file, repair=False)) == 2
        assert len(file.read_bytes()) == 2 * len(good) + count
        assert len(whole_lines(file, repair=True)) == 2
        assert file.read_bytes() == good * 2
        assert len(whole_lines(file, repair=True)) == 2


def test_a_file_without_a_truncated_line_is_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(b"\x1f\x8b packed")
    assert whole_lines(file, repair=True) == [b"\x1f\x8b packed"]
    assert file.read_bytes() == b"\x1f\x8b packed"


def test_an_endless_line_is_refused_and_shorter_ones_are_complete(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"ab\nabcd\nabcde\n")
    with open_input(tmp_path / "file") as stream:
        lines = read_lines(stream, limit=5)
        assert [next(lines), next(lines)] == [b"ab\n", b"abcd\n"]
        with pytest.raises(OSError, match="a line is longer"):
            next(lines)


def test_the_reason_for_a_read_error_does_not_repeat_the_file_name(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"a\xff")
    with pytest.raises(UnicodeDecodeError) as caught:
        read_text(tmp_path / "latin")
    assert why_unread(caught.value) == "it is not UTF-8 (byte 1)"
    with pytest.raises(OSError, match="regular file") as found:
        read_text(tmp_path)
    assert why_unread(found.value) == "it is a folder, not a regular file"
    assert why_unread(OSError("it is closed")) == "it is closed"
