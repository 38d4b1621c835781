"""How much credit is misassigned, and what transfer does about it (Dong et al., figures 2 and 8-10).

Δ, the "credit transfer magnitude" of figures 9d and 10, is named but not defined in the paper; two things
reveal what it is. It covers the calls that pass the gates: figure 10 has a Δ of 1.0 to 1.2 for zooms and text
searches, whose median α is 0.05 to 0.35. No normalised advantage of 8 rollouts exceeds √7 = 2.65, so F = α
Adv (eq. 3) of a median zoom is 0.4 at most. (Its support and α cover all calls: α_min is 0.5.) And it is F
before β: with β = 0.25, β F is 0.66 at most, and its image searches have 1.5. So `delta_gated` is the
number in the figures, in units of the normalised advantage, and `delta`, F over all calls that have a
reference group, shows what the gates hold back.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from vtune.advantage.credit import TOLERANCE, Match, Transfer
from vtune.advantage.recipe import Credit


@dataclass(frozen=True, slots=True)
class Correctable:
    """Shares in [0, 1] of failures for which some success did something similar; None if nothing fails."""

    trajectories: float | None
    """The share of failing trajectories that have such a call (figure 2a)."""
    calls: float | None
    """The same share among the calls of failing trajectories (figure 2b)."""


@dataclass(frozen=True, slots=True)
class SupportBin:
    """Calls of failing trajectories, binned by the similarity of their most similar witness (figure 2c)."""

    low: float
    high: float
    """Exclusive, except if it is 1."""
    calls: int
    support: float | None
    """Mean support of their best reference groups; None if there are no calls."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and quartiles."""

    mean: float
    low: float
    """First quartile."""
    median: float
    high: float
    """Third quartile."""


@dataclass(frozen=True, slots=True)
class ToolCredit:
    """What was found for the calls of one tool type that have a reference group (figure 10)."""

    calls: int
    corrected: int
    """Number of calls whose advantage changed."""
    gated: int
    """Number of calls that passed both gates."""
    support: Spread
    alpha: Spread
    delta: Spread
    """F, before β, over all calls with a reference group."""
    delta_gated: Spread | None
    """The figures' Δ: F, before β, over those that passed both gates; None if none did."""


def correctable(transfers: Sequence[Transfer], theta: float | Credit) -> Correctable:
    """Shares of failing trajectories and calls that have a witness with a similarity of at least `theta`.

    Args:
        transfers: One per step, or one per process and step.
        theta: One threshold for all tool types, or a recipe with one per type.
    """

    def close(match: Match) -> bool:
        least = theta.tools[match.tool].similarity if isinstance(theta, Credit) else theta
        return match.nearest + TOLERANCE >= least

    found = [[match for match in one.matches if close(match)] for one in transfers]
    touched = sum(len({match.trajectory for match in part}) for part in found)
    trajectories = sum(len(one.failing) for one in transfers)
    calls = sum(one.failing_calls for one in transfers)
    return Correctable(
        trajectories=touched / trajectories if trajectories else None,
        calls=sum(map(len, found)) / calls if calls else None,
    )


def support_by_similarity(transfers: Iterable[Transfer], bins: int) -> list[SupportBin]:
    """Mean support of the best reference groups, in bins by similarity to the nearest witness."""
    matches = [match for one in transfers for match in one.matches]
    places = [min(int(match.nearest * bins + TOLERANCE), bins - 1) for match in matches]
    rows = []
    for number in range(bins):
        found = [match.support for match, place in zip(matches, places, strict=True) if place == number]
        rows.append(
            SupportBin(number / bins, (number + 1) / bins, len(found), fmean(found) if found else None)
        )
    return rows


def by_tool(transfers: Iterable[Transfer]) -> dict[str, ToolCredit]:
    """Statistics for each tool type, by name; types without a match are left out."""
    groups: dict[str, list[Match]] = {}
    for one in transfers:
        for match in one.matches:
            groups.setdefault(match.tool, []).append(match)
    return {
        tool: ToolCredit(
            calls=len(found),
            corrected=sum(match.correction != 0 for match in found),
            support=_spread([match.support for match in found]),
            alpha=_spread([match.confidence for match in found]),
            gated=sum(match.gated for match in found),
            delta=_spread([match.credit for match in found]),
            delta_gated=_spread(passed) if (passed := _gated(found)) else None,
        )
        for tool, found in sorted(groups.items())
    }


def mean_delta(transfers: Iterable[Transfer]) -> tuple[float | None, float | None]:
    """Mean F before β: over all calls that have a reference group, and over those that passed (figure 9d).

    Each is None if there is no such call.
    """
    matches = [match for one in transfers for match in one.matches]
    passed = _gated(matches)
    return (
        fmean(match.credit for match in matches) if matches else None,
        fmean(passed) if passed else None,
    )


def credit_row(transfers: Sequence[Transfer], recipe: Credit) -> dict[str, float]:
    """The metrics of a step; what could not be measured is left out.

    `credit_correctable_trajectories` and `credit_correctable_calls` (at the recipe's thresholds),
    `credit_corrected_calls` (share of the calls of failing trajectories), `credit_correction` (mean of what
    was added to those), `credit_delta` and `credit_delta_gated` (figure 9d), and for each tool type the means
    `credit_<type>_support`, `_alpha`, `_delta` and `_delta_gated` (figure 10). `credit_gated_calls` and
    `credit_<type>_gated_calls` count the calls that passed both gates: if they are 0 there is no Δ, and
    `_delta_gated` is left out.
    """
    shares = correctable(transfers, recipe)
    corrections = [m.correction for one in transfers for m in one.matches if m.correction != 0]
    calls = sum(one.failing_calls for one in transfers)
    delta, delta_gated = mean_delta(transfers)
    row: dict[str, float | None] = {
        "credit_correctable_trajectories": shares.trajectories,
        "credit_correctable_calls": shares.calls,
        "credit_corrected_calls": len(corrections) / calls if calls else None,
        "credit_correction": fmean(corrections) if corrections else None,
        "credit_gated_calls": sum(match.gated for one in transfers for match in one.matches),
        "credit_delta": delta,
        "credit_delta_gated": delta_gated,
    }
    for tool, found in by_tool(transfers).items():
        row |= {
            f"credit_{tool}_support": found.support.mean,
            f"credit_{tool}_alpha": found.alpha.mean,
            f"credit_{tool}_delta": found.delta.mean,
            f"credit_{tool}_gated_calls": found.gated,
            f"credit_{tool}_delta_gated": None if found.delta_gated is None else found.delta_gated.mean,
        }
    return {name: value for name, value in row.items() if value is not None}


def _gated(matches: Iterable[Match]) -> list[float]:
    """F of the calls that passed both gates."""
    return [match.credit for match in matches if match.gated]


def _spread(values: Sequence[float]) -> Spread:
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    return Spread(fmean(values), low, median, high)
