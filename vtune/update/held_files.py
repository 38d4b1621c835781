"""Files held in memory until there is time to write them."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class HeldFile:
    """Passed to `torch.save` in place of a file: it collects the bytes of the future file.

    Args:
        path: Where the file will be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pieces: deque[bytes] = deque()

    def write(self, data: Any) -> int:
        """Keep a copy of a piece: the original data changes with the next update."""
        self._pieces.append(bytes(data))
        return len(self._pieces[-1])

    def flush(self) -> None:
        """Does nothing: there is no file yet."""

    def write_out(self) -> None:
        """Write the file; each piece is freed as soon as it is written."""
        with self._path.open("wb") as file:
            while self._pieces:
                file.write(self._pieces.popleft())


class _Holding:
    """Replaces DeepSpeed's checkpoint engine: it holds what that one would write."""

    def __init__(self, engine: Any, held: list[HeldFile]) -> None:
        self._engine = engine
        self._held = held

    def save(self, state_dict: Any, path: str) -> None:
        self._held.append(HeldFile(Path(path)))
        self._engine.save(state_dict, self._held[-1])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


@contextmanager
def holding(engine: Any, held: list[HeldFile]) -> Iterator[None]:
    """Let a DeepSpeed engine save into `held` instead of to disk; small text files are written as usual."""
    plain = engine.checkpoint_engine
    engine.checkpoint_engine = _Holding(plain, held)
    try:
        yield
    finally:
        engine.checkpoint_engine = plain
