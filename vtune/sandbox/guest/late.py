"""Hooks for libraries that a model's code may import, installed on import, since most code never does."""

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


class _Late:
    """Finds modules as Python does, and passes some of them to a function once they are loaded."""

    def __init__(self, notes: dict[str, Callable[[ModuleType], None]]) -> None:
        self._notes = notes

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        note = self._notes.get(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if note else None
        if spec is None or note is None:
            return None
        loader: Any = spec.loader
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            note(module)

        loader.exec_module = exec_module
        return spec


def when_imported(notes: dict[str, Callable[[ModuleType], None]]) -> None:
    """Call a function with each of these modules when it is first imported, or now if it already is."""
    for name in notes.keys() & sys.modules.keys():
        notes[name](sys.modules[name])
    sys.meta_path.insert(0, _Late(notes))
