"""Faster imports: no garbage collection, and stubs for what large packages import but vtune never uses."""

import gc
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

MUON = "deepspeed.runtime.zero.muon.original_muon"
"""The core of DeepSpeed's Muon optimiser: functions that are decorated for torch's compiler."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Suspend garbage collection during an import, most of whose objects stay.

    While torch, transformers and DeepSpeed load, the collector would traverse all loaded objects seven times:
    one second of five.
    """
    if not gc.isenabled():
        yield
        return
    known = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > known and not gc.get_freeze_count():
            # Moves all objects to the oldest generation, which is rarely collected.
            gc.freeze()
            gc.unfreeze()
        gc.enable()


@contextmanager
def without_mlflow() -> Iterator[None]:
    """Hide MLflow, if installed, from DeepSpeed's autotuner during the import: saves two seconds."""
    if "mlflow" in sys.modules:
        yield
        return
    sys.modules["mlflow"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["mlflow"]


def without_gpu() -> None:
    """Tell DeepSpeed before its import if there is no GPU: otherwise it warns that it found none."""
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")


def skip_muon() -> None:
    """Permanently replace `MUON` with a module of empty names.

    DeepSpeed compares with the class at the start and at every reduction, and imports the functions before it
    knows whether it needs them: that sets up torch's compiler, two to four seconds. Nothing calls them.
    """
    if MUON not in sys.modules:
        module = ModuleType(MUON, "Stands in for DeepSpeed's, which is not used.")
        names = {"MuonWithAuxAdam": type("MuonWithAuxAdam", (), {}), "adam_update": None, "muon_update": None}
        vars(module).update(names)
        sys.modules[MUON] = module


class _Deferred(ModuleType):
    """Stands in for a package, which is imported once a function of it is called or another name is used."""

    def __init__(self, name: str, function: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None, is_package=True)
        # Its submodules can be imported by name, as some libraries do; that does not import the parent.
        parent, _, last = name.rpartition(".")
        folders = getattr(find_spec(parent), "submodule_search_locations", None)
        self.__path__ = [str(Path(folder) / last) for folder in folders or ()]

        def call(*values: Any, **named: Any) -> Any:
            return getattr(self._real(), function)(*values, **named)

        setattr(self, function, call)

    def _real(self) -> ModuleType:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return importlib.import_module(self.__name__)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # looked up by the import machinery
            raise AttributeError(name)
        return getattr(self._real(), name)


@contextmanager
def without_optimizers() -> Iterator[None]:
    """Make transformers import SciPy's optimisers only when needed: saves half a second.

    For any configuration it imports the losses of its detectors, which use them to match boxes to objects.
    """
    name = "scipy.optimize"
    if name in sys.modules:
        yield
        return
    stub = sys.modules[name] = _Deferred(name, "linear_sum_assignment")
    try:
        yield
    finally:
        if sys.modules.get(name) is stub:
            del sys.modules[name]
