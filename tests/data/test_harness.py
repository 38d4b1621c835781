"""MMMU from VLMEvalKit's TSV: what its rows become."""

from pathlib import Path

import pytest

from vtune.data.formats import specimens_tsv
from vtune.data.harness import UNSHOWN, scan_mmmu
from vtune.schema.sample import Sample
from vtune.verifiers import check_ground_truth, verdict_on


@pytest.mark.parametrize(
    ("truth", "verifier", "right", "wrong"),
    [
        ("1,234.5", "math", ["1234.5", "1,234.5 km"], ["1234"]),
        ("-0.5", "math", ["−.5", "-1/2"], ["0.5"]),
        ("['1', 'one']", "exact", ["1", "one"], ["2"]),
        ("Heart", "exact", ["heart."], ["1"]),
    ],
)
def test_an_open_question_with_a_number_is_right_however_it_is_written(
    tmp_path: Path, truth: str, verifier: str, right: list[str], wrong: list[str]
) -> None:
    path = specimens_tsv.mmmu(tmp_path).path
    path.write_text(path.read_text().replace("['1', 'one']", truth))
    _, found = scan_mmmu(path)
    assert isinstance(found, Sample)
    assert found.verifier == verifier
    check_ground_truth(found)
    for reply in right + wrong:
        assert verdict_on(f"<answer>{reply}</answer>", found).score == float(reply in right), reply


def test_a_picture_that_nothing_refers_to_is_counted(tmp_path: Path) -> None:
    path = specimens_tsv.mmmu(tmp_path).path
    whole, _ = scan_mmmu(path)
    path.write_text(path.read_text().replace("<image 2>", "<image2>"))
    misspelt, _ = scan_mmmu(path)
    assert isinstance(whole, Sample)
    assert isinstance(misspelt, Sample)
    assert (len(whole.images), whole.extra.get(UNSHOWN)) == (2, None)
    assert (len(misspelt.images), misspelt.extra.get(UNSHOWN)) == (1, 1)
