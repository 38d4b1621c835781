import pytest

from tests.verifiers.cases import sample, wrap
from vtune.errors import DataError
from vtune.verifiers import check_ground_truth
from vtune.verifiers.exact import verify_exact


@pytest.mark.parametrize("answer", ["North Street", " north   street. ", "NORTH\nSTREET", "N. St."])
def test_spelling_does_not_matter(answer: str) -> None:
    question = sample("exact", "North Street", parm={"aliases": ["n. st"]})
    assert verify_exact(wrap(answer), question).score == 1.0


@pytest.mark.parametrize(
    ("truth", "answer"), [("café", "cafe\u0301"), ("cafe\u0301", "Café."), ("北京", "北京。")]
)
def test_accents_may_be_composed_and_a_full_stop_chinese(truth: str, answer: str) -> None:
    assert verify_exact(wrap(answer), sample("exact", truth)).score == 1.0


@pytest.mark.parametrize("answer", ["North", "North Street or South Street", "the North Street", "."])
def test_less_or_more_than_the_answer_is_wrong(answer: str) -> None:
    assert verify_exact(wrap(answer), sample("exact", "North Street")).score == 0.0


@pytest.mark.parametrize("aliases", ["one", [1], [""]])
def test_aliases_have_to_be_a_list_of_texts(aliases: object) -> None:
    with pytest.raises(DataError):
        check_ground_truth(sample("exact", "1", parm={"aliases": aliases}))
