"""A short soak: see tests/bench/soak_sandbox.py for the long one."""

import asyncio
from collections import Counter
from dataclasses import replace

from tests.bench.soak_sandbox import LIMITS, soak


def test_no_answer_is_wrong_and_nothing_is_left_however_processes_are_killed() -> None:
    limits = replace(LIMITS, seconds=1.0, grace=1.0)
    events, statuses = Counter[str](), Counter[str]()
    # Victims are chosen at random: on a busy machine there may be none in six seconds.
    for seed in range(10):
        report = asyncio.run(soak(seconds=6, sessions=16, seed=seed, limits=limits))
        assert report.wrong == []
        assert report.left == {}
        events += report.events
        statuses += report.statuses
        if events["sessions shot"] and events["zygotes shot"] + events["guardians shot"]:
            break
    assert events["opened"] > 0
    assert events["sessions shot"] > 0
    assert events["zygotes shot"] + events["guardians shot"] > 0
    assert statuses["honest ok"] > 0
