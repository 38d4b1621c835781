"""The cost of questions: a limit is never exceeded, and spending is remembered across sessions."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judge.server import FakeJudge, JsonHandler, completion, serve
from tests.listening import listening
from vtune.judge.budget import AROUND, PICTURE, Budget, OverBudget, Prices, Purse, Tokens
from vtune.judge.client import JudgeClient
from vtune.judge.completions import NoAnswer, NoReply
from vtune.judge.kept import read_kept
from vtune.judge.prompts import Prompt

PRICES = Prices(input=2.0, cached_input=0.5, output=8.0, currency="USD")
EMPTY = Budget()


def asked(judge: FakeJudge, purse: Purse, cache: Path | None, *texts: str, **changes: Any) -> list[Any]:
    async def all_of_them() -> list[Any]:
        async with JudgeClient(judge.endpoint(**changes), cache=cache, purse=purse) as client:
            found = (client.ask(Prompt("", text), ()) for text in texts)
            return list(await asyncio.gather(*found, return_exceptions=True))

    return asyncio.run(all_of_them())


def test_token_prices_are_set_by_the_user() -> None:
    tokens = Tokens(input=1_000_000, cached=400_000, output=100_000)
    assert tokens.cost(PRICES) == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.1 * 8)


def test_a_request_is_allowed_only_if_all_of_it_fits() -> None:
    purse = Purse(Budget(tokens=AROUND + 4 + 10), None)
    held = purse.hold(["äö"], 0, 10)
    assert held == Tokens(input=AROUND + 4, output=10)
    with pytest.raises(OverBudget, match="budget of 78 tokens"):
        purse.hold([""], 0, 1)
    purse.settle(held, Tokens(input=3, output=1))
    assert purse.spent == Tokens(3, 0, 1)
    with pytest.raises(OverBudget):
        purse.hold([""], 1, 1)
    assert Purse(Budget(tokens=PICTURE + AROUND + 1), None).hold([""], 1, 1).input == PICTURE + AROUND


def test_an_exhausted_budget_reports_spending_and_the_next_requests_cost() -> None:
    purse = Purse(Budget(tokens=200, money=1.0), PRICES)
    purse.spent.add(Tokens(input=90, output=10))
    purse.hold(["12"], 0, 4)
    told = f"it may take {AROUND + 3 + 5}, 100 have been spent, and {AROUND + 2 + 4} are set aside"
    with pytest.raises(OverBudget, match=told):
        purse.hold(["123"], 0, 5)
    purse = Purse(Budget(money=0.5), PRICES)
    purse.spent.add(Tokens(input=200_000))
    with pytest.raises(OverBudget, match=r"it may cost 0\.8, 0\.4 have been spent, and 0 are set aside"):
        purse.hold([""], 0, 100_000)
    purse = Purse(Budget(money=5000), PRICES)
    purse.spent.add(Tokens(input=999_800_000))
    purse.hold([""], 0, 125_000_000)
    with pytest.raises(OverBudget, match=r"it may cost 2469, 2000 have been spent, and 1000 are set aside"):
        purse.hold([""], 0, 308_600_000)


def test_cost_is_counted_as_if_nothing_were_cached() -> None:
    limit = (AROUND + 6) * 2 / 1e6 + 10 * 8 / 1e6
    assert Purse(Budget(money=limit * 1.001), PRICES).hold(["123456"], 0, 10)
    with pytest.raises(OverBudget, match="USD"):
        Purse(Budget(money=limit * 0.999), PRICES).hold(["123456"], 0, 10)


@given(
    limit=st.integers(1, 2000),
    money=st.floats(1e-5, 1e-2),
    requests=st.lists(
        st.tuples(st.integers(0, 300), st.integers(1, 300), st.floats(0, 1), st.booleans()), max_size=20
    ),
)
def test_a_limit_is_never_exceeded_by_concurrent_requests(
    limit: int, money: float, requests: list[tuple[int, int, float, bool]]
) -> None:
    purse = Purse(Budget(tokens=limit, money=money), PRICES)
    under_way: list[tuple[Tokens, float]] = []
    for size, output, share, ends in requests:
        with suppress(OverBudget):
            under_way.append((purse.hold(["x" * size], 0, output), share))
        if ends and under_way:
            held, share = under_way.pop(0)
            purse.settle(held, Tokens(int(held.input * share), 0, int(held.output * share)))
    for held, _ in under_way:
        purse.settle(held, Tokens(held.input, 0, held.output))
    assert purse.spent.input + purse.spent.output <= limit
    assert purse.spent.cost(PRICES) <= money * (1 + 1e-9)


def test_spending_is_remembered_with_the_replies(tmp_path: Path) -> None:
    cache = tmp_path / "replies.jsonl"
    with serve("yes") as judge:
        purse = Purse(EMPTY, PRICES)
        assert asked(judge, purse, cache, "one", "two", "one") == ["yes", "yes", "yes"]
        assert purse.spent == Tokens(20, 0, 10)
        again = Purse(EMPTY, PRICES)
        assert asked(judge, again, cache, "one", "three") == ["yes", "yes"]
    assert len(judge.requests) == 3
    assert again.spent == Tokens(30, 0, 15)
    assert again.facts() == {
        "input_tokens": 30,
        "cached_input_tokens": 0,
        "output_tokens": 15,
        "cost": {"amount": pytest.approx((30 * 2 + 15 * 8) / 1e6), "currency": "USD"},
    }


def test_an_empty_reply_is_paid_for_and_not_kept(tmp_path: Path) -> None:
    cache = tmp_path / "replies.jsonl"
    with serve("") as judge:
        purse = Purse(EMPTY, None)
        (error,) = asked(judge, purse, cache, "one")
    assert "reply is empty" in str(error)
    assert purse.spent == Tokens(10, 0, 5)
    assert json.loads(cache.read_text())["reply"] is None
    with serve("yes") as judge:
        again = Purse(EMPTY, None)
        assert asked(judge, again, cache, "one") == ["yes"]
    assert again.spent == Tokens(20, 0, 10)


def test_a_failed_request_releases_its_reservation() -> None:
    with serve(500) as judge:
        purse = Purse(Budget(tokens=100), None)
        errors = asked(judge, purse, None, "one", "two", concurrency=1, retries=0)
    assert [type(error) for error in errors] == [NoReply, NoReply]
    assert purse.spent == Tokens()
    assert len(judge.requests) == 2


def test_an_unanswered_request_counts_in_full(tmp_path: Path) -> None:
    cache = tmp_path / "replies.jsonl"
    with serve("late", delay_s=0.4) as judge:
        purse = Purse(EMPTY, None)
        (error,) = asked(judge, purse, cache, "one", retries=0, timeout_s=0.1)
    assert type(error) is NoAnswer
    whole = Tokens(input=AROUND + 3, output=8)
    assert purse.spent == whole
    with serve("yes") as judge:
        again = Purse(EMPTY, None)
        assert asked(judge, again, cache, "one") == ["yes"]
    assert again.spent == Tokens(whole.input + 10, 0, whole.output + 5)
    # A request that reached no server costs nothing.
    nobody = Purse(EMPTY, None)
    (error,) = asked(judge, nobody, None, "one", retries=0)
    assert (type(error), nobody.spent) == (NoReply, Tokens())


def test_a_request_cut_off_by_ctrl_c_counts_in_full(tmp_path: Path) -> None:
    """The server may go on, and charge for it."""
    cache = tmp_path / "replies.jsonl"
    purse = Purse(EMPTY, None)

    async def interrupted(judge: FakeJudge) -> None:
        async with JudgeClient(judge.endpoint(), cache=cache, purse=purse) as client:
            with suppress(TimeoutError):
                await asyncio.wait_for(client.ask(Prompt("", "one"), ()), 0.2)

    with serve("late", delay_s=0.6) as judge:
        asyncio.run(interrupted(judge))
    assert purse.spent == read_kept(cache).spent == Tokens(input=AROUND + 3, output=8)
    assert not read_kept(cache).replies


def test_a_broken_answer_counts_in_full_in_addition_to_the_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtune.judge.completions.FIRST_WAIT_S", 0.0)
    replies = iter(["<html>", completion("yes"), "<html>", "<html>"])

    class Handler(JsonHandler):
        def post(self) -> None:
            self.reply(next(replies))

    cache, purse = tmp_path / "replies.jsonl", Purse(EMPTY, None)
    whole = Tokens(input=AROUND + 3, output=8)
    with listening(Handler) as port:
        judge = FakeJudge([], port=port)
        assert asked(judge, purse, cache, "one", retries=1) == ["yes"]
        assert purse.spent == Tokens(whole.input + 10, 0, whole.output + 5)
        purse = Purse(EMPTY, None)
        (error,) = asked(judge, purse, cache, "two", retries=1)
    assert isinstance(error, NoAnswer)
    assert purse.spent == Tokens(3 * whole.input + 10, 0, 3 * whole.output + 5)
    assert read_kept(cache).spent == purse.spent


def test_a_broken_answer_is_not_retried_beyond_the_budget(tmp_path: Path) -> None:
    class Handler(JsonHandler):
        def post(self) -> None:
            self.reply("<html>")

    cache, purse = tmp_path / "replies.jsonl", Purse(Budget(tokens=2 * (AROUND + 3 + 8) - 1), None)
    with listening(Handler) as port:
        (error,) = asked(FakeJudge([], port=port), purse, cache, "one")
    assert isinstance(error, OverBudget)
    assert purse.spent == read_kept(cache).spent == Tokens(AROUND + 3, 0, 8)


def test_questions_beyond_the_budget_are_not_sent() -> None:
    with serve("yes") as judge:
        purse = Purse(Budget(tokens=2 * (AROUND + 3 + 8) - 1), None)
        found = asked(judge, purse, None, "one", "two", "six", concurrency=1)
    # Replies of only 15 tokens leave room for a further question, until the budget is used up.
    assert found[:2] == ["yes", "yes"]
    assert purse.spent.input + purse.spent.output <= 2 * (AROUND + 3 + 8) - 1
    assert len(judge.requests) == sum(one == "yes" for one in found)


def test_an_endpoint_keeps_its_budget_across_sessions_of_a_file(tmp_path: Path) -> None:
    cache, limit = tmp_path / "replies.jsonl", {"budget": {"tokens": AROUND + 3 + 8 + 14}}

    async def ask(judge: FakeJudge, text: str) -> tuple[str, dict[str, Any]]:
        async with JudgeClient(judge.endpoint(**limit), cache=cache) as client:
            return await client.ask(Prompt("", text), ()), client.facts()

    with serve("yes") as judge:
        said, facts = asyncio.run(ask(judge, "one"))
        assert (said, facts["model"], facts["input_tokens"]) == ("yes", "judge", 10)
        assert asyncio.run(ask(judge, "one"))[0] == "yes"  # from the cache, so it costs nothing
        with pytest.raises(OverBudget, match=r"raise `budget.tokens`|may exceed"):
            asyncio.run(ask(judge, "two"))
    assert len(judge.requests) == 1
