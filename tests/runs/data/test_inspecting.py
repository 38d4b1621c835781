import base64
import re
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from tests.runs.commands import vtune
from tests.runs.data.test_validating import GOOD, encoded
from vtune.runs.data.inspecting import inspect
from vtune.schema.message import Picture
from vtune.schema.parquet import write_samples


def test_a_bad_row_is_reported_and_the_others_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    gone = replace(GOOD, id="signs/1", images=(Picture(path="gone.png"),))
    write_samples(path, [replace(GOOD, id="signs/0", verifier=""), gone, replace(GOOD, id="signs/2")])
    result = inspect(path, 5)
    assert [(problem["row"], bool(problem["fix"])) for problem in result["problems"]] == [
        (0, True),
        (1, True),
    ]
    assert [(example["row"], example["id"]) for example in result["examples"]] == [(2, "signs/2")]
    assert (result["rows"], result["by_source"]) == (3, {"signs": 2})


def test_the_environment_of_a_row_is_shown(tmp_path: Path) -> None:
    write_samples(tmp_path / "rows.parquet", [replace(GOOD, environment="maze")])
    assert re.search(r"environment\W+maze", vtune("data", "inspect", tmp_path / "rows.parquet").out)


def test_boxes_of_the_ground_truth_are_shown_in_pixels(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    sample = replace(
        GOOD,
        verifier="grounding",
        verifier_parm={"space": "relative_1000"},
        ground_truth='[{"label": "cup", "bbox_2d": [100, 0, 500, 1000]}]',
    )
    write_samples(path, [sample])
    (example,) = inspect(path, 1)["examples"]
    assert example["boxes"] == [
        {"of": "evidence", "label": "sign", "image": 0, "bbox_2d": [1.0, 2.0, 30.0, 40.0]},
        {"of": "ground truth", "label": "cup", "image": 0, "bbox_2d": [6.0, 0.0, 30.0, 50.0]},
    ]


@pytest.mark.parametrize(
    ("truth", "label"),
    [
        ("<answer>\n[{'bbox_2d': (100, 0, 500, 1000), 'label': 'cup'}]\n</answer>", "cup"),
        ('{"label": "cup", "bbox_2d": [100, 0, 500, 1000]}', "cup"),
        ("[100, 0, 500, 1000]", ""),
    ],
)
def test_boxes_are_shown_as_read_by_verifiers(truth: str, label: str, tmp_path: Path) -> None:
    """In V-Triune's words, too: `det_verifier_normalized` are thousandths."""
    path = tmp_path / "a.parquet"
    parm = {"det_verifier_normalized": True}
    write_samples(path, [replace(GOOD, verifier="grounding", verifier_parm=parm, ground_truth=truth)])
    (example,) = inspect(path, 1)["examples"]
    assert example["boxes"][1:] == [
        {"of": "ground truth", "label": label, "image": 0, "bbox_2d": [6.0, 0.0, 30.0, 50.0]}
    ]


def test_pictures_on_the_page_are_reduced(tmp_path: Path) -> None:
    path, page = tmp_path / "a.parquet", tmp_path / "pages" / "a.html"
    write_samples(path, [replace(GOOD, images=(Picture(data=encoded(3000, 200)),))])
    assert inspect(path, 1, html=page)["page"] == str(page)
    (uri,) = re.findall(r'href="data:image/jpeg;base64,([^"]+)"', page.read_text())
    with Image.open(BytesIO(base64.b64decode(uri))) as image:
        assert image.size == (512, 34)
