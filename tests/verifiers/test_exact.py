import pytest

from tests.verifiers.cases import sample, wrap
from vtune.errors import DataError
from vtune.verifiers import check_ground_truth
from vtune.verifiers.exact import verify_exact


@pytest.mark.parametrize("answer", ["North Street", " north   street. ", "NORTH\nSTREET", "N. St."])
def test_case_and_spacing_do_not_matter(answer: str) -> None:
    question = sample("exact", "North Street", parm={"aliases": ["n. st"]})
    assert verify_exact(wrap(answer), question).score == 1.0


@pytest.mark.parametrize(
    ("truth", "answer"), [("café", "cafe\u0301"), ("cafe\u0301", "Café."), ("北京", "北京。")]
)
def test_accents_may_be_composed_and_a_full_stop_chinese(truth: str, answer: str) -> None:
    assert verify_exact(wrap(answer), sample("exact", truth)).score == 1.0


@pytest.mark.parametrize(
    "answer",
    [
        "\\text{Light blue}",
        "\\textbf{light}\\ \\mathrm{blue}",
        "$\\text{light blue}$.",
        "**light blue**",
        "light blue",
    ],
)
@pytest.mark.parametrize("truth", ["light blue", "\\text{light blue}"])
def test_formatting_of_words_does_not_matter(truth: str, answer: str) -> None:
    question = sample("exact", truth, parm={"answer_in": "boxed"})
    assert verify_exact(f"So it is \\boxed{{{answer}}}", question).score == 1.0


@pytest.mark.parametrize(
    ("truth", "answer"), [("50% off", "50\\% off"), ("don't", "don’t"), ("R&D", "R\\&D"), ("2**3", "2**3")]
)
def test_escapes_and_curled_quotes_do_not_matter(truth: str, answer: str) -> None:
    assert verify_exact(wrap(answer), sample("exact", truth)).score == 1.0


@pytest.mark.parametrize("answer", ["α = 0.1", "α=0.1", "α =0.1", "$α=  0.1$"])
@pytest.mark.parametrize("truth", ["α = 0.1", "α=0.1"])
def test_spaces_around_an_equals_sign_do_not_matter(truth: str, answer: str) -> None:
    assert verify_exact(wrap(answer), sample("exact", truth)).score == 1.0
    assert verify_exact(wrap("α = 0.2"), sample("exact", truth)).score == 0.0


@pytest.mark.parametrize(("truth", "answer"), [("23", "2**3"), ("light blue", "\\text{light blue} or red")])
def test_removing_formatting_makes_no_wrong_answer_right(truth: str, answer: str) -> None:
    assert verify_exact(wrap(answer), sample("exact", truth)).score == 0.0


def test_unclosed_commands_take_no_time() -> None:
    assert verify_exact(wrap("\\text{" * 100_000), sample("exact", "a")).score == 0.0


@pytest.mark.parametrize("answer", ["North", "North Street or South Street", "the North Street", "."])
def test_less_or_more_than_the_answer_is_wrong(answer: str) -> None:
    assert verify_exact(wrap(answer), sample("exact", "North Street")).score == 0.0


@pytest.mark.parametrize("aliases", ["one", [1], [""]])
def test_aliases_have_to_be_a_list_of_texts(aliases: object) -> None:
    with pytest.raises(DataError):
        check_ground_truth(sample("exact", "1", parm={"aliases": aliases}))


@pytest.mark.parametrize(
    ("truth", "answer", "score"),
    [
        ("the Beatles", "Beatles", 1.0),
        ("Beatles", "The Beatles!", 1.0),
        ("Washington, D.C.", "washington dc", 1.0),
        ("cafe\u0301", "the Café", 1.0),
        ("light blue", "\\text{light blue}", 1.0),
        ("The The", "the the", 1.0),
        ("The The", "The Who", 0.0),
        ("?", "!", 0.0),
        ("Beatles", "Beatles or Stones", 0.0),
        ("1.5", "15", 1.0),
        ("C++", "C", 1.0),
        ("a\u2013b", "ab", 0.0),
    ],
)
def test_squads_match_ignores_punctuation_and_articles(truth: str, answer: str, score: float) -> None:
    question = sample("exact", truth, parm={"match": "squad"})
    check_ground_truth(question)
    assert verify_exact(wrap(answer), question).score == score


def test_an_unknown_match_option_is_an_error() -> None:
    with pytest.raises(DataError, match="`match` is 'words'") as caught:
        check_ground_truth(sample("exact", "1", parm={"match": "words"}))
    assert caught.value.fix == "write one of text, squad into verifier_parm"
