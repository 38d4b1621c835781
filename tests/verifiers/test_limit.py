import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from math_verify import grader, parser

from tests.verifiers.cases import sample, wrap
from vtune.verifiers import VERIFIERS, check_ground_truth, limit
from vtune.verifiers.limit import limited
from vtune.verifiers.math import verify_math


def busy() -> str:
    ends = time.thread_time() + 60
    while time.thread_time() < ends:
        pass
    return "done"


def asleep() -> str:
    time.sleep(0.3)
    return "done"


def test_only_computing_not_waiting_counts_towards_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "SECONDS", 0.1)
    began = time.thread_time()
    assert limited(busy, "stopped") == "stopped"
    # Under load the kernel's accounting is coarse (off by up to a second). Without the limit: 60 s.
    assert 0.1 <= time.thread_time() - began < 20
    assert limited(asleep, "stopped") == "done"


def test_the_limit_leaves_no_timer_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "SECONDS", 0.05)
    before = signal.getsignal(signal.SIGVTALRM)
    for work in (busy, asleep):
        limited(work, "stopped")
        assert signal.getsignal(signal.SIGVTALRM) == before
        assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_an_answer_beyond_the_time_limit_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verify_math(wrap("(x+y)^{9}"), sample("math", "(y+x)^{9}")).score == 1.0
    monkeypatch.setattr(limit, "SECONDS", 0.1)
    began = time.process_time()
    assert verify_math(wrap("(x+y+z)^{300}"), sample("math", "7")).score == 0.0
    assert time.process_time() - began < 4  # 5 s and more without a limit


def test_math_verify_runs_without_its_own_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own limit uses SIGALRM, which also hits a process that only waits for the CPU."""
    clocks = []

    def watched(whole: Callable[..., Any]) -> Callable[..., Any]:
        def work(*args: Any, **named: Any) -> Any:
            clocks.append(
                (signal.getitimer(signal.ITIMER_REAL)[0], signal.getitimer(signal.ITIMER_VIRTUAL)[0])
            )
            return whole(*args, **named)

        return work

    for module, name in ((parser, "extract_target_from_pred"), (grader, "sympy_expr_eq")):
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    for verifier in ("math", "ocr"):
        assert VERIFIERS[verifier].verify(wrap("x+1"), sample(verifier, "1+x")).score == 1.0
        check_ground_truth(sample(verifier, "1+x"))
    assert len(clocks) > 9
    assert {real for real, _ in clocks} == {0.0}
    assert min(used for _, used in clocks) > 4
