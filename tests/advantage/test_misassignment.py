import random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.advantage.brute import random_question, transferred
from vtune.advantage.credit import transfer_credit
from vtune.advantage.misassignment import by_tool, credit_row, mean_delta
from vtune.advantage.recipe import Credit, Gate


def recipe(theta: float, alpha: float) -> Credit:
    gate = Gate(similarity=theta, confidence=alpha)
    return Credit(beta=0.25, tools={"image_search": gate, "zoom": gate, "text_search": gate}, clip=False)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32), theta=st.sampled_from([0.3, 0.7, 1.0]), alpha=st.sampled_from([0.0, 0.5, 1.0])
)
def test_the_gated_delta_is_the_mean_transfer_of_the_slow_reference(
    seed: int, theta: float, alpha: float
) -> None:
    """Without the clip, β F is added to each advantage, so F can be recovered from the result."""
    rng = random.Random(seed)
    groups = [random_question(rng, group) for group in range(30)]
    constants = recipe(theta, alpha)
    moved = [
        (after - (t.advantage or 0.0)) / constants.beta
        for group in groups
        for t, found in zip(group, transferred(group, constants), strict=True)
        for after in found
        if after is not None and abs(after - (t.advantage or 0.0)) > 1e-9
    ]
    found = transfer_credit([t for group in groups for t in group], constants)
    everything, gated = mean_delta([found])
    assert everything == pytest.approx(fmean(match.credit for match in found.matches))
    # A group of witnesses with a mean advantage of 0 transfers nothing, but counts.
    passed = [match for match in found.matches if match.gated]
    assert sum(abs(match.credit) > 1e-8 for match in passed) == len(moved)
    assert (gated is None) == (not passed)
    if gated is not None:
        assert gated * len(passed) == pytest.approx(sum(moved), abs=1e-6)
    assert all(match.before < 0 for match in passed)
    assert sum(tool.gated for tool in by_tool([found]).values()) == len(passed)


def test_a_gate_that_no_call_passes_has_a_count_of_zero_and_no_gated_delta() -> None:
    """The ungated mean is still reported; a gated Δ of 0 would look like a measurement."""
    rng, constants = random.Random(3), recipe(0.3, 0.0)
    found = transfer_credit([t for g in range(40) for t in random_question(rng, g)], constants)
    held = found.__class__(
        call_advantages=found.call_advantages,
        matches=tuple(match._replace(gated=False) for match in found.matches),
        failing=found.failing,
        failing_calls=found.failing_calls,
    )
    row = credit_row([held], constants)
    assert row["credit_gated_calls"] == row["credit_zoom_gated_calls"] == 0
    assert "credit_delta" in row
    assert "credit_zoom_delta" in row
    assert not [name for name in row if name.endswith("delta_gated")]
    assert all(tool.delta_gated is None for tool in by_tool([held]).values())
    told = credit_row([found], constants)
    assert told["credit_gated_calls"] == sum(match.gated for match in found.matches) > 0
    assert {"credit_delta_gated", "credit_zoom_delta_gated"} <= set(told)
