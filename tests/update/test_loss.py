import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from vtune.update.loss import PolicyTerms, kl_k3, policy_loss
from vtune.update.recipe import PolicyLoss

logs = st.floats(-8, 0)
advantages = st.floats(-2, 2)
clips = st.sampled_from([0.1, 0.2, 0.28, 0.5])
caps = st.sampled_from([1.5, 2.0, 5.0])
tokens = st.lists(st.tuples(logs, st.floats(-1, 2), advantages, st.booleans()), max_size=6)
Drawn = list[tuple[float, float, float, bool]]


def terms(drawn: Drawn, *options: float) -> tuple[torch.Tensor, PolicyTerms]:
    """Log-probabilities now, with gradient, and what the loss makes of them; float64."""
    old = torch.tensor([log for log, _, _, _ in drawn], dtype=torch.float64)
    apart = torch.tensor([delta for _, delta, _, _ in drawn], dtype=torch.float64)
    gains = torch.tensor([gain for _, _, gain, _ in drawn], dtype=torch.float64)
    moved = torch.tensor([moved for *_, moved in drawn], dtype=torch.bool)
    now = (old + apart).requires_grad_(True)
    low, high, cap = options
    return now, policy_loss(now, old, gains, moved, clip_low=low, clip_high=high, importance_cap=cap)


def slow(ratio: float, advantage: float, moved: bool, *options: float) -> tuple[float, float, bool]:
    """Loss, slope and whether the clip decided, in words."""
    low, high, cap = options
    # A step that already went far enough in the direction of its advantage teaches no more.
    if moved and ratio > 1 + high and advantage > 0:
        return -advantage * (1 + high), 0.0, True
    if moved and ratio < 1 - low and advantage < 0:
        return -advantage * (1 - low), 0.0, True
    weight = min(ratio, cap)
    return -advantage * weight, -advantage * weight, False


@given(tokens, clips, clips, caps)
def test_the_policy_loss_and_its_gradient_are_those_of_a_slow_reading(
    drawn: Drawn, low: float, high: float, cap: float
) -> None:
    now, found = terms(drawn, low, high, cap)
    ratios = [math.exp(float(delta)) for _, delta, _, _ in drawn]
    assume(all(abs(r - edge) > 1e-6 for r in ratios for edge in (1 - low, 1 + high, cap)))
    expected = [
        slow(ratio, gain, moved, low, high, cap)
        for ratio, (_, _, gain, moved) in zip(ratios, drawn, strict=True)
    ]
    assert found.loss.tolist() == pytest.approx([loss for loss, _, _ in expected], rel=1e-9, abs=1e-12)
    (gradient,) = torch.autograd.grad(found.loss.sum(), now)
    assert gradient.tolist() == pytest.approx([slope for _, slope, _ in expected], rel=1e-9, abs=1e-12)
    assert found.truncated.tolist() == [ratio > cap for ratio in ratios]
    for flag, (_, _, decided), (_, _, gain, _) in zip(found.clipped.tolist(), expected, drawn, strict=True):
        assert flag == decided or abs(gain) < 1e-9


def test_what_the_clip_decides_teaches_nothing() -> None:
    drawn = [
        (-1.0, math.log(ratio), gain, True) for ratio, gain in ((1.5, 1), (0.5, -1), (1.5, -1), (0.5, 1))
    ]
    now, found = terms(drawn, 0.2, 0.2, 2.0)
    found.loss.sum().backward()
    assert found.clipped.tolist() == [True, True, False, False]
    assert found.loss.tolist() == pytest.approx([-1.2, 0.8, 1.5, -0.5])
    assert now.grad is not None
    assert now.grad.tolist() == pytest.approx([0, 0, 1.5, -0.5])


def test_a_mismatch_under_the_same_weights_is_weighed_and_never_clipped() -> None:
    drawn = [(-1.0, math.log(ratio), gain, False) for ratio, gain in ((1.5, 1), (0.5, -1), (3, 1), (3, -1))]
    now, found = terms(drawn, 0.2, 0.2, 2.0)
    found.loss.sum().backward()
    assert not found.clipped.any()
    assert found.truncated.tolist() == [False, False, True, True]
    assert now.grad is not None
    assert now.grad.tolist() == pytest.approx([-1.5, 0.5, -2, 2])


def test_importance_weights_make_the_gradient_that_of_the_weights_that_train() -> None:
    """Tokens drawn by one distribution, weighed for another: the mean over all tokens is exact."""
    drew, train = (
        torch.log_softmax(torch.tensor(x, dtype=torch.float64), 0) for x in ([1, 0, 0.3], [0.5, 0.4, 0])
    )
    gains = torch.tensor([1.0, -0.5, 0.25], dtype=torch.float64)
    logits = train.clone().requires_grad_(True)
    now = torch.log_softmax(logits, 0)
    found = policy_loss(
        now, drew, gains, torch.zeros(3, dtype=torch.bool), clip_low=0.2, clip_high=0.2, importance_cap=9.0
    )
    (ours,) = torch.autograd.grad((drew.exp() * found.loss).sum(), logits, retain_graph=True)
    (exact,) = torch.autograd.grad(-(now.exp() * gains).sum(), logits)
    torch.testing.assert_close(ours, exact)


def test_on_policy_the_gradient_is_that_of_reinforce() -> None:
    now, found = terms([(-1.0, 0.0, 0.5, True), (-2.0, 0.0, -0.25, False)], 0.2, 0.2, 2.0)
    found.loss.sum().backward()
    assert now.grad is not None
    assert now.grad.tolist() == [-0.5, 0.25]
    assert not found.clipped.any()


def test_a_cap_below_the_clip_is_refused() -> None:
    with pytest.raises(ValueError, match=r"importance_cap must be at least 1 \+ clip_high"):
        PolicyLoss(clip_low=0.2, clip_high=0.28, importance_cap=1.2, kl_weight=0.0)


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
    flags = torch.zeros(2, dtype=torch.bool)
    with pytest.raises(TypeCheckError):
        policy_loss(
            torch.zeros(2), torch.zeros(2, 1), torch.zeros(2), flags,
            clip_low=0.2, clip_high=0.2, importance_cap=2.0,
        )  # fmt: skip
