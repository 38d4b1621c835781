"""A short soak: see tests/bench/soak_sandbox.py for the long one."""

import asyncio
from dataclasses import replace

from tests.bench.soak_sandbox import LIMITS, soak


def test_no_answer_is_wrong_and_nothing_is_left_however_processes_are_killed() -> None:
    limits = replace(LIMITS, seconds=1.0, grace=1.0)
    report = asyncio.run(soak(seconds=6, sessions=16, seed=0, limits=limits))
    assert report.events["opened"] > 0
    assert report.events["sessions shot"] > 0
    assert report.events["zygotes shot"] + report.events["guardians shot"] > 0
    assert report.statuses["honest ok"] > 0
    assert report.wrong == []
    assert report.left == {}
