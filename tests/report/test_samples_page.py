from vtune.report.samples_page import samples_page
from vtune.report.sketch import sketch

EXAMPLE = {
    "row": 3,
    "id": "a/1",
    "source": "a",
    "question": "Is 1 < 2 & <script>alert(1)</script>?",
    "choices": ["yes", "no"],
    "ground_truth": "A",
    "verifier": "choice",
    "tools": [],
    "environment": "",
    "images": [{"width": 1000, "height": 500}],
    "boxes": [
        {"of": "evidence", "label": "<b>", "image": 0, "bbox_2d": [100.0, 50.0, 300.0, 250.0]},
        {"of": "ground truth", "label": "cup", "image": 0, "bbox_2d": [0.0, 0.0, 10.0, 10.0]},
    ],
}
RESULT = {
    "file": "a.parquet",
    "rows": 2,
    "by_source": {"a": 1},
    "problems": [{"file": "a.parquet", "row": 0, "what": "no <image>", "fix": "fix it"}],
    "examples": [EXAMPLE],
}


def test_a_box_is_drawn_in_its_place() -> None:
    lines = sketch(480, 240, [("0", (240, 60, 480, 240))])
    assert lines[0] == "┌" + "─" * 48 + "┐"
    assert len(lines) == 14
    # At half of 48 columns and a quarter of 12 lines.
    assert (lines[4][25], lines[4][48], lines[12][25], lines[12][48]) == ("0", "┐", "└", "┘")
    assert all(set(line[1:24]) == {" "} for line in lines[1:13])


def test_a_sketch_has_bounded_size_for_any_picture() -> None:
    for width, height in ((1, 9000), (9000, 1), (8000, 6000), (30, 30)):
        lines = sketch(
            width, height, [("0", (0, 0, width, height)), ("1", (width / 2, height / 2, width, height))]
        )
        assert 4 <= len(lines) <= 18
        assert max(map(len, lines)) <= 50
        assert sum(line.count("1") for line in lines) == 1


def test_the_page_is_self_contained_and_escapes_data() -> None:
    page = samples_page(RESULT, [["data:image/jpeg;base64,AAAA"]])
    assert "<script" not in page
    assert "1 &lt; 2 &amp;" in page
    assert "http" not in page
    assert 'href="data:image/jpeg;base64,AAAA"' in page
    assert "row 0: no &lt;image&gt;; fix it" in page


def test_the_page_draws_boxes_in_pixels_of_the_picture() -> None:
    page = samples_page(RESULT, [["data:,"]])
    assert 'viewBox="0 0 1000 500" width="512"' in page
    assert '<rect x="100.0" y="50.0" width="200.0" height="200.0"' in page
    assert page.count("stroke-dasharray") == 1  # the ground truth box
