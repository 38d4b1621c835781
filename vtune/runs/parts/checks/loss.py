"""What a loss promises, tested on random sequences: the contract of `vtune parts check`."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vtune.runs.parts.checks.check import Broken, Check, tried
from vtune.update.losses import LOSSES, Loss, PolicyLoss, PolicyTerms, Tokens
from vtune.update.losses.section import read_loss
from vtune.update.objective import policy_terms

LENGTHS = (5, 1, 8, 3)
"""Lengths in tokens of the sequences that a loss is tested on."""
ORDER = (2, 0, 3, 1)
"""The sequences in another order."""
FAR = (-200.0, 200.0)
"""Log-ratios whose `exp` overflows or underflows in float32, in nats."""
FIELDS = ("old_logprobs", "advantages", "off_policy")
"""Per-token fields other than the log-probabilities that are trained."""
NEAR = 1e-5
"""Numbers that differ by no more than this, absolutely or relatively, count as the same."""


def check_loss(name: str) -> list[Check]:
    """Its section, and its loss and gradient on random tokens, which are always the same."""
    trial = _Trial(name, LOSSES[name])
    return [
        tried("the section is strict and can be sent", trial.section),
        tried("one loss value per token", trial.one_per_token),
        tried("tokens are not changed", trial.unchanged),
        tried("loss and gradient are finite", trial.finite),
        tried("no advantage, no gradient", trial.nothing_to_learn),
        tried("the gradient follows the advantage", trial.follows),
        tried("`coincides_on_policy` is correct", trial.on_policy),
        tried("the order of sequences changes nothing", trial.permuted),
        tried("other sequences change nothing", trial.alone),
        tried("a batch without tokens is accepted", trial.without_tokens),
    ]


@dataclass(frozen=True, slots=True)
class _Trial:
    """A loss, and the example values for its keys."""

    name: str
    loss: Loss[Any]

    def read(self, **more: object) -> Any:
        """Its section with the values of its example."""
        return read_loss({"algorithm": self.name, "kl_weight": 0.0, **self.loss.example, **more})

    def section(self) -> str:
        if not issubclass(self.loss.section, PolicyLoss):
            raise Broken(
                f"{self.loss.section.__name__} is not derived from PolicyLoss",
                "derive the section from PolicyLoss, which has the shared keys",
            )
        found = self.read()
        if pickle.loads(pickle.dumps(found)) != found:
            raise Broken(
                "the section is different after pickling",
                "define the section's class at the top level of the file",
            )
        try:
            self.read(no_such_key=1)
        except ValueError:
            own = [key for key in self.loss.section.model_fields if key not in PolicyLoss.model_fields]
            return f"own keys: {', '.join(own) or 'none'}"
        raise Broken(
            "the section accepts an unknown key", "do not change `extra` of the section's model_config"
        )

    def one_per_token(self) -> str:
        tokens = _drawn()
        terms = self.terms(tokens)
        return f"{len(terms.loss)} for {len(tokens.logprobs)}"

    def unchanged(self) -> str:
        """Metrics are computed from the same tensors."""
        tokens = _drawn()
        before = [value.clone() for value in _values(tokens)]
        self.terms(tokens)
        for name, old, new in zip(("logprobs", *FIELDS), before, _values(tokens), strict=True):
            if not torch.equal(old, new):
                raise Broken(f"the loss changed `{name}`", "leave out in-place operations such as `mul_`")
        return "none of the tensors changed"

    def finite(self) -> str:
        for off in (None, *FAR):
            _, gradient = self.learnt(_drawn(off=off))
            if not torch.isfinite(gradient).all():
                where = "drawn at random" if off is None else f"of {off:g} nats"
                raise Broken(
                    f"a gradient is not finite at a log-ratio {where}", "clamp the log-ratio, see `ratio_of`"
                )
        return f"also at log-ratios of {FAR[0]:g} and {FAR[1]:g} nats"

    def nothing_to_learn(self) -> str:
        _, gradient = self.learnt(_drawn(gain=0.0))
        if gradient.abs().max() > 0:
            raise Broken(
                f"a gradient is {float(gradient.abs().max()):.3g} where all advantages are 0",
                "multiply by `tokens.advantages`",
            )
        return "0 where all advantages are 0"

    def follows(self) -> str:
        """Descent raises the log-probabilities of tokens with positive advantages and lowers the others'."""
        for off_policy in (False, True):
            tokens = _drawn(off=0.0, off_policy=off_policy)
            _, gradient = self.learnt(tokens)
            wrong = (gradient * tokens.advantages >= 0).nonzero().flatten().tolist()
            if wrong:
                gain, slope = (float(value[wrong[0]]) for value in (tokens.advantages, gradient))
                raise Broken(
                    f"at a ratio of 1 an advantage of {gain:.2g} has the gradient {slope:.2g}",
                    "give the loss the opposite sign",
                )
        return "up where the advantage is positive, else down"

    def on_policy(self) -> str:
        tokens = _drawn(off=0.0, off_policy=False)
        _, gradient = self.learnt(tokens)
        same = torch.allclose(gradient, -tokens.advantages, rtol=NEAR, atol=NEAR)
        if self.loss.coincides_on_policy and not same:
            raise Broken(
                "coincides_on_policy is True, but the gradient at a ratio of 1 is not -advantage",
                "leave coincides_on_policy out",
            )
        if same and not self.loss.coincides_on_policy:
            raise Broken("the gradient at a ratio of 1 is -advantage", "say coincides_on_policy=True")
        return "the plain policy gradient" if same else "a gradient of its own"

    def permuted(self) -> str:
        return self.rearranged([ORDER], "the sequences are in another order")

    def alone(self) -> str:
        return self.rearranged([(number,) for number in range(len(LENGTHS))], "the sequence is alone")

    def without_tokens(self) -> str:
        """A process with fewer micro-batches than the others takes part with no token to learn from."""
        some = _drawn()
        found = self.terms(some)
        terms, _ = self.learnt(_laid_out([], *(value[:0] for value in _values(some))))
        for field, value, other in zip(terms._fields, terms, found, strict=True):
            if (value is None) != (other is None):
                raise Broken(
                    f"`{field}` is None for some tokens and not for others",
                    "return this field always, or never",
                )
        return "a process may have none while others have some"

    def rearranged(self, parts: Sequence[Sequence[int]], when: str) -> str:
        """Loss and gradient of a token stay the same when only some sequences, given by number, are there."""
        tokens = _drawn()
        full, slope = self.learnt(tokens)
        for numbers in parts:
            at = [place for number in numbers for place in _places(number)]
            part, part_slope = self.learnt(
                _laid_out([LENGTHS[n] for n in numbers], *(value[at] for value in _values(tokens)))
            )
            for what, before, after in (("loss", full.loss, part.loss), ("gradient", slope, part_slope)):
                if not torch.allclose(before[at], after, rtol=NEAR, atol=NEAR):
                    apart = float((before[at] - after).detach().abs().max())
                    raise Broken(
                        f"a token's {what} changes by {apart:.3g} when {when}",
                        "a token must depend on nothing outside its own sequence",
                    )
        return f"{len(LENGTHS)} sequences"

    def terms(self, tokens: Tokens) -> PolicyTerms:
        """As training computes them, which also checks their form."""
        return policy_terms(self.read(), tokens)

    def learnt(self, tokens: Tokens) -> tuple[PolicyTerms, Tensor]:
        """The terms, and the gradient of their sum with respect to each log-probability."""
        terms = self.terms(tokens)
        (gradient,) = torch.autograd.grad(terms.loss.sum(), tokens.logprobs)
        return terms, gradient


