"""Lists of values in rows."""

from typing import Any

import pytest

from vtune.errors import DataError
from vtune.schema.fields import Fields


def fields(value: Any) -> Fields:
    return Fields({"x": value}, "row.")


def test_whole_numbers_convert_the_same_alone_and_in_lists() -> None:
    assert fields([0.5, None]).numbers_or_null("x") == (0.5, None)
    found = fields([1, 0.5, None]).numbers_or_null("x")
    assert found == (1.0, 0.5, None)
    assert [type(value) for value in found] == [float, float, type(None)]


@pytest.mark.parametrize("at", [0, 5, 9])
@pytest.mark.parametrize(
    ("read", "good", "bad"),
    [
        ("integers", 7, True),
        ("integers", 7, None),
        ("integers_or_null", 7, 0.5),
        ("numbers_or_null", 0.5, False),
        ("flags", True, 1),
        ("flags", True, None),
    ],
)
def test_a_single_value_of_another_type_is_found(read: str, good: Any, bad: Any, at: int) -> None:
    values = [good] * 10
    assert getattr(fields(values), read)("x") == tuple(values)
    values[at] = bad
    with pytest.raises(DataError) as caught:
        getattr(fields(values), read)("x")
    assert caught.value.where == "column `row.x`"
