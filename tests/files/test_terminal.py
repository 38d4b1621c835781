"""Nothing in a cleaned text can steer a terminal, and a cleaned JSON document holds the same values."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from vtune.files.terminal import brief, clean, clean_json, cleaned, one_line

STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
ANYTHING = st.text(st.characters())
"""Halves of surrogate pairs among it."""


def test_an_escape_sequence_and_an_override_of_direction_are_spelled_out() -> None:
    assert clean("\x1b[31mred \u202eevil\n\tline") == "\\x1b[31mred \\u202eevil\n\tline"
    assert one_line("a\n  fix  b") == "a\\n  fix  b"


@given(ANYTHING)
def test_no_cleaned_text_steers_and_each_can_be_encoded(text: str) -> None:
    assert STEERING.search(clean(text)) is None
    assert clean(clean(text)) == clean(text)
    clean(text).encode()


@given(st.dictionaries(ANYTHING, ANYTHING))
def test_a_cleaned_json_document_holds_the_same_values(value: dict[str, str]) -> None:
    text = clean_json(json.dumps(value, ensure_ascii=False))
    assert STEERING.search(text) is None
    text.encode()
    assert json.loads(text) == json.loads(json.dumps(value))


def test_keys_and_nested_values_are_cleaned_and_others_kept() -> None:
    assert cleaned({"\x1b": [("\x07", 1)], "a": None}) == {"\\x1b": [("\\x07", 1)], "a": None}


def test_a_quoted_file_is_cut_in_the_middle_of_its_line_and_others_are_whole() -> None:
    text = brief("what\n" + "x" * 10**6 + "end\n  fix  it")
    assert text.startswith("what\nxxx")
    assert text.endswith("xxxend\n  fix  it")
    assert max(map(len, text.split("\n"))) <= 500


def test_letters_of_all_scripts_and_joined_emoji_stay() -> None:
    for text in ("naïve 日本語 עברית العربية", "👩\u200d💻", "𝔘"):
        assert clean(text) == text
