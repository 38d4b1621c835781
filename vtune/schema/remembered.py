"""A thread-safe cache for what is slow to compute, bounded in bytes."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """A cache that evicts the least recently used entries. A value is made once, however many wait for it.

    Args:
        room: Limit on the bytes of the cache; a single value is always kept, however large.
        size: Bytes of a key and its value.
    """

    def __init__(self, room: int, size: Callable[[K, V], int]) -> None:
        self._room = room
        self._size = size
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._coming: dict[K, Future[V]] = {}
        """Values that threads are making now."""
        self._turn = threading.Lock()
        """Guards everything; never held while a value is made."""

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made if it is not cached.

        An exception from `make` is raised for everyone waiting, and nothing is cached. `make` must not
        request the same key.
        """
        with self._turn:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            coming = self._coming.get(key)
            if coming is None:
                ours: Future[V] = Future()
                self._coming[key] = ours
        return self._make(key, make, ours) if coming is None else coming.result()

    def at_hand(self, key: K) -> V | None:
        """The value of a key if it is cached."""
        with self._turn:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def _make(self, key: K, make: Callable[[], V], coming: "Future[V]") -> V:
        try:
            value = make()
            taken = self._size(key, value)
            with self._turn:
                self._kept[key] = value
                self._room -= taken
                while self._room < 0 and len(self._kept) > 1:
                    self._room += self._size(*self._kept.popitem(last=False))
                del self._coming[key]
        except BaseException as error:
            with self._turn:
                self._coming.pop(key, None)
            coming.set_exception(error)
            raise
        coming.set_result(value)
        return value
