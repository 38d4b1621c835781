"""What a user's own data format yields is checked: the error names the format, its line and the row."""

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.runs.commands import vtune
from tests.runs.evaluate.scripted import write_script
from vtune.data.formats.table import FORMATS
from vtune.uses import forget, use

pytestmark = pytest.mark.usefixtures("forgetting")

LINES = (ROOT / "tests/own/lines.py").read_text(encoding="utf-8")
COLUMNS = "picture, question, answer = columns"
WRONG = {
    "no pair": (COLUMNS, f"{COLUMNS}; yield 'x'", "it yields 'x' (entry 0 of "),
    "no place": (
        "            place,\n            Sample(",
        "            None,\n            Sample(",
        "it yields",
    ),
    "nothing": (COLUMNS, f"{COLUMNS}; yield place, None", "it yields None ({}, row 0)"),
    "an error": (
        COLUMNS,
        f"{COLUMNS}; yield place, ValueError('x')",
        "it yields ValueError('x')",
    ),
    "a number": ("ground_truth=answer", "ground_truth=5", "`ground_truth` of a sample is 5 ({}, row 0)"),
    "null": ("ground_truth=answer", "ground_truth=None", "`ground_truth` of a sample is None ({}, row 0)"),
    "no dict": ("ground_truth=answer", "ground_truth=answer, verifier_parm=None", "`verifier_parm` of a "),
    "a text": (
        "ground_truth=answer",
        "ground_truth=answer, tools='python'",
        "`tools` of a sample is",
    ),
    "a path": (
        "images=(Picture(data=data),)",
        "images=('red.png',)",
        "`images` of a sample is ('red.png',) ({}, row 0)",
    ),
    "no rows": (
        "def read(",
        "def read(path, options):\n    return None\n\n\ndef other(",
        "NoneType, not rows",
    ),
}


def written(folder: Path, old: str, new: str) -> tuple[Path, Path]:
    """A format of which something is replaced, and its rows."""
    assert old in LINES
    files = use([ROOT / "tests/own/lines.py"])
    rows = FORMATS["lines"].specimen(folder).path  # type: ignore[misc]
    forget(files)
    path = folder / "mine.py"
    path.write_text(LINES.replace(old, new, 1), encoding="utf-8")
    return path, rows


@pytest.mark.parametrize("by", ["import", "eval"])
@pytest.mark.parametrize("what", WRONG)
def test_a_format_that_yields_something_else_is_named_with_the_row(
    tmp_path: Path, what: str, by: str
) -> None:
    old, new, said = WRONG[what]
    path, rows = written(tmp_path, old, new)
    if by == "import":
        ended = vtune("data", "import", "lines", rows, "--uses", path, "--out", tmp_path / "o.parquet")
    else:
        write_script(tmp_path / "replies.jsonl", {f"questions/{n}": ["<answer>red</answer>"] for n in (0, 1)})
        lines = (ROOT / "eval_suites/lens.yaml").read_text().splitlines()
        kept = [line for line in lines if not line.startswith(("data:", "format:", "offers:"))]
        own = f"uses: [mine.py]\ndata: [{rows}]\nformat: lines\noffers: []"
        (tmp_path / "suite.yaml").write_text("\n".join([own, *kept, ""]))
        model = f"scripted:{tmp_path / 'replies.jsonl'}"
        ended = vtune("eval", "--suite", tmp_path / "suite.yaml", "--model", model, "--out", tmp_path / "out")
    assert ended.code == 1
    assert "data format `lines` of mine.py is broken: TypeError: " in ended.err
    assert said.format(rows) in ended.err
    assert f"  at   {path}:" in ended.err
    assert not (tmp_path / "o.parquet").exists()


def test_a_format_that_fails_is_named_with_the_row_and_its_file(tmp_path: Path) -> None:
    path, rows = written(tmp_path, COLUMNS, f"{COLUMNS}; 1 / (1 - number)")
    ended = vtune("data", "import", "lines", rows, "--uses", path, "--out", tmp_path / "o.parquet")
    assert ended.code == 1
    assert f": ZeroDivisionError: division by zero (entry 1 of {rows})\n  at   {path}:" in ended.err


@pytest.mark.parametrize("row", [0, 1])
def test_an_error_that_a_format_raises_is_about_the_rest_of_its_file(tmp_path: Path, row: int) -> None:
    raises = f"{COLUMNS}\n        if number == {row}: raise DataError('odd', fix='mend it')"
    path, rows = written(tmp_path, COLUMNS, raises)
    (other := tmp_path / "other.tsv").write_bytes(rows.read_bytes())
    out = tmp_path / "o.parquet"
    ended = vtune("data", "import", "lines", rows, other, "--uses", path, "--out", out)
    if row == 0:
        assert (ended.code, ended.err) == (2, f"error: odd\n  at   {rows}\n  fix  mend it\n")
        return
    assert ended.code == 0
    for file in (rows, other):
        assert f"{file}: odd (raised after 1 entry: the rest of the file is not read); mend it;" in ended.out
    assert "2 samples of 4 rows" in ended.out
