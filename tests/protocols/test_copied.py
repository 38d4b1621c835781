"""Extracted answers: a rephrasing of the reply counts, something made up does not."""

from hypothesis import given
from hypothesis import strategies as st

from vtune.protocols.readers import extract, read_extracted

# (reply, extracted answer): an honest extraction may rephrase it
FROM_REPLY = [
    ("It is 14.", "14.0"), ("so 0.5", "1/2"), ("\\frac{1}{2}", "0.5"), ("three", "3"), ("One and a half", "1.5"), ("12 cm", "12"),
    ("1,234 m", "1234"), ("2007 to 2008", "[2007, 2008]"), ("0.5", "50%"), ("1.2 \\times 10^{-3}", "0.0012"), ("1.4583", "1.46"),
    ("1.4583", "1.4"), ("它增加了", "增加"), ("2\\pi", "2π"), ("1/2", "½"), ("it increases", "increasing"), ("x = −3", "-3"),
    ("put < there", "<"), ("Yes, it is", "yes"), ("a quarter", "0.25"), ("The line y = 2x + 1", "y=2x+1"), ("I cannot tell", "NONE"),
]  # fmt: skip
NOT_FROM_REPLY = [
    ("It is 14.", "%%% ☃ lorem {{"), ("It is 14.", "15"), ("It is 14.", "lorem ipsum"), ("It is 14.", "☃"), ("It is 30 degrees", "B"),
    ("It is 14.", "I am sorry, that is no text"), ("none", ""), ("3", "</think>"), ("1" * 5000, "2"), ("1/0", "7"), ("x", "1" * 400),
]  # fmt: skip


def test_an_extraction_that_shares_nothing_with_the_reply_is_rejected() -> None:
    assert len(FROM_REPLY) > 20
    read = {pair: extract("How many?", pair[0]).read(pair[1]) for pair in FROM_REPLY + NOT_FROM_REPLY}
    assert [pair for pair in FROM_REPLY if read[pair] is None] == []
    assert [pair for pair in NOT_FROM_REPLY if read[pair] is not None] == []


# With options, an extraction may be an option's letter, its text, or words of the reply.
OF_OPTIONS = ["B", "(B)", "b", "B.", "(B) green", "B: green", "Option B", "green", "the colour is Green", "The answer is B", "**B**",
              "\\boxed{B}", "greenish", "A sort of greenish", "NONE"]  # fmt: skip
NOT_OF_OPTIONS = [
    "%%% ☃ lorem {{",
    "E",
    "Z",
    "lorem ipsum dolor",
    "☃",
    "A lorem ipsum",
    "I am sorry, I see no text",
    "",
]


def test_with_options_a_letter_a_text_or_a_part_of_the_reply_is_accepted() -> None:
    read = extract("What is it?", "A sort of greenish", ("red", "green", "blue")).read
    assert [text for text in OF_OPTIONS if read(text) is None] == []
    assert [text for text in NOT_OF_OPTIONS if read(text) is not None] == []
    listed = extract("What is it?\nChoices:\nA:20\nB:30", "It is 30 degrees").read
    assert [listed(text) for text in ("B", "30", "C", "40")] == ["B", "30", None, None]


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_accepted_or_rejected_without_an_error(reply: str, said: str) -> None:
    assert extract("", reply).read(said) in (None, read_extracted(said))
    assert extract("", said).read(said) == read_extracted(said)
