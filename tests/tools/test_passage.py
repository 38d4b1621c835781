import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.errors import DataError
from vtune.tools.passage import Passage, passage_from


@pytest.mark.parametrize(
    ("row", "passage"),
    [
        # wiki-18 as used for search agents: PeterJinGo/wiki-18-corpus, and FlashRAG's wiki18_100w.
        ({"id": "0", "contents": '"Sark"\nSark is an island.'}, Passage("0", "Sark", "Sark is an island.")),
        ({"id": 7, "contents": '""Hello, Sark""\nA song.'}, Passage("7", '"Hello, Sark"', "A song.")),
        ({"id": "1", "contents": "Sark is an island."}, Passage("1", "", "Sark is an island.")),
        (
            {"id": "1", "contents": '"An island" is\nwhat it is.'},
            Passage("1", "", '"An island" is\nwhat it is.'),
        ),
        ({"id": 5.0, "contents": '""\n"Sark"\nhe said.'}, Passage("5", "", '"Sark"\nhe said.')),
        ({"id": "1", "contents": '"Sark"\n '}, Passage("1", "", '"Sark"\n ')),
        # A separate title, and a text that begins with a quotation, are unchanged.
        ({"title": "Talk", "contents": '"Sark"\nhe said.'}, Passage("f", "Talk", '"Sark"\nhe said.')),
        ({"text": '"Sark"\nhe said.', "contents": "other"}, Passage("f", "", '"Sark"\nhe said.')),
        # DPR and Pyserini.
        ({"id": "1", "title": "Sark", "passage": "An island."}, Passage("1", "Sark", "An island.")),
    ],
)
def test_rows_of_published_corpora_are_read(row: dict[str, object], passage: Passage) -> None:
    assert passage_from(row, "f") == passage


@given(
    title=st.text(st.characters(codec="utf-8", exclude_characters="\n\r")),
    text=st.text().filter(str.strip),
)
def test_title_and_text_are_restored_from_one_column(title: str, text: str) -> None:
    row = json.loads(json.dumps({"contents": f'"{title}"\n{text}'}))
    found = passage_from(row, "f")
    assert (found.title, found.text) == (title, text)


@pytest.mark.parametrize(
    ("row", "why"),
    [({"id": 5.5}, "`id` must be .* and is 5.5"), ({"title": ["a"]}, "`title` must .* \\['a'\\]")],
)
def test_a_row_of_other_kinds_is_refused_with_its_value(row: dict[str, object], why: str) -> None:
    with pytest.raises(DataError, match=why):
        passage_from({"text": "An island."} | row, "f")


def test_a_row_without_words_is_refused() -> None:
    for row in ({}, {"text": " \n"}, {"contents": None}, {"text": 3}):
        with pytest.raises(DataError, match="has no text"):
            passage_from(row, "f")
