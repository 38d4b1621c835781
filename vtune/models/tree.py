"""Rows of tokens as a tree: a prefix that several rows share is stored, and computed, once."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from vtune.errors import DataError

LEAST_SHARED = 16
"""Tokens; ours. A shorter common piece costs more in attention calls than it saves."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens that follow one another in each row that has them."""

    row: int
    """One of the rows that have it."""
    start: int
    end: int
    """Its tokens are `row[start:end]`."""
    above: tuple[int, ...]
    """Numbers of the segments that come before it in its rows, from the root."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Segments, each after those above it, and the way of each row through them."""

    segments: tuple[Segment, ...]
    paths: tuple[tuple[int, ...], ...]


def token_keys(token_ids: Sequence[int], pictures: Sequence[int], image_id: int) -> list[int]:
    """Token ids in which the placeholders of picture `n` are -1 - n: equal keys mean equal input.

    Args:
        token_ids: A conversation, placeholders expanded; something stands between two pictures.
        pictures: The number of each of its pictures, in order; equal numbers for equal pictures.
        image_id: Token id of the image placeholder.

    Raises:
        DataError: If placeholders and pictures do not match.
    """
    keys: list[int] = []
    shown = iter(pictures)
    for is_picture, run in groupby(token_ids, key=image_id.__eq__):
        tokens = list(run)
        if is_picture:
            number = next(shown, None)
            if number is None:
                raise DataError(f"token {len(keys)} is an image placeholder without a picture")
            tokens = [-1 - number] * len(tokens)
        keys += tokens
    if next(shown, None) is not None:
        raise DataError("there are more pictures than placeholders")
    return keys


def common(first: Sequence[int], second: Sequence[int], *, start: int = 0) -> int:
    """How many tokens two rows have in common from their beginning; `start` of them are known."""
    end = min(len(first), len(second))
    low = start
    # Halving compares slices, which is quick; rows differ once and then go their own ways.
    while low < end:
        middle = (low + end + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            end = middle - 1
    return low


def segment_tree(rows: Sequence[list[int]], *, least: int = LEAST_SHARED) -> Tree:
    """Split rows where they part; a common piece of fewer than `least` tokens is kept by each row.

    Args:
        rows: Keys of each row's tokens (see `token_keys`).
        least: Tokens that a piece must have to be shared.
    """
    segments: list[Segment] = []
    paths: list[tuple[int, ...]] = [()] * len(rows)

    def grow(numbers: Sequence[int], start: int, at: int, above: tuple[int, ...]) -> None:
        """Rows that agree up to `at` and are in the tree up to `start`, in the order of their keys."""
        for _, group in groupby(numbers, key=lambda number: rows[number][at : at + 1]):
            same = list(group)
            end = common(rows[same[0]], rows[same[-1]], start=at)
            alike = all(len(rows[number]) == end for number in same)
            if not alike and end - start < least:
                grow(same, start, end, above)
                continue
            here = above
            if end > start:
                segments.append(Segment(same[0], start, end, above))
                here = (*above, len(segments) - 1)
            for number in same:
                paths[number] = here
            grow([number for number in same if len(rows[number]) > end], end, end, here)

    grow(sorted(range(len(rows)), key=lambda number: rows[number]), 0, 0, ())
    return Tree(tuple(segments), tuple(paths))
