"""A cache of expensive values: each is made once, and they are bounded in bytes."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.schema.remembered import Remembered


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(0, 30))
def test_values_match_their_keys_and_stay_within_the_limit(keys: list[int], room: int) -> None:
    remembered: Remembered[int, int] = Remembered(room, lambda key, _: key)
    for key in keys:
        assert remembered.get(key, lambda key=key: key * key) == key * key  # type: ignore[misc]
        held = [one for one in range(10) if remembered.at_hand(one) is not None]
        assert key in held
        assert sum(held) <= max(room, key)


def test_the_least_recently_used_value_is_evicted_first() -> None:
    remembered: Remembered[str, str] = Remembered(2, lambda *_: 1)
    for key in ("a", "b", "a", "c"):
        remembered.get(key, lambda key=key: key)  # type: ignore[misc]
    assert [remembered.at_hand(key) for key in "abc"] == ["a", None, "c"]


def test_a_value_with_many_waiters_is_made_once() -> None:
    remembered: Remembered[str, object] = Remembered(100, lambda *_: 1)
    begun, go, made = threading.Event(), threading.Event(), []

    def make() -> object:
        made.append(object())
        begun.set()
        go.wait(10)
        return made[-1]

    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(remembered.get, "a", make)
        assert begun.wait(10)
        others = [threads.submit(remembered.get, "a", make) for _ in range(3)]
        assert remembered.get("b", lambda: 1) == 1  # a request waits only for its own key
        go.set()
        assert {id(one.result()) for one in (first, *others)} == {id(made[0])}
    assert len(made) == 1


def test_a_failed_value_is_tried_again() -> None:
    remembered: Remembered[str, int] = Remembered(100, lambda *_: 1)

    def fail() -> int:
        raise ValueError("not now")

    for _ in range(2):
        with pytest.raises(ValueError, match="not now"):
            remembered.get("a", fail)
    assert remembered.at_hand("a") is None
    assert remembered.get("a", lambda: 3) == 3


def test_a_value_without_a_size_is_not_kept_and_takes_no_room() -> None:
    remembered: Remembered[str, str] = Remembered(2, lambda _, value: 1 // len(value))
    remembered.get("a", lambda: "a")
    with pytest.raises(ZeroDivisionError):
        remembered.get("b", lambda: "")
    assert [remembered.at_hand(key) for key in "ab"] == ["a", None]
    assert remembered.get("b", lambda: "b") == "b"
    assert [remembered.at_hand(key) for key in "ab"] == ["a", "b"]
