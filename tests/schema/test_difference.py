"""Describing where two records differ."""

from dataclasses import replace

import pytest

from tests.schema.records import SAMPLE
from vtune.schema.difference import difference
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.sample import Evidence, Sample

ONE = Sample(
    id="one",
    source="check",
    prompt=(Message("user", f"{IMAGE}Which?", (0,)),),
    images=(Picture(data=b"x", path="x.png"),),
    ground_truth="A",
    verifier="exact",
    evidence=(Evidence("sign", 0, (1.0, 2.0, 3.0, 4.0)),),
    extra={"kept": {"of": [1, 2]}},
)
LONG = "a long text " * 20


def test_records_that_differ_only_in_a_picture_path_are_equal() -> None:
    assert difference(SAMPLE, SAMPLE) == ""
    assert difference(ONE, replace(ONE, images=(Picture(data=b"x"),))) == ""


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"choices": ("a",)}, "`choices` is () and comes back as ('a',)"),
        ({"images": (Picture(data=b"yy"),)}, "`images[0].data` is 1 bytes (2d711642) and comes back as 2 b"),
        ({"evidence": ()}, "`evidence` is a list of 1 and comes back as ()"),
        ({"evidence": (Evidence("sign", 0, (1.0, 2.0, 3.0, 9.0)),)}, "`evidence[0].bbox[3]` is 4.0 and"),
        ({"extra": {"kept": {"of": [1, 3]}}}, "`extra.kept.of[1]` is 2 and comes back as 3"),
        ({"extra": {}}, "`extra.kept` is {'of': [1, 2]} and comes back as nothing"),
        ({"ground_truth": "B", "answer": "B"}, "`ground_truth` is 'A' and comes back as 'B'"),
        ({"answer": f"{LONG}, blue"}, f"`answer` is '' and comes back as '{LONG[:59]}…"),
    ],
)  # fmt: skip
def test_the_first_place_that_differs_is_named(changed: dict[str, object], said: str) -> None:
    assert difference(ONE, replace(ONE, **changed)).startswith(said)  # type: ignore[arg-type]


def test_long_texts_are_shown_where_they_diverge() -> None:
    red, blue = (replace(ONE, answer=f"{LONG}{colour} and so on {LONG}") for colour in ("red", "blue"))
    said = difference(red, blue)
    assert said.startswith("`answer` is …'ng text a long text red and so on a long")
    assert "comes back as …'ng text a long text blue and so on a long" in said
    assert len(said) < 200
