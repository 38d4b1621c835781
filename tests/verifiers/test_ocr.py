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
def test_texts_are_compared_as_texts_on_request(answer: str, parm: dict[str, object], score: float) -> None:
    what = sample("ocr", "NO PARKING", parm={"match": "text"} | parm)
    assert verify_ocr(wrap(answer), what).score == pytest.approx(score)


@pytest.mark.parametrize(
    ("truth", "answer", "score"),
    [
        pytest.param("NO PARKING", "no  parking", 1.0, id="case and spaces do not count"),
        pytest.param("NO PARKING", "KEEP OUT", 0.0, id="another text"),
        pytest.param("on", "no", 1.0, id="letters in another order: what eq. 1 cannot see"),
        pytest.param("$5.00", "5", 1.0, id="the same value"),
        pytest.param("A & B", "a & b", 1.0, id="no expression, and the same text"),
        pytest.param("A & B", "a & c", 0.0, id="no expression, and another text"),
        pytest.param("1984", "1985", 0.0, id="another number"),
        pytest.param("45 cm", "45 m", 0.0, id="another unit"),
        pytest.param("45 cm", "45 CM", 1.0, id="the same unit"),
    ],
)
def test_math_verify_compares_readings_by_default(truth: str, answer: str, score: float) -> None:
    """V-Triune, equation 1."""
    assert verify_ocr(wrap(answer), sample("ocr", truth)).score == score


def test_any_alias_is_also_right_by_value() -> None:
    what = sample("ocr", "NO PARKING", parm={"aliases": ["A & B"]})
    assert [verify_ocr(wrap(said), what).score for said in ("a & b", "no parking", "keep out")] == [1, 1, 0]


@pytest.mark.parametrize("parm", [{"credit": "partial"}, {"case_sensitive": True}])
def test_a_text_only_option_is_refused_elsewhere(parm: dict[str, object]) -> None:
    with pytest.raises(DataError, match="no effect") as caught:
        check_ground_truth(sample("ocr", "NO PARKING", parm=parm))
    assert "match: text" in caught.value.fix


def test_a_text_that_math_verify_cannot_match_with_itself_is_our_error() -> None:
    with pytest.raises(DataError, match="with itself") as caught:
        check_ground_truth(sample("ocr", "a } b"))
    assert "match: text" in caught.value.fix
    check_ground_truth(sample("ocr", "a } b", parm={"match": "text"}))


def test_the_similarity_of_a_wrong_reading_is_reported() -> None:
    verdict = verify_ocr(wrap("NO PARKIN"), sample("ocr", "NO PARKING"))
    assert verdict.parts == {"unreadable": 0.0, "similarity": pytest.approx(0.9)}


@pytest.mark.parametrize(
    ("a", "b", "alike"),
    [("", "", 1.0), ("abc", "", 0.0), ("abc", "abd", 2 / 3), ("kitten", "sitting", 4 / 7)],
)
def test_similarity_has_these_values(a: str, b: str, alike: float) -> None:
    assert similarity(a, b) == pytest.approx(alike)


@given(a=st.text(max_size=8), b=st.text(max_size=8))
def test_similarity_is_symmetric_and_1_only_for_the_same_text(a: str, b: str) -> None:
    assert 0.0 <= similarity(a, b) == similarity(b, a) <= 1.0
    assert (similarity(a, b) == 1.0) == (a == b)


@pytest.mark.parametrize("parm", [{"credit": "half"}, {"case_sensitive": "yes"}, {"aliases": "STOP"}])
def test_options_of_the_wrong_kind_are_our_error(parm: dict[str, object]) -> None:
    with pytest.raises(DataError):
        check_ground_truth(sample("ocr", "NO PARKING", parm=parm))
