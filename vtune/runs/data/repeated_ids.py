"""Finds repeated ids in a corpus that may be too long for a set of them."""

import hashlib
from array import array
from collections.abc import Iterable, Set

import numpy as np


class Identities:
    """Ids as they are read, eight bytes for each: a Wikipedia of 21 million passages takes 170 MB."""

    def __init__(self) -> None:
        self._digests = array("Q")

    def add(self, identity: str) -> None:
        """Add one id."""
        self._digests.append(_digest(identity))

    def repeated(self) -> Set[int]:
        """The digests that occurred at least twice."""
        values, counts = np.unique(np.frombuffer(self._digests, dtype=np.uint64), return_counts=True)
        return frozenset(values[counts > 1].tolist())


def first_twice(rows: Iterable[tuple[str, str]], repeated: Set[int]) -> str | None:
    """The first repeated id, and where it is.

    Args:
        rows: (id, its place) of each row, read again.
        repeated: From `Identities.repeated`.

    Returns:
        None if different ids merely share a digest.
    """
    seen: dict[str, str] = {}
    for identity, where in rows:
        if _digest(identity) in repeated:
            if identity in seen:
                return f"id {identity!r} appears twice, in {seen[identity]} and in {where}"
            seen[identity] = where
    return None


def _digest(identity: str) -> int:
    return int.from_bytes(hashlib.blake2b(identity.encode(errors="surrogatepass"), digest_size=8).digest())
