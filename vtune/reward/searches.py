"""Searches of a trajectory: which calls are searches, what they ask for, and which ask for the same again."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from vtune.schema.trajectory import Call
from vtune.tools import image_search, text_search
from vtune.tools.scripts import plain

SEARCHES = (text_search.NAME, image_search.NAME)


def repeated_searches(calls: Sequence[Call]) -> frozenset[int]:
    """Numbers of the calls that repeat a search: the tool and, but for case and spaces, its arguments.

    A search that the policy never saw the output of may be made again.
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
    """The values of a call's arguments as text, without needless spaces."""
    try:
        values = tuple(_values(json.loads(call.arguments)))
    except (ValueError, RecursionError):  # what a foreign client sends need not be JSON
        values = (call.arguments,)
    return tuple(" ".join(value.split()) for value in values)


def _values(value: Any) -> Iterator[str]:
    """The values in lists and objects, whatever the order of keys."""
    if isinstance(value, dict):
        for key in sorted(value):
            yield from _values(value[key])
    elif isinstance(value, list):
        for one in value:
            yield from _values(one)
    else:
        yield str(value)
