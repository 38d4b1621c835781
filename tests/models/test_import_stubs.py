import gc
import importlib
import os
import sys
from collections.abc import Iterator

import pytest
import scipy.optimize
import torch

from tests.runs.commands import python
from vtune.models.import_stubs import uncollected, without_gpu, without_optimizers

NAME = "scipy.optimize"


@pytest.fixture
def not_imported() -> Iterator[None]:
    real = {name: module for name, module in sys.modules.items() if f"{name}.".startswith(f"{NAME}.")}
    del sys.modules[NAME]
    yield
    sys.modules.update(real)
    scipy.optimize = real[NAME]


def test_scipys_optimisers_are_imported_on_the_first_call(not_imported: None) -> None:
    with without_optimizers():
        from scipy.optimize import linear_sum_assignment
    assert NAME not in sys.modules
    rows, columns = linear_sum_assignment([[1, 5], [5, 1]], maximize=True)
    assert (rows.tolist(), columns.tolist()) == ([0, 1], [1, 0])
    assert NAME in sys.modules


def test_importing_another_optimiser_meanwhile_gives_the_real_one(not_imported: None) -> None:
    with without_optimizers():
        from scipy.optimize import minimize_scalar
    assert sys.modules[NAME].__file__
    assert minimize_scalar is sys.modules[NAME].minimize_scalar
    assert minimize_scalar(lambda x: (x - 2) ** 2).x == pytest.approx(2)


def test_importing_a_submodule_meanwhile_works(not_imported: None) -> None:
    """Some libraries import private submodules by name."""
    del sys.modules[f"{NAME}._linesearch"]
    with without_optimizers():
        from scipy.optimize._linesearch import line_search_wolfe1
    import scipy.optimize as real

    assert real.minimize_scalar
    assert line_search_wolfe1 is sys.modules[f"{NAME}._linesearch"].line_search_wolfe1


def test_a_module_that_is_already_imported_stays() -> None:
    with without_optimizers():
        assert sys.modules[NAME] is scipy.optimize


def test_garbage_collection_is_re_enabled_after_imports() -> None:
    """Also if the import fails; if the collector was off before, it stays off."""
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), uncollected():
        importlib.import_module("vtune.nowhere")
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_imported_objects_can_be_collected_and_a_frozen_heap_stays_frozen() -> None:
    ended = python(
        "import gc, sys, weakref\n"
        "from vtune.models.import_stubs import uncollected\n"
        "with uncollected():\n"
        "    import wave\n"
        "    wave.itself = wave\n"
        "print(gc.get_freeze_count())\n"
        "gone = weakref.ref(wave)\n"
        "del sys.modules['wave'], wave\n"
        "gc.collect()\n"
        "print(gone() is None)\n"
        "gc.freeze()\n"
        "with uncollected():\n"
        "    import colorsys\n"
        "print(gc.get_freeze_count() > 5000)\n"
    )
    assert (ended.stdout, ended.returncode) == ("0\nTrue\nTrue\n", 0), ended.stderr


@pytest.mark.parametrize(
    ("gpu", "said", "expected"), [(False, None, "cpu"), (True, None, None), (False, "cuda", "cuda")]
)
def test_deepspeed_is_only_told_that_there_is_no_gpu(
    gpu: bool, said: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", said or "")
    if said is None:
        monkeypatch.delenv("DS_ACCELERATOR")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    without_gpu()
    assert os.environ.get("DS_ACCELERATOR") == expected
