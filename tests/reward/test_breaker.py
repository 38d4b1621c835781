from hypothesis import given
from hypothesis import strategies as st

from vtune.reward.breaker import FAILURES, FIRST_PAUSE, LONGEST_PAUSE, Breaker


def opened(now: float = 0.0) -> Breaker:
    breaker = Breaker()
    for _ in range(FAILURES):
        breaker.began()
        breaker.failed("refused", now)
    return breaker


def test_the_breaker_opens_only_after_consecutive_failures() -> None:
    breaker = Breaker()
    for _ in range(5):
        for _ in range(FAILURES - 1):
            breaker.began()
            breaker.failed("refused", 0.0)
        assert breaker.allows(0.0)
        breaker.began()
        breaker.succeeded()
    assert not opened().allows(0.0)
    assert opened().why == "refused"


def test_after_its_pause_the_breaker_allows_one_probe() -> None:
    breaker = opened()
    assert breaker.opens_in(0.2) == FIRST_PAUSE - 0.2
    assert not breaker.allows(FIRST_PAUSE - 0.01)
    assert breaker.allows(FIRST_PAUSE)
    breaker.began()
    assert not breaker.allows(FIRST_PAUSE)
    breaker.succeeded()
    assert breaker.allows(FIRST_PAUSE)
    assert not breaker.is_open


def test_a_failed_probe_doubles_the_pause_up_to_a_limit() -> None:
    breaker, now, pauses = opened(), FIRST_PAUSE, []
    for _ in range(8):
        breaker.began()
        breaker.failed("refused", now)
        pauses.append(breaker.opens_in(now))
        now += pauses[-1]
    assert pauses[:2] == [2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert pauses[-1] == LONGEST_PAUSE


def test_a_cancelled_probe_allows_the_next_one() -> None:
    breaker = opened()
    breaker.began()
    breaker.given_up()
    assert breaker.allows(FIRST_PAUSE)


def test_many_concurrent_failures_open_the_breaker_for_one_pause() -> None:
    breaker = Breaker()
    for _ in range(10):
        breaker.began()
    for _ in range(10):
        breaker.failed("reset", 1.0)
    assert breaker.opens_in(1.0) == FIRST_PAUSE


@given(st.lists(st.sampled_from(["ask", "fail", "succeed", "wait"]), max_size=60))
def test_the_breaker_always_allows_a_request_within_the_longest_pause(events: list[str]) -> None:
    breaker, now = Breaker(), 0.0
    for event in events:
        if event == "wait":
            now += 1.0
        elif event == "ask" and breaker.allows(now):
            breaker.began()
        elif event == "fail":
            breaker.failed("refused", now)
        elif event == "succeed":
            breaker.succeeded()
    breaker.given_up()
    assert breaker.allows(now + LONGEST_PAUSE)
