"""Searches of a trajectory: which calls are searches, what they ask for, and which ask for the same again."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from vtune.schema.trajectory import Call
from vtune.tools import image_search, text_search
from vtune.tools.scripts import plain

SEARCHES = (text_search.NAME, image_search.NAME)


def repeated_searches(calls: Sequence[Call]) -> frozenset[int]:
    """Indices of the calls that repeat a search: same tool and same arguments, ignoring case and spaces.

    A search whose output the policy never saw may be repeated.
    """
    made: set[tuple[str, ...]] = set()
    again = set()
    for k, call in enumerate(calls):
        if call.tool not in SEARCHES or call.status != "ok":
            continue
        search = (call.tool, *map(plain, asked(call)))
        if search in made:
            again.add(k)
        if not call.unseen:
            made.add(search)
    return frozenset(again)


def asked(call: Call) -> tuple[str, ...]:
    """The values of a call's arguments as text, with whitespace normalised."""
    try:
        values = tuple(_values(json.loads(call.arguments)))
    except (ValueError, RecursionError):  # other clients may send something that is not JSON
        values = (call.arguments,)
    return tuple(" ".join(value.split()) for value in values)


def _values(value: Any) -> Iterator[str]:
    """The values in lists and objects, regardless of the order of keys."""
    if isinstance(value, dict):
        for key in sorted(value):
            yield from _values(value[key])
    elif isinstance(value, list):
        for one in value:
            yield from _values(one)
    else:
        yield str(value)
