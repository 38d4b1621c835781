import pytest

from tests.verifiers.cases import sample, wrap
from vtune.errors import DataError
from vtune.verifiers import check_ground_truth
from vtune.verifiers.choice import loosely_chosen, verify_choice

COLOURS = ("red", "blue", "dark green")


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        pytest.param("B", 1.0, id="letter"),
        pytest.param("b", 1.0, id="small letter"),
        pytest.param("B.", 1.0, id="letter and period"),
        pytest.param("(B)", 1.0, id="letter in parentheses"),
        pytest.param("B. blue", 1.0, id="letter and text"),
        pytest.param("(b) Blue.", 1.0, id="letter and text, other case"),
        pytest.param("Blue", 1.0, id="text"),
        pytest.param("A", 0.0, id="wrong letter"),
        pytest.param("red", 0.0, id="wrong text"),
        pytest.param("B. red", 0.0, id="letter beside the text of another"),
        pytest.param("B or A", 0.0, id="two letters"),
        pytest.param("A, B", 0.0, id="a list"),
        pytest.param("B. blue A. red", 0.0, id="two options"),
        pytest.param("D", 0.0, id="no such option"),
        pytest.param("red blue", 0.0, id="two texts"),
        pytest.param("", 0.0, id="nothing"),
        pytest.param("B blue", 1.0, id="letter and text with a space"),
        pytest.param("B - blue", 1.0, id="letter, dash and text"),
        pytest.param("B – Blue.", 1.0, id="letter, long dash and text"),
        pytest.param("(B) - blue", 1.0, id="letter in parentheses, dash and text"),
        pytest.param("B, blue", 1.0, id="letter, comma and text"),
        pytest.param("B (blue)", 1.0, id="text in parentheses"),
        pytest.param("B（blue）", 1.0, id="text in parentheses of full width"),
        pytest.param("blue (B)", 1.0, id="letter behind the text"),
        pytest.param("**B** - blue", 1.0, id="bold letter, dash and text"),
        pytest.param("`B`", 1.0, id="in backticks"),
        pytest.param('"B"', 1.0, id="quoted"),
        pytest.param("“B.”", 1.0, id="in curly quotes"),
        pytest.param("'B'.", 1.0, id="in single quotes"),
        pytest.param('"blue"', 1.0, id="quoted text"),
        pytest.param('"B - blue"', 1.0, id="both quoted"),
        pytest.param("B red", 0.0, id="letter and the text of another with a space"),
        pytest.param("B - red", 0.0, id="letter, dash and the text of another"),
        pytest.param("B (red)", 0.0, id="the text of another in parentheses"),
        pytest.param("red (B)", 0.0, id="letter behind the text of another"),
        pytest.param("A (blue)", 0.0, id="wrong letter before the right text"),
        pytest.param("A B", 0.0, id="two letters with a space"),
        pytest.param("B (A)", 0.0, id="another letter in parentheses"),
        pytest.param("B - A", 0.0, id="another letter behind a dash"),
        pytest.param("B, A", 0.0, id="another letter behind a comma"),
        pytest.param("B - blue or red", 0.0, id="two texts behind a letter"),
        pytest.param("B blue (A)", 0.0, id="letters around a text"),
        pytest.param('"A" or "B"', 0.0, id="two quoted letters"),
        pytest.param("`A` `B`", 0.0, id="two letters in backticks"),
    ],
)
def test_answers_to_known_options_are_scored(answer: str, score: float) -> None:
    for gold in ("B", "blue"):
        assert verify_choice(wrap(answer), sample("choice", gold, choices=COLOURS)).score == score


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        pytest.param("\\text{B}", 1.0, id="letter as text"),
        pytest.param("\\textbf{(B)}\\ \\text{blue}", 1.0, id="letter in bold, and text"),
        pytest.param("$\\mathrm{B}$", 1.0, id="letter in math mode"),
        pytest.param("**B. blue**", 1.0, id="bold"),
        pytest.param("**B.** blue", 1.0, id="bold letter"),
        pytest.param("\\text{Dark green}", 0.0, id="another text"),
        pytest.param("（Ｂ）", 1.0, id="full width"),
        pytest.param("B：blue", 1.0, id="colon of full width"),
        pytest.param("B。", 1.0, id="Chinese full stop"),
        pytest.param("B、red", 0.0, id="letter beside the text of another, in Chinese"),
        pytest.param("\\text{A or B}", 0.0, id="two letters as text"),
        pytest.param("**A** **B**", 0.0, id="two bold letters"),
    ],
)
def test_formatting_of_a_letter_or_text_does_not_matter(answer: str, score: float) -> None:
    question = sample("choice", "B", choices=COLOURS, parm={"answer_in": "boxed"})
    assert verify_choice(f"So it is \\boxed{{{answer}}}.", question).score == score


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("$\\boxed{B}$", 1.0),
        ("**\\boxed{\\text{B}}**", 1.0),
        ("\\boxed{A} or \\boxed{B}", 0.0),
        ("A. \\boxed{B}", 0.0),
    ],
)
def test_a_box_within_tags_may_be_formatted_too(answer: str, score: float) -> None:
    for choices in (COLOURS, ()):
        assert verify_choice(wrap(answer), sample("choice", "B", choices=choices)).score == score


