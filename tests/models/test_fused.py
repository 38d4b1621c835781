"""Fused modules compared with the stock ones: values, gradients, and checkpoints."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.models.rows import ragged
from tests.models.test_batch import batched, logits
from vtune.models.fused import _fused_norm, _Norm, use_fused_modules
from vtune.models.policy import Policy
from vtune.models.rotation import signed, turned, turned_with_gradient


def stock_copy(policy: Policy) -> Policy:
    """A copy of the policy with transformers' original modules."""
    found = copy.copy(policy)
    object.__setattr__(found, "model", copy.deepcopy(policy.model))
    for module in found.model.modules():
        module.__dict__.pop("forward", None)
    return found


def test_log_probabilities_and_gradients_match_the_stock_modules(each_policy: Policy) -> None:
    theirs = stock_copy(each_policy)
    ours = stock_copy(each_policy)
    use_fused_modules(ours.model)
    assert sum("forward" in module.__dict__ for module in ours.model.modules()) >= 6
    found = []
    for policy in (ours, theirs):
        logprobs = torch.log_softmax(logits(policy, batched(policy, ragged(policy))), -1)
        loss = (logprobs[..., 5] * torch.linspace(-1, 1, logprobs.shape[1])).sum()
        gradients = torch.autograd.grad(loss, list(policy.model.parameters()))
        found.append((logprobs.detach(), gradients))
    (mine, my_gradients), (wanted, their_gradients) = found
    torch.testing.assert_close(mine, wanted, rtol=0, atol=1e-5)
    largest = max(float(gradient.norm()) for gradient in their_gradients)
    assert largest > 1
    for one, other in zip(my_gradients, their_gradients, strict=True):
        assert float((one - other).norm()) <= 3e-6 * max(float(other.norm()), 1e-2 * largest)


@pytest.mark.parametrize("of", [_fused_norm, _Norm.apply])
def test_a_norm_with_gradient_matches_the_stock_one(of: Callable[[Any, Any, float], torch.Tensor]) -> None:
    torch.manual_seed(0)
    states, weight = (torch.randn(*shape, requires_grad=True) for shape in ((5, 3, 32), (32,)))
    scale = torch.rsqrt(states.square().mean(-1, keepdim=True) + 1e-6)
    pull = torch.randn(5, 3, 32)
    found = [
        (values, *torch.autograd.grad((values * pull).sum(), [states, weight]))
        for values in (of(states, weight, 1e-6), weight * (states * scale))
    ]
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_the_patch_embedding_has_a_shape_that_adapters_support(each_policy: Policy) -> None:
    ours, theirs = (stock_copy(each_policy).model.model.visual.patch_embed.proj for _ in range(2))
    use_fused_modules(ours)
    patches = torch.randn(4, *ours.weight.shape[1:])
    torch.testing.assert_close(ours(patches), theirs(patches), rtol=1e-5, atol=1e-5)


def test_the_gradient_of_a_rotation_matches_autograd() -> None:
    torch.manual_seed(0)
    states = torch.randn(1, 7, 3, 16, dtype=torch.float64, requires_grad=True)
    angles = torch.randn(1, 7, 1, 8, dtype=torch.float64).repeat(1, 1, 1, 2)
    cosine, sine = angles.cos(), signed(angles.sin())
    weights = torch.randn_like(states)
    found = [
        torch.autograd.grad((of(states, cosine, sine) * weights).sum(), states)[0]
        for of in (turned, turned_with_gradient)
    ]
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)
    # A rotation preserves lengths.
    torch.testing.assert_close(turned(states, cosine, sine).norm(dim=-1), states.norm(dim=-1))
