import pytest

from tests.verifiers.cases import sample, wrap
from vtune.errors import DataError
from vtune.verifiers import check_ground_truth
from vtune.verifiers.point_in_box import verify_point_in_box

TRUTH = '[{"label": "button", "bbox_2d": [10, 20, 30, 40]}]'


@pytest.mark.parametrize(
    ("answer", "score", "unreadable"),
    [
        pytest.param("(15, 25)", 1.0, 0.0, id="inside"),
        pytest.param("[15.5, 25]", 1.0, 0.0, id="brackets"),
        pytest.param("15, 25", 1.0, 0.0, id="bare"),
        pytest.param('{"point_2d": [15, 25]}', 1.0, 0.0, id="json"),
        pytest.param("{'point_2d': [15, 25]}", 1.0, 0.0, id="single quotes"),
        pytest.param('{"point_2d": [15, 25], "label": "the button"}', 1.0, 0.0, id="a label"),
        pytest.param(
            '```json\n[{"point_2d": [15, 25], "label": "x"}]\n```', 1.0, 0.0, id="a list in a fence"
        ),
        pytest.param('[{"point_2d": [15, 25]}, {"point_2d": [80, 80]}]', 0.0, 1.0, id="a list of two"),
        pytest.param('{"point_2d": [NaN, 25]}', 0.0, 1.0, id="no number"),
        pytest.param('{"point_2d": [15, 25, 20, 30]}', 0.0, 1.0, id="four numbers"),
        pytest.param("(10, 40)", 1.0, 0.0, id="on the border"),
        pytest.param("(9.9, 25)", 0.0, 0.0, id="beside it"),
        pytest.param("(25, 15)", 0.0, 0.0, id="x and y exchanged"),
        pytest.param("[10, 20, 30, 40]", 0.0, 1.0, id="a box"),
        pytest.param("(15, 25) or (80, 80)", 0.0, 1.0, id="two points"),
        pytest.param("(15, 25).", 1.0, 0.0, id="a full stop"),
        pytest.param("15, 25.", 1.0, 0.0, id="bare, with a full stop"),
        pytest.param("（15，25）。", 1.0, 0.0, id="full width"),
        pytest.param("（１５，２５）", 1.0, 0.0, id="digits of full width"),
        pytest.param("1², 25", 0.0, 1.0, id="a power"),
        pytest.param("1⁵, 25", 0.0, 1.0, id="no 15"),
        pytest.param("①⑤, 25", 0.0, 1.0, id="digits in circles"),
        pytest.param("[[15, 25]]", 1.0, 0.0, id="the only one of a list"),
        pytest.param("**(15, 25)**", 1.0, 0.0, id="bold"),
        pytest.param("$(15, 25)$", 1.0, 0.0, id="in math mode"),
        pytest.param("[[80, 80]]", 0.0, 0.0, id="the only one of a list, beside it"),
        pytest.param("[[15, 25], [80, 80]]", 0.0, 1.0, id="two in a list"),
        pytest.param("（15，25）（80，80）", 0.0, 1.0, id="two of full width"),
        pytest.param("[[10, 20, 30, 40]]", 0.0, 1.0, id="a box in a list"),
        pytest.param("the button", 0.0, 1.0, id="words"),
    ],
)
def test_points_are_scored_by_the_box(answer: str, score: float, unreadable: float) -> None:
    verdict = verify_point_in_box(wrap(answer), sample("point_in_box", TRUTH))
    assert (verdict.score, verdict.parts) == (score, {"unreadable": unreadable})


def test_a_point_may_be_in_thousandths_of_the_picture() -> None:
    parm = {"reply_space": "relative_1000", "width": 2000, "height": 1000}
    what = sample("point_in_box", TRUTH, parm=parm)
    assert verify_point_in_box(wrap("(10, 30)"), what).score == 1.0
    assert verify_point_in_box(wrap("(20, 30)"), what).score == 0.0


@pytest.mark.parametrize("gold", ["(15, 25)", "[]", '[{"label": "", "bbox_2d": [30, 20, 10, 40]}]'])
def test_a_truth_without_a_box_is_our_error(gold: str) -> None:
    with pytest.raises(DataError):
        check_ground_truth(sample("point_in_box", gold))
