import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.verifiers.cases import sample, wrap
from vtune.errors import DataError
from vtune.verifiers import check_ground_truth
from vtune.verifiers.ocr import LONGEST, similarity, verify_ocr


@pytest.mark.parametrize(
    ("answer", "parm", "score"),
    [
        pytest.param("no  parking\n", {}, 1.0, id="case and spaces do not count"),
        pytest.param("no parking", {"case_sensitive": True}, 0.0, id="case counts where asked"),
        pytest.param("NO PARKING", {"case_sensitive": True}, 1.0, id="same case"),
        pytest.param("NO STOPPING", {"aliases": ["no stopping"]}, 1.0, id="alias"),
        pytest.param("ON PARKING", {}, 0.0, id="letters in another order"),
        pytest.param("NO PARKIN", {}, 0.0, id="nearly, and no credit for it"),
        pytest.param("NO PARKIN", {"credit": "partial"}, 0.9, id="nearly"),
        pytest.param("NO", {"credit": "partial"}, 0.0, id="less than half"),
        pytest.param("x" * (LONGEST + 1), {"credit": "partial"}, 0.0, id="endless"),
    ],
)
def test_verify_ocr(answer: str, parm: dict[str, object], score: float) -> None:
    what = sample("ocr", "NO PARKING", parm=parm)
    assert verify_ocr(wrap(answer), what).score == pytest.approx(score)


def test_how_near_a_wrong_reading_was_is_told() -> None:
    verdict = verify_ocr(wrap("NO PARKIN"), sample("ocr", "NO PARKING"))
    assert verdict.parts == {"unreadable": 0.0, "similarity": pytest.approx(0.9)}


@pytest.mark.parametrize(
    ("a", "b", "alike"),
    [("", "", 1.0), ("abc", "", 0.0), ("abc", "abd", 2 / 3), ("kitten", "sitting", 4 / 7)],
)
def test_similarity(a: str, b: str, alike: float) -> None:
    assert similarity(a, b) == pytest.approx(alike)


@given(a=st.text(max_size=8), b=st.text(max_size=8))
def test_similarity_is_symmetric_and_1_only_for_the_same_text(a: str, b: str) -> None:
    assert 0.0 <= similarity(a, b) == similarity(b, a) <= 1.0
    assert (similarity(a, b) == 1.0) == (a == b)


@pytest.mark.parametrize("parm", [{"credit": "half"}, {"case_sensitive": "yes"}, {"aliases": "STOP"}])
def test_options_of_the_wrong_kind_are_our_error(parm: dict[str, object]) -> None:
    with pytest.raises(DataError):
        check_ground_truth(sample("ocr", "NO PARKING", parm=parm))
