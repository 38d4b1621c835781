"""A cleaned text cannot control a terminal, and a cleaned JSON document holds the same values."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from vtune.files.terminal import brief, clean, clean_json, cleaned, one_line

STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
ANYTHING = st.text(st.characters())
"""Includes lone surrogates."""


def test_escape_sequences_and_direction_overrides_are_spelled_out() -> None:
    assert clean("\x1b[31mred \u202eevil\n\tline") == "\\x1b[31mred \\u202eevil\n\tline"
    assert one_line("a\n  fix  b") == "a\\n  fix  b"


@given(ANYTHING)
def test_a_cleaned_text_has_no_control_characters_and_can_be_encoded(text: str) -> None:
    assert STEERING.search(clean(text)) is None
    assert clean(clean(text)) == clean(text)
    clean(text).encode()


@given(st.dictionaries(ANYTHING, ANYTHING))
def test_a_cleaned_json_document_holds_the_same_values(value: dict[str, str]) -> None:
    text = clean_json(json.dumps(value, ensure_ascii=False))
    assert STEERING.search(text) is None
    text.encode()
    assert json.loads(text) == json.loads(json.dumps(value))


def test_keys_and_nested_values_are_cleaned_and_the_rest_is_kept() -> None:
    assert cleaned({"\x1b": [("\x07", 1)], "a": None}) == {"\\x1b": [("\\x07", 1)], "a": None}


def test_only_an_overlong_quoted_line_is_shortened_in_the_middle() -> None:
    text = brief("what\n" + "x" * 10**6 + "end\n  fix  it")
    assert text.startswith("what\nxxx")
    assert text.endswith("xxxend\n  fix  it")
    assert max(map(len, text.split("\n"))) <= 500


def test_letters_of_all_scripts_and_joined_emoji_are_kept() -> None:
    for text in ("naïve 日本語 עברית العربية", "👩\u200d💻", "𝔘"):
        assert clean(text) == text
