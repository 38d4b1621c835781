"""A policy that several files of tests about evaluation share."""

import pytest

import vtune.runs.agent.engines as vtune_engines
from tests.runs.evaluate.scripted import Saying


@pytest.fixture
def saying(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The policy's replies, one for each question in order: a test fills the list."""
    replies: list[str] = []
    monkeypatch.setattr(vtune_engines, "TransformersEngine", lambda policy, **_: Saying(policy.chat, replies))
    return replies
