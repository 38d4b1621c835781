"""Rows of tokens as a tree: a prefix that several rows share is stored, and computed, once."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from vtune.errors import DataError

LEAST_SHARED = 16
"""Tokens; ours. A shorter common piece costs more in attention calls than it saves."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of tokens that all rows containing it have in common."""

    row: int
    """One of the rows that contain it."""
    start: int
    end: int
    """Its tokens are `row[start:end]`."""
    above: tuple[int, ...]
    """Indices of the segments before it in its rows, from the root."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Segments, each after those above it, and the path of each row through them."""

    segments: tuple[Segment, ...]
    paths: tuple[tuple[int, ...], ...]


def token_keys(token_ids: Sequence[int], pictures: Sequence[int], image_id: int) -> list[int]:
    """Token ids with the placeholders of picture `n` replaced by -1 - n: equal keys mean equal input.

    Args:
        token_ids: A conversation with placeholders expanded; pictures are never adjacent.
        pictures: The index of each of its pictures, in order; equal pictures have equal indices.
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
    """Length of the common prefix of two rows; the first `start` tokens are known to be equal."""
    end = min(len(first), len(second))
    low = start
    # Bisection compares slices, which is fast; once rows differ, they do not join again.
    while low < end:
        middle = (low + end + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            end = middle - 1
    return low


def segment_tree(rows: Sequence[list[int]], *, least: int = LEAST_SHARED) -> Tree:
    """Split rows where they diverge; a common piece of fewer than `least` tokens is stored with each row.

    Args:
        rows: Keys of each row's tokens (see `token_keys`).
        least: Minimum number of tokens for a piece to be shared.
    """
    segments: list[Segment] = []
    paths: list[tuple[int, ...]] = [()] * len(rows)

    def grow(numbers: Sequence[int], start: int, at: int, above: tuple[int, ...]) -> None:
        """Add rows, in the order of their keys, that agree up to `at` and are in the tree up to `start`."""
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
