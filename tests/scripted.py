"""Engines that tests put in the place of the model's."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from vtune.runs.agent import engines


def draw_with(patch: pytest.MonkeyPatch, engine: Callable[..., Any]) -> None:
    """Let an engine draw whose log-probabilities are nobody's: a run would end for them."""
    patch.setattr(engines, "TransformersEngine", engine)
    patch.setattr("vtune.runs.train.learning.MISMATCH", math.inf)
