import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.cuda.meter import Meter
from vtune.update.diverged import LARGEST, Diverged, diverged


def weights(*given: torch.Tensor) -> torch.nn.ParameterList:
    return torch.nn.ParameterList(given)


def test_the_first_weight_that_has_diverged_is_found() -> None:
    fine = torch.full((8,), LARGEST / 8)
    for bad in (float("nan"), float("-inf"), 1e30, 2 * LARGEST):
        for dtype in (torch.float32, torch.bfloat16):
            broken = torch.tensor([0.5, bad, 0.5], dtype=dtype)
            found = diverged(weights(fine, torch.zeros(0), broken, broken.clone()))
            assert found is not None
            assert found[:2] == (2, "2")
    assert diverged(weights(fine, torch.zeros(0))) is None


def test_frozen_weights_are_not_asked() -> None:
    model = weights(torch.ones(2), torch.tensor([float("inf")]))
    assert diverged(model) == Diverged(1, "1", float("inf"))
    model[1].requires_grad_(False)
    assert diverged(model) is None


class Stacked(Exception):
    """The point at which numbers of the fake device would be read."""


def test_weights_may_be_on_different_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with ZeRO-3 and offload, where the small ones stay on the GPU; nothing large is copied."""
    devices: set[str] = set()

    def stack(norms: list[torch.Tensor]) -> None:
        devices.update(norm.device.type for norm in norms)
        raise Stacked

    monkeypatch.setattr(torch, "stack", stack)
    with FakeTensorMode():
        model = weights(torch.zeros(9999), torch.zeros(9999, device="cuda"), torch.zeros(4, device="cuda"))
        meter = Meter()
        meter.hold(list(model))
        before = meter.now
        with meter, pytest.raises(Stacked):
            diverged(model)
    assert devices == {"cuda"}
    assert meter.kernels["linalg_vector_norm"] == 2
    assert meter.peak - before < 100