def test_options_that_differ_only_in_formatting_are_distinguished() -> None:
    question = sample("choice", "B", choices=("v", "\\mathbf{v}"))
    assert verify_choice(wrap("\\mathbf{v}"), question).score == 1.0
    assert verify_choice(wrap("v"), question).score == 0.0


@pytest.mark.parametrize("text", ["$5$", "$\\frac{1}{2}$", "\\boxed{x}"])
def test_a_formatted_option_is_found_after_its_letter(text: str) -> None:
    question = sample("choice", "A", choices=(text, "$7$"))
    assert verify_choice(wrap(f"A. {text}"), question).score == 1.0
    assert verify_choice(wrap("A. $7$"), question).score == 0.0


def test_a_full_width_option_is_found_after_its_letter() -> None:
    assert verify_choice(wrap("A．（１）"), sample("choice", "A", choices=("（１）", "（２）"))).score == 1.0


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        pytest.param("B", 1.0, id="letter"),
        pytest.param("(B) a blue cup", 1.0, id="words behind it are believed"),
        pytest.param("B. or C.", 0.0, id="another letter"),
        pytest.param("B. or a", 0.0, id="another small letter"),
        pytest.param("blue", 0.0, id="a text nobody can look up"),
        pytest.param("B - blue", 1.0, id="a dash"),
        pytest.param("B (a blue cup)", 1.0, id="parentheses"),
        pytest.param('"B"', 1.0, id="quoted"),
        pytest.param("B - blue or red", 0.0, id="two texts behind a dash"),
        pytest.param("B (not C)", 0.0, id="a letter in parentheses"),
        pytest.param("B (A)", 0.0, id="nothing but a letter in parentheses"),
        pytest.param("B - 2", 0.0, id="a difference"),
        pytest.param("B blue", 0.0, id="words that may begin with an article"),
        pytest.param("B, blue", 0.0, id="a list"),
    ],
)
def test_options_given_only_in_the_prompt_are_used(answer: str, score: float) -> None:
    assert verify_choice(wrap(answer), sample("choice", "B")).score == score


def test_if_letter_and_text_disagree_the_letter_counts() -> None:
    assert verify_choice(wrap("A"), sample("choice", "A", choices=("B", "A"))).score == 1.0
    assert verify_choice(wrap("A. B"), sample("choice", "A", choices=("B", "A"))).score == 1.0


@pytest.mark.parametrize("answer", ["A B", "A (B)", "A - B", "B (A)"])
def test_two_letters_are_hedging_even_if_one_is_the_others_text(answer: str) -> None:
    assert verify_choice(wrap(answer), sample("choice", "A", choices=("B", "A"))).score == 0.0


def test_a_text_that_begins_with_an_article_beats_a_letter() -> None:
    assert verify_choice(wrap("A cat"), sample("choice", "B", choices=("cat", "a cat"))).score == 1.0


def test_an_option_that_looks_like_a_letter_is_found_by_its_text() -> None:
    choices = ("c. elegans", "b. subtilis")
    assert verify_choice(wrap("c. elegans"), sample("choice", "A", choices=choices)).score == 1.0


@pytest.mark.parametrize(
    ("gold", "choices"),
    [("blue", ()), ("D", COLOURS), ("", COLOURS), ("teal", COLOURS), ("red", ("red", "Red"))],
)
def test_a_ground_truth_that_names_no_single_option_is_an_error(gold: str, choices: tuple[str, ...]) -> None:
    with pytest.raises(DataError):
        check_ground_truth(sample("choice", gold, choices=choices))


