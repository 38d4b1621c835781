import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from vtune.update.loss import clipped_policy_loss, kl_k3

logs = st.floats(-8, 0)
advantages = st.floats(-2, 2)
clips = st.sampled_from([0.1, 0.2, 0.28, 0.5])
tokens = st.lists(st.tuples(logs, st.floats(-1, 1), advantages), max_size=6)


def tensors(drawn: list[tuple[float, float, float]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-probabilities now and then, a little apart, and advantages; float64."""
    old = torch.tensor([log for log, _, _ in drawn], dtype=torch.float64)
    apart = torch.tensor([delta for _, delta, _ in drawn], dtype=torch.float64)
    return old + apart, old, torch.tensor([a for _, _, a in drawn], dtype=torch.float64)


def slow_loss(now: float, old: float, advantage: float, low: float, high: float) -> tuple[float, bool]:
    """CodeV eq. 4 for one token, in words: the ratio may help only as far as the clip lets it."""
    ratio = math.exp(now - old)
    if advantage >= 0:
        decided = ratio > 1 + high
        return -advantage * (1 + high if decided else ratio), decided and advantage > 0
    decided = ratio < 1 - low
    return -advantage * (1 - low if decided else ratio), decided


@given(tokens, clips, clips)
def test_the_policy_loss_is_that_of_a_slow_reading_of_the_formula(
    drawn: list, low: float, high: float
) -> None:
    now, old, gains = tensors(drawn)
    found = clipped_policy_loss(now, old, gains, clip_low=low, clip_high=high)
    slow = [
        slow_loss(*values, low, high)
        for values in zip(now.tolist(), old.tolist(), gains.tolist(), strict=True)
    ]
    assert found.loss.tolist() == pytest.approx([loss for loss, _ in slow], rel=1e-9, abs=1e-12)
    for flag, (_, decided), value in zip(found.clipped.tolist(), slow, gains.tolist(), strict=True):
        assert flag == decided or abs(value) < 1e-9


@given(tokens.filter(len), clips, clips)
def test_the_gradient_of_the_policy_loss_is_its_slope(drawn: list, low: float, high: float) -> None:
    now, old, gains = tensors(drawn)
    ratio = (now - old).exp()
    assume(((ratio - 1 - high).abs() > 1e-3).all() and ((ratio - 1 + low).abs() > 1e-3).all())
    now.requires_grad_(True)

    def total(at: torch.Tensor) -> torch.Tensor:
        return clipped_policy_loss(at, old, gains, clip_low=low, clip_high=high).loss.sum()

    (gradient,) = torch.autograd.grad(total(now), now)
    step = 1e-6
    for index in range(len(drawn)):
        nudge = torch.zeros_like(old)
        nudge[index] = step
        slope = (total(now + nudge) - total(now - nudge)) / (2 * step)
        assert gradient[index].item() == pytest.approx(slope.item(), rel=1e-5, abs=1e-7)


def test_what_the_clip_decides_teaches_nothing() -> None:
    now = torch.log(torch.tensor([1.5, 0.5, 1.5, 0.5])).requires_grad_(True)
    old, gains = torch.zeros(4), torch.tensor([1.0, -1.0, -1.0, 1.0])
    found = clipped_policy_loss(now, old, gains, clip_low=0.2, clip_high=0.2)
    found.loss.sum().backward()
    assert found.clipped.tolist() == [True, True, False, False]
    assert found.loss.tolist() == pytest.approx([-1.2, 0.8, 1.5, -0.5])
    assert now.grad is not None
    assert now.grad.tolist() == pytest.approx([0, 0, 1.5, -0.5])


def test_on_policy_the_gradient_is_that_of_reinforce() -> None:
    now = torch.tensor([-1.0, -2.0]).requires_grad_(True)
    gains = torch.tensor([0.5, -0.25])
    found = clipped_policy_loss(now, now.detach(), gains, clip_low=0.2, clip_high=0.2)
    found.loss.sum().backward()
    assert now.grad is not None
    assert now.grad.tolist() == [-0.5, 0.25]
    assert not found.clipped.any()


@given(st.lists(st.tuples(logs, logs), max_size=6))
def test_the_kl_estimate_is_that_of_a_slow_reading_and_never_negative(drawn: list) -> None:
    now, reference = (torch.tensor([pair[k] for pair in drawn], dtype=torch.float64) for k in (0, 1))
    found = kl_k3(now, reference).tolist()
    assert found == pytest.approx([math.exp(r - n) - (r - n) - 1 for n, r in drawn], rel=1e-9, abs=1e-12)
    assert all(value >= -1e-12 for value in found)


@given(logs, logs)
def test_the_gradient_of_the_kl_estimate_is_its_slope(now: float, reference: float) -> None:
    at = torch.tensor([now], dtype=torch.float64, requires_grad=True)
    fixed = torch.tensor([reference], dtype=torch.float64)
    (gradient,) = torch.autograd.grad(kl_k3(at, fixed).sum(), at)
    step = 1e-6
    slope = (kl_k3(at + step, fixed) - kl_k3(at - step, fixed)) / (2 * step)
    assert gradient.item() == pytest.approx(slope.item(), rel=1e-4, abs=1e-6)


def test_the_kl_estimate_has_the_kl_as_its_mean() -> None:
    policy, reference = (
        torch.log_softmax(torch.randn(50, generator=torch.Generator().manual_seed(seed)), 0)
        for seed in (0, 1)
    )
    true = (policy.exp() * (policy - reference)).sum()
    torch.testing.assert_close((policy.exp() * kl_k3(policy, reference)).sum(), true)


def test_shapes_that_do_not_match_are_refused_here() -> None:
    with pytest.raises(TypeCheckError):
        clipped_policy_loss(torch.zeros(2), torch.zeros(2, 1), torch.zeros(2), clip_low=0.2, clip_high=0.2)
