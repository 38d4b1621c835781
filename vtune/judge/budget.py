"""What asking a model costs, and a limit that is enforced before it is exceeded."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from vtune.judge.completions import NoReply
from vtune.sections import Strict

MILLION = 1_000_000

AROUND = 64
"""Tokens that a chat template may add around a question; ours."""
WHOLE = 100
"""Amounts of money from here on are shown as whole numbers."""
PICTURE = 16_384
"""Upper bound on the tokens of a picture: Qwen2.5-VL's default limit; OpenAI's models use fewer."""


class Prices(Strict):
    """What tokens cost, per million; set by the user, because vtune does not know prices."""

    input: float = Field(ge=0)
    cached_input: float = Field(ge=0)
    """For input tokens that the endpoint reports as cached; the price of `input` if it has no other."""
    output: float = Field(ge=0)
    """For output tokens, including thoughts."""
    currency: str = Field(min_length=1)


class Budget(Strict):
    """Spending limit: for one process, including what its file of replies says was spent before."""

    tokens: int | None = Field(default=None, gt=0)
    """Input and output together; null: no limit."""
    money: float | None = Field(default=None, gt=0)
    """In the currency of `prices`; null: no limit."""


class OverBudget(NoReply):
    """A question that was not asked because its answer might cost more than is left."""


@dataclass(slots=True)
class Tokens:
    """Usage of requests."""

    input: int = 0
    """Including cached tokens."""
    cached: int = 0
    output: int = 0

    def add(self, other: "Tokens") -> None:
        """Add another usage to this one."""
        self.input += other.input
        self.cached += other.cached
        self.output += other.output

    def cost(self, prices: Prices) -> float:
        """Total cost of these tokens."""
        fresh = (self.input - self.cached) * prices.input
        return (fresh + self.cached * prices.cached_input + self.output * prices.output) / MILLION


def _total(tokens: Tokens) -> int:
    return tokens.input + tokens.output


def _amount(money: float) -> str:
    """With three significant digits, or in full if the whole number has more; no exponent."""
    return f"{money:.3g}" if money < WHOLE else f"{money:.0f}"


class Purse:
    """Tracks what was spent and what requests in progress may still cost.

    A request is allowed only if all of it fits: as many input tokens as it has bytes, which no
    tokenizer exceeds, and the longest possible reply. So the limit holds, and a little of it may be left
    over. A request that was sent but never answered counts in full, and so does each answer with
    status 200 that is not a completion: as much again is reserved for the next attempt. Other retries
    within a request, after an attempt that the server charges for, are not counted.

    Args:
        budget: The limits.
        prices: Token prices; None if there is no limit in money.
    """

    def __init__(self, budget: Budget, prices: Prices | None) -> None:
        self._budget = budget
        self._prices = prices
        self._held = Tokens()
        self.spent = Tokens()

    def hold(self, texts: list[str], pictures: int, output: int) -> Tokens:
        """Reserve what a request may cost; pass the result to `settle`.

        Raises:
            OverBudget: If it may exceed what is left.
        """
        size = sum(len(text.encode()) for text in texts) + AROUND + pictures * PICTURE
        most = Tokens(input=size, output=output)
        whole = Tokens()
        for part in (self.spent, self._held, most):
            whole.add(part)
        if self._budget.tokens is not None and whole.input + whole.output > self._budget.tokens:
            raise OverBudget(
                f"the next question may exceed the budget of {self._budget.tokens} tokens: it may take "
                f"{_total(most)}, {_total(self.spent)} have been spent, and {_total(self._held)} are set "
                "aside for questions under way",
                fix="raise `budget.tokens`, and continue with --resume",
            )
        if self._budget.money is not None and self._prices is not None:
            # Nothing guarantees that cached tokens are cheaper.
            dearest = max(self._prices.input, self._prices.cached_input)
            spent = self.spent.cost(self._prices)
            held, next_one = (
                (one.input * dearest + one.output * self._prices.output) / MILLION
                for one in (self._held, most)
            )
            if spent + held + next_one > self._budget.money:
                raise OverBudget(
                    f"the next question may exceed {self._budget.money} {self._prices.currency}: it may cost "
                    f"{_amount(next_one)}, {_amount(spent)} have been spent, and {_amount(held)} are set "
                    "aside for questions under way",
                    fix="raise `budget.money`, and continue with --resume",
                )
        self._held.add(most)
        return most

    def settle(self, held: Tokens, used: Tokens) -> None:
        """Replace a reservation by the actual usage."""
        self._held.add(Tokens(-held.input, -held.cached, -held.output))
        self.spent.add(used)

    def facts(self) -> Mapping[str, Any]:
        """`input_tokens`, `cached_input_tokens`, `output_tokens` and `cost`, null without prices."""
        cost = None if self._prices is None else self.spent.cost(self._prices)
        return {
            "input_tokens": self.spent.input,
            "cached_input_tokens": self.spent.cached,
            "output_tokens": self.spent.output,
            "cost": None
            if cost is None or self._prices is None
            else {"amount": cost, "currency": self._prices.currency},
        }
