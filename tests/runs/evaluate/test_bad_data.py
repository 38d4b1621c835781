"""What is said of a benchmark's data that cannot be evaluated."""

from collections.abc import Callable
from pathlib import Path

import pytest

from vtune.config import find, load_recipe
from vtune.data.formats import specimens_places, specimens_scored, specimens_tsv
from vtune.data.formats.specimens import Specimen
from vtune.errors import DataError
from vtune.runs.evaluate.checking import Checked, check_questions
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.evaluate.unasked import warn_of_unshown


def check(suite: str, data: Path) -> Checked:
    """Check the questions of a suite."""
    found = load_recipe(find(suite, "eval_suites"), EvalSuite, [f"data=[{data}]", "agent=direct"])
    return check_questions(found, limit=None)


def refused(suite: str, data: Path) -> str:
    """The error of a suite whose data are bad."""
    with pytest.raises(DataError) as raised:
        check(suite, data)
    return str(raised.value)


@pytest.mark.parametrize(
    ("suite", "specimen", "notes", "column"),
    [
        ("screenspot-pro", specimens_places.screenspot_pro, "annotations/*.json", "img_filename"),
        ("ocrbench-v2", specimens_scored.ocrbench, "OCRBench_v2.json", "image_path"),
    ],
)
def test_a_row_of_a_folder_is_named_by_its_file(
    suite: str, specimen: Callable[[Path], Specimen], notes: str, column: str, tmp_path: Path
) -> None:
    folder = specimen(tmp_path).path
    folder = folder if folder.is_dir() else folder.parent
    pictures = [file for file in sorted(folder.rglob("*")) if file.suffix in (".png", ".jpg")]
    assert pictures
    for picture in pictures:
        picture.unlink()
    said = refused(suite, folder)
    assert any(f"{file}, row" in said for file in folder.glob(notes)), said
    assert f"(column `{column}`); put it there" in said


def test_a_file_of_another_split_says_which_splits_it_holds(tmp_path: Path) -> None:
    path = specimens_tsv.mmmu(tmp_path).path
    path.write_text(path.read_text().replace("\tvalidation", "\ttest"))
    said = refused("mmmu", path)
    assert "no row is of the split `validation`" in said
    assert "holds dev, test" in said


def test_a_folder_in_place_of_a_table_says_which_files_it_has_and_where_the_table_comes_from(
    tmp_path: Path,
) -> None:
    path = specimens_tsv.mmmu(tmp_path).path
    said = refused("mmmu", tmp_path)
    assert f"name a file in it: {path.name}" in said
    assert "give other files with --data, or get these again: https://" in said


def test_questions_of_which_a_picture_is_not_shown_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = specimens_tsv.mmmu(tmp_path).path
    warn_of_unshown(check("mmmu", path).unshown)
    assert capsys.readouterr().err == ""
    path.write_text(path.read_text().replace("<image 2>", "<image2>"))
    found = check("mmmu", path)
    assert found.unshown == ("MMMU_DEV_VAL/1",)
    warn_of_unshown(found.unshown)
    assert "1 question(s) have a picture" in capsys.readouterr().err
