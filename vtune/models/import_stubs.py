"""Stubs for what DeepSpeed imports and no training here uses: four seconds of a processor in each process."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

MUON = "deepspeed.runtime.zero.muon.original_muon"
"""What DeepSpeed's optimiser Muon is made of: functions that torch's compiler gets as they are defined."""


@contextmanager
def without_mlflow() -> Iterator[None]:
    """Hide MLflow, where it is installed, from DeepSpeed's autotuner while that is imported: two seconds."""
    if "mlflow" in sys.modules:
        yield
        return
    sys.modules["mlflow"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["mlflow"]


def skip_muon() -> None:
    """Put names without content in the place of `MUON`, for good.

    DeepSpeed compares with the class at the start and at every reduction, and imports the functions before it
    knows whether it needs them: that sets up torch's compiler, two to four seconds. Nothing calls them.
    """
    if MUON not in sys.modules:
        module = ModuleType(MUON, "Stands in for DeepSpeed's, which is not used.")
        names = {"MuonWithAuxAdam": type("MuonWithAuxAdam", (), {}), "adam_update": None, "muon_update": None}
        vars(module).update(names)
        sys.modules[MUON] = module
