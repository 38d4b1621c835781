"""Hooks for libraries that a model's code may import, installed on import, since most code never does."""

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


class _Late:
    """Finds modules as Python does, and lets a function see some of them once they are there."""

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
    """Let functions see modules, by their names, when they are first imported, or now."""
    for name in notes.keys() & sys.modules.keys():
        notes[name](sys.modules[name])
    sys.meta_path.insert(0, _Late(notes))
