"""Replaces the model's engine with a scripted one."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from vtune.runs.agent import engines


def draw_with(patch: pytest.MonkeyPatch, engine: Callable[..., Any]) -> None:
    """Generate with an engine with made-up log-probabilities, and lift the limit that would end the run."""
    patch.setattr(engines, "TransformersEngine", engine)
    patch.setattr("vtune.runs.train.learning.MISMATCH", math.inf)