def _drawn(*, off: float | None = None, gain: float | None = None, off_policy: bool | None = None) -> Tokens:
    """Random sequences.

    Args:
        off: Log-ratio of all tokens, in nats; None: random.
        gain: Advantage of all tokens; None: random, and never 0.
        off_policy: Whether the weights have changed since the tokens were generated; None: random.
    """
    count = sum(LENGTHS)
    chance = torch.Generator().manual_seed(0)
    drawn = torch.rand((4, count), generator=chance)
    old = -8.0 * drawn[0]
    apart = torch.full((count,), off) if off is not None else drawn[1] - 0.5
    signs = torch.where(drawn[2] < 0.5, -1.0, 1.0)
    gains = torch.full((count,), gain) if gain is not None else signs * (0.1 + drawn[2])
    changed = drawn[3] < 0.5 if off_policy is None else torch.full((count,), off_policy)
    return _laid_out(LENGTHS, old + apart, old, gains, changed)


def _places(number: int) -> range:
    """Indices of a sequence's tokens."""
    start = sum(LENGTHS[:number])
    return range(start, start + LENGTHS[number])


def _laid_out(lengths: Sequence[int], now: Tensor, old: Tensor, gains: Tensor, off_policy: Tensor) -> Tokens:
    numbers = [number for number, length in enumerate(lengths) for _ in range(length)]
    return Tokens(
        now.detach().clone().requires_grad_(True),
        old,
        gains,
        off_policy,
        torch.tensor(numbers, dtype=torch.long),
    )


def _values(tokens: Tokens) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return tokens.logprobs.detach(), tokens.old_logprobs, tokens.advantages, tokens.off_policy