LOOSE = {"letter_rule": "loose", "answer_in": "reply"}


@pytest.mark.parametrize(
    ("reply", "score", "unreadable"),
    [
        pytest.param("B", 1.0, 0.0, id="letter"),
        pytest.param("The colour is (B).", 1.0, 0.0, id="letter at the end of a sentence"),
        pytest.param("Option B: blue", 1.0, 0.0, id="letter and text"),
        pytest.param(
            "B is what I would say about it", 0.0, 1.0, id="letter more than four words from the end"
        ),
        pytest.param("A or B", 0.0, 1.0, id="two letters"),
        pytest.param("I think it is blue", 1.0, 0.0, id="text of one option"),
        pytest.param("not red but blue", 0.0, 1.0, id="texts of two"),
        pytest.param("it is blue " + "and so on " * 9, 0.0, 1.0, id="text of one in a long speech"),
        pytest.param("the correct answer is **b** I am sure of that", 1.0, 0.0, id="answer is"),
        pytest.param("<think>A or C?</think> B", 1.0, 0.0, id="thoughts are not read"),
        pytest.param("<think>B</think>", 0.0, 1.0, id="nothing but thoughts"),
        pytest.param("dark green", 0.0, 0.0, id="another"),
        pytest.param("D", 0.0, 1.0, id="no such option"),
    ],
)
def test_the_loose_rule_finds_a_letter_or_a_text_in_prose(
    reply: str, score: float, unreadable: float
) -> None:
    verdict = verify_choice(reply, sample("choice", "B", choices=COLOURS, parm=LOOSE))
    assert (verdict.score, verdict.parts) == (score, {"unreadable": unreadable})


@pytest.mark.parametrize(
    ("said", "letter"),
    [
        ("The answer is blue.", "C"),
        ("The answer is a dog.", "D"),
        ("The answer is a **dog**.", "D"),
        ("The answer is a really, really, really good question.", None),
        ("The answer is a", "A"),
        ("The answer is **a**, as one sees.", "A"),
        ("The answer is b because it is so.", "B"),
        ("The answer is A as told.", "A"),
        ("The answer is b's colour, or another one.", None),
    ],
)
def test_initial_letters_and_articles_are_not_options(said: str, letter: str | None) -> None:
    assert loosely_chosen(said, ("red", "green", "blue", "dog")) == letter


@pytest.mark.parametrize(
    ("said", "choices", "letter"),
    [
        ("是点B", ("点B", "点A", "点C"), "A"),
        ("它是维生素C", ("维生素C", "维生素D", "维生素A"), "A"),
        ("It's T_B", ("T_B", "T_A", "T_C"), "A"),
        ("答案是B，点A", ("点B", "点A", "点C"), "B"),
        ("答案是B", ("点B", "点A", "点C"), "B"),
        ("The answer is B. B 点", ("点B", "点A", "点C"), "B"),
        ("My choice: B. cat", ("A. dog", "B. cat", "C. cow"), "B"),
    ],
)
def test_a_letter_inside_an_options_text_is_not_another_options_letter(
    said: str, choices: tuple[str, ...], letter: str
) -> None:
    assert loosely_chosen(said, choices) == letter


@pytest.mark.parametrize(
    ("said", "letter"),
    [
        ("dark green", "D"),
        ("Dark green.", "D"),
        ("A dog", "E"),
        ("d", "D"),
        ("(d)", "D"),
        ("答案是B", "B"),
        ("答案：（B）。", "B"),
        ("正确答案为【B】", "B"),
        ("Ｂ。", "B"),
        ("选A还是B？", None),
        ("B是我看了这张图以后的答案", None),
        ("`B`", "B"),
        ("Final Answer: $B$", "B"),
        ('The answer: "B"', "B"),
    ],
)
def test_the_loose_rule_accepts_the_strict_ones_answers_and_letters_next_to_any_script(
    said: str, letter: str | None
) -> None:
    assert loosely_chosen(said, ("red", "blue", "green", "dark green", "a dog")) == letter


def test_the_loose_rule_needs_to_know_the_options() -> None:
    with pytest.raises(DataError, match="choices"):
        check_ground_truth(sample("choice", "B", parm=LOOSE))
    with pytest.raises(DataError, match="strict, loose"):
        check_ground_truth(sample("choice", "B", choices=COLOURS, parm={"letter_rule": "lax"}))
