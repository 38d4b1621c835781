"""Text tables with a header line."""

from pathlib import Path

import pytest

from vtune.data.tsv import read_table
from vtune.errors import DataError


def table(folder: Path, text: str) -> Path:
    file = folder / "corpus.tsv"
    file.write_text(text)
    return file


def test_a_text_with_quotes_is_written_in_quotes(tmp_path: Path) -> None:
    file = table(tmp_path, 'id\ttext\n1\t"""Hi"" he said"\n2\the said "Hi"\n')
    assert [row for _, row in read_table(file, ["text"])] == [
        {"id": "1", "text": '"Hi" he said'},
        {"id": "2", "text": 'he said "Hi"'},
    ]


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        ("id\ttext\ttext\n1\ta\tb\n", r"names `text` more than once", "its own name"),
        ("7\tThe bees\n8\tThe seas\n", r"no column `text` or `contents`", "it has 7, The bees"),
        ("ID\tText\n1\ta\n", r"no column `text`", "it has ID, Text"),
        ("", r"no column `text`", "it has nothing"),
        ('id\ttext\n1\t"Hi" he said\n', "not a TSV file", '"""Hi"" he said"'),
    ],
    ids=["a name twice", "no names", "other case", "empty", "quotes"],
)
def test_an_unreadable_table_explains_the_expected_format(
    text: str, what: str, fix: str, tmp_path: Path
) -> None:
    file = table(tmp_path, text)
    with pytest.raises(DataError, match=what) as caught:
        list(read_table(file, ["text", "contents"]))
    assert caught.value.where.startswith(str(file))
    assert fix in caught.value.fix
