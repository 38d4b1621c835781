"""Untrusted JSON is bounded in depth and number of parts."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.files.json_text import MAX_DEPTH, check_depth, kind_of_value, parse_json


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize("levels", [MAX_DEPTH + 2, 900, 100_000])
def test_too_deep_json_is_a_value_error_however_deep(levels: int) -> None:
    with pytest.raises(ValueError, match="nested more deeply than 64"):
        parse_json(nested(levels))


def test_json_at_the_depth_limit_parses() -> None:
    assert json.dumps(parse_json(nested(MAX_DEPTH))) == nested(MAX_DEPTH)


def test_brackets_in_a_string_do_not_count_as_depth() -> None:
    assert parse_json(json.dumps("[" * 1000)) == "[" * 1000


def test_many_empty_lists_are_refused_before_parsing() -> None:
    with pytest.raises(ValueError, match="more than the limit of 1000000"):
        parse_json("[" + "[]," * 1_000_000 + "[]]")


def test_a_value_that_holds_itself_is_too_deep() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ValueError, match="nested"):
        check_depth(value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_shallow_values_read_as_with_the_json_module(value: Any) -> None:
    assert parse_json(json.dumps(value)) == value


def test_a_number_with_too_many_digits_gets_a_user_message() -> None:
    with pytest.raises(ValueError, match=r"^a number has more than \d+ digits$"):
        parse_json("9" * 5_000)
    with pytest.raises(ValueError, match="Expecting value"):
        parse_json("no")


@pytest.mark.parametrize(
    ("value", "kind"),
    [(None, "null"), (True, "a boolean"), (1, "a number"), (0.5, "a number"), ("", "a text"), ([], "a list")],
)
def test_values_are_named_by_their_json_types(value: object, kind: str) -> None:
    assert kind_of_value(value) == kind
