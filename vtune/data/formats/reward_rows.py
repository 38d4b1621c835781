"""Rows that name their judge in `reward_model`: verl's, and every layout derived from it."""

from vtune.data.formats.table import Glance

ADDED = ("tools", "evidence", "choices", "environment")
"""Our own columns, which no published sample layout has."""


def is_own(glance: Glance) -> bool:
    """Whether a row has a column of our own."""
    row, judge = glance.row, glance.judge
    if judge is None or "verifier" not in judge:
        return judge is not None and bool(row.get("evidence"))
    return "tool_ratio" in judge or any(row.get(name) for name in ADDED)


def names_verifier(glance: Glance) -> bool:
    """Whether a row names its verifier, as V-Triune's do, and has no column of our own."""
    return "verifier" in (glance.judge or ()) and not is_own(glance)


def is_judged(glance: Glance) -> bool:
    """Whether a row names its judge as verl's rows do, without anything specific to V-Triune or to us."""
    judge = glance.judge
    return judge is not None and "verifier" not in judge and not glance.row.get("evidence")


def is_verl(glance: Glance) -> bool:
    """Whether a row is verl's own, not from a data set that extends its layout."""
    # DeepEyes and CodeV rows without a tool have an empty `env_name`.
    return is_judged(glance) and bool(glance.row.get("data_source")) and "env_name" not in glance.row
