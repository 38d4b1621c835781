import math
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import yaml
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from pydantic import ValidationError

from tests.update import slow
from tests.update.slow import ORACLES, Keys, Sequences, Token
from vtune.config import dump_recipe
from vtune.errors import BrokenPart
from vtune.parts import OURS
from vtune.sections import Strict
from vtune.update.losses import LOSSES, PolicyLoss, PolicyTerms, Tokens
from vtune.update.losses.aggregation import Aggregation, denominator, token_weights
from vtune.update.losses.cispo import CISPO, cispo
from vtune.update.losses.divergence import KLEstimator, kl, kl_k3
from vtune.update.losses.grpo import GRPO, grpo
from vtune.update.losses.section import LossSection, read_loss
from vtune.update.objective import policy_terms
from vtune.uses import forget, use

logs = st.floats(-8, 0)
gains = st.floats(-2, 2).filter(lambda gain: gain == 0 or abs(gain) > 1e-3)
clips = st.sampled_from([0.1, 0.2, 0.28, 0.5])
tokens = st.builds(
    lambda old, delta, gain, off_policy: Token(old + delta, old, gain, off_policy),
    logs, st.floats(-1, 2), gains, st.booleans(),
)  # fmt: skip
ragged = st.lists(st.lists(tokens, max_size=5), max_size=4)
"""Sequences of different lengths, some without a counted token."""

AGGREGATIONS = get_args(Aggregation)
BASE: dict[str, Any] = {"aggregation": "token_mean", "kl_weight": 0.0, "kl_estimator": "k3"}
CLIP: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.28}
CASES: dict[str, tuple[str, Keys]] = {
    **{name: (name, dict(loss.example)) for name, loss in LOSSES.items() if name in OURS["loss"]},
    "gspo": ("gspo", CLIP),
    "grpo with a dual clip": ("grpo", {**CLIP, "importance_cap": 2.0, "dual_clip": 3.0}),
}
"""Test id -> a loss and the values of its keys."""
EVERY = pytest.mark.parametrize("name", CASES)


def laid_out(sequences: Sequences, dtype: torch.dtype) -> Tokens:
    """The tokens as tensors."""
    flat = [token for sequence in sequences for token in sequence]
    now, old, gain = (
        torch.tensor([getattr(token, name) for token in flat], dtype=dtype) for name in ("now", "old", "gain")
    )
    off_policy = torch.tensor([token.off_policy for token in flat], dtype=torch.bool)
    numbers = [number for number, sequence in enumerate(sequences) for _ in sequence]
    return Tokens(now.requires_grad_(True), old, gain, off_policy, torch.tensor(numbers, dtype=torch.long))


def loss_of(
    recipe: PolicyLoss, sequences: Sequences, dtype: torch.dtype
) -> tuple[torch.Tensor, PolicyTerms, torch.Tensor]:
    """Log-probabilities, terms and the total loss, as in an update."""
    tokens = laid_out(sequences, dtype)
    terms = policy_terms(recipe, tokens)
    weights = token_weights(tokens.sequence, recipe.aggregation, length=recipe.length).to(dtype)
    counts = [len(one) for one in sequences]
    share = denominator(recipe.aggregation, tokens=sum(counts), sequences=sum(count > 0 for count in counts))
    return tokens.logprobs, terms, (weights * terms.loss).sum() / max(share, 1)


def section(algorithm: str, keys: Keys, aggregation: str = "token_mean") -> PolicyLoss:
    length = {"length": 7} if aggregation == "fixed_length" else {}
    shared = {**BASE, "aggregation": aggregation, **length}
    found: PolicyLoss = read_loss({**shared, "algorithm": algorithm, **keys})
    return found


def recipe_of(name: str, aggregation: str = "token_mean") -> PolicyLoss:
    return section(*CASES[name], aggregation)


def off_the_edges(sequences: Sequences, keys: Keys) -> bool:
    """Whether no ratio is exactly at a clip or cap, where the slope is undefined."""
    ratios = [token.ratio for sequence in sequences for token in sequence]
    ratios += [math.exp(sum(t.now - t.old for t in one) / len(one)) for one in sequences if one]
    bounds = [value for key, value in keys.items() if value is not None and ("clip" in key or "cap" in key)]
    edges = [edge for bound in bounds for edge in (bound, 1 - bound, 1 + bound)]
    return all(abs(ratio - edge) > 1e-4 for ratio in ratios for edge in edges)


def test_each_of_our_losses_has_a_slow_reference() -> None:
    assert set(ORACLES) == set(OURS["loss"])


@pytest.mark.parametrize("name", OURS["loss"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(max_examples=60)
@given(data=st.data(), sequences=ragged, aggregation=st.sampled_from(AGGREGATIONS))
def test_every_loss_and_gradient_match_the_slow_reference(
    name: str, dtype: torch.dtype, data: st.DataObject, sequences: Sequences, aggregation: str
) -> None:
    keys = data.draw(ORACLES[name].keys)
    assume(off_the_edges(sequences, keys))
    now, terms, loss = loss_of(section(name, keys, aggregation), sequences, dtype)
    weights = slow.weights([len(one) for one in sequences], aggregation, 7)
    read = [
        (weight, one)
        for weight, seq in zip(weights, sequences, strict=True)
        for one in ORACLES[name].read(seq, keys)
    ]
    close = {"rel": 1e-5, "abs": 1e-5 if dtype == torch.float32 else 1e-7}
    assert terms.loss.tolist() == pytest.approx([value for _, (value, _, _) in read], **close)
    assert loss.item() == pytest.approx(sum(weight * value for weight, (value, _, _) in read), **close)
    (gradient,) = torch.autograd.grad(loss, now)
    assert gradient.tolist() == pytest.approx([weight * slope for weight, (_, slope, _) in read], **close)
    flags = terms.truncated if terms.clipped is None else terms.clipped
    flagged = [False] * len(read) if flags is None else flags.tolist()
    for flag, token, (_, (_, _, decided)) in zip(
        flagged, (token for one in sequences for token in one), read, strict=True
    ):
        # A ratio of exactly 1 may differ from 1 in float32.
        assert flag == decided or token.gain == 0 or (terms.clipped is None and dtype == torch.float32)


@pytest.mark.parametrize("name", ["grpo", "grpo with a dual clip", "sapo"])
@settings(max_examples=30)
@given(sequences=ragged)
def test_every_gradient_is_the_slope_of_its_loss(name: str, sequences: Sequences) -> None:
    """By finite differences, if nothing is held constant: below the cap, and not for CISPO with its fixed
    weight.

    GSPO is covered by the next test.
    """
    sequences = [one for one in sequences if one]
    assume(sequences and off_the_edges(sequences, CASES[name][1]))
    recipe = recipe_of(name, "sequence_mean")
    now, _, loss = loss_of(recipe, sequences, torch.float64)
    (gradient,) = torch.autograd.grad(loss, now)
    step = 1e-6
    for place, (number, token) in enumerate((n, t) for n, one in enumerate(sequences) for t in one):
        if name != "sapo" and token.ratio > 2.0:
            continue
        values = []
        for sign in (1, -1):
            bent = [list(one) for one in sequences]
            at = place - sum(len(one) for one in sequences[:number])
            bent[number][at] = Token(token.now + sign * step, token.old, token.gain, token.off_policy)
            values.append(loss_of(recipe, bent, torch.float64)[2].item())
        assert gradient[place].item() == pytest.approx(
            (values[0] - values[1]) / (2 * step), rel=1e-4, abs=1e-6
        )


CANCELLED: Sequences = [[Token(0, 0, -1.0625, False)] * 3, [Token(-0.5, 0, 1.75, False)]]
"""Two sequences with losses 1.0625 and -1.0614, which nearly cancel: a thousandth remains."""


@settings(max_examples=30)
@example(sequences=CANCELLED, clip=0.1)
@given(sequences=ragged, clip=clips)
def test_token_level_gspo_equals_sequence_level_for_equal_advantages(
    sequences: Sequences, clip: float
) -> None:
    """The paper's original sequence objective, with its slope by finite differences."""
    alike = [[Token(t.now, t.old, one[0].gain, one[0].off_policy) for t in one] for one in sequences if one]
    assume(alike and off_the_edges(alike, {"clip": clip}))
    recipe = section("gspo", {"clip_low": clip, "clip_high": clip}, "sequence_mean")

    def by_sequence(deltas: list[list[float]]) -> float:
        total = 0.0
        for one, delta in zip(alike, deltas, strict=True):
            ratio, gain = math.exp(sum(delta) / len(delta)), one[0].gain
            bounded = min(max(ratio, 1 - clip), 1 + clip) if one[0].off_policy else ratio
            total -= min(ratio * gain, bounded * gain)
        return total / len(alike)

    deltas = [[t.now - t.old for t in one] for one in alike]
    assume(all(abs(math.exp(sum(d) / len(d)) - edge) > 1e-4 for d in deltas for edge in (1 - clip, 1 + clip)))
    now, _, loss = loss_of(recipe, alike, torch.float64)
    # Token weights are float32 (a third is off by 1e-8), and losses of sequences may cancel each other.
    size = sum(abs(one[0].gain) * math.exp(sum(d) / len(d)) for one, d in zip(alike, deltas, strict=True))
    assert loss.item() == pytest.approx(by_sequence(deltas), rel=1e-6, abs=1e-7 * size + 1e-9)
    (gradient,) = torch.autograd.grad(loss, now)
    slopes = []
    for one in deltas:
        for at in range(len(one)):
            values = []
            for step in (1e-6, -1e-6):
                one[at] += step
                values.append(by_sequence(deltas))
                one[at] -= step
            slopes.append((values[0] - values[1]) / 2e-6)
    assert gradient.tolist() == pytest.approx(slopes, rel=1e-4, abs=1e-6)


@settings(max_examples=30)
@given(sequences=ragged, aggregation=st.sampled_from(AGGREGATIONS))
def test_on_policy_all_losses_have_the_same_gradient(sequences: Sequences, aggregation: str) -> None:
    """At a ratio of 1 each of them reduces to REINFORCE, with slope 1."""
    drawn = [[Token(t.old, t.old, t.gain, t.off_policy) for t in one] for one in sequences]
    expected = [
        -weight * t.gain
        for weight, one in zip(slow.weights([len(o) for o in drawn], aggregation, 7), drawn, strict=True)
        for t in one
    ]
    alike = [name for name, (loss, _) in CASES.items() if LOSSES[loss].coincides_on_policy]
    assert alike
    for name in alike:
        now, _, loss = loss_of(recipe_of(name, aggregation), drawn, torch.float64)
        (gradient,) = torch.autograd.grad(loss, now)
        assert gradient.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-9), name


def test_off_policy_the_losses_differ() -> None:
    """One token far off-policy next to one on-policy: each loss treats the pair differently."""
    drawn = [[Token(-1.0 + math.log(1.5), -1.0, 1.0, True), Token(-1.0, -1.0, 1.0, True)]]
    found = {}
    for name in CASES:
        now, _, loss = loss_of(recipe_of(name), drawn, torch.float64)
        found[name] = tuple(round(x, 3) for x in torch.autograd.grad(loss, now)[0].tolist())
    assert found["grpo"] == (0.0, -0.5)
    assert found["gspo"] == (-0.612, -0.612)
    assert found["cispo"] == (-0.64, -0.5)
    assert found["sapo"] == (-0.705, -0.5)


@EVERY
@settings(max_examples=30)
@given(sequences=ragged, cut=st.integers(0, 4), aggregation=st.sampled_from(AGGREGATIONS))
def test_splitting_sequences_into_micro_batches_changes_nothing(
    name: str, sequences: Sequences, cut: int, aggregation: str
) -> None:
    recipe = recipe_of(name, aggregation)
    counts = [len(one) for one in sequences]
    share = denominator(aggregation, tokens=sum(counts), sequences=sum(map(bool, counts)))  # type: ignore[arg-type]
    assume(share)
    now, _, whole = loss_of(recipe, sequences, torch.float64)
    (expected,) = torch.autograd.grad(whole, now)
    found = []
    for part in (sequences[:cut], sequences[cut:]):
        tokens = laid_out(part, torch.float64)
        terms = policy_terms(recipe, tokens)
        weights = token_weights(tokens.sequence, recipe.aggregation, length=recipe.length)
        found += torch.autograd.grad((weights * terms.loss).sum() / share, tokens.logprobs)[0].tolist()
    assert found == pytest.approx(expected.tolist(), rel=1e-6, abs=1e-12)


@EVERY
def test_an_extreme_log_ratio_stays_finite(name: str) -> None:
    drawn = [[Token(-1.0, -200.0, 1.0, False)], [Token(-200.0, -1.0, -1.0, True)]]
    now, _, loss = loss_of(recipe_of(name), drawn, torch.float32)
    (gradient,) = torch.autograd.grad(loss, now)
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()


def narrow(**keys: float) -> GRPO:
    return GRPO(algorithm="grpo", kl_weight=0.0, clip_low=0.2, clip_high=0.2, **keys)  # type: ignore[arg-type]


def test_clipped_tokens_have_no_gradient() -> None:
    pairs = ((1.5, 1.0), (0.5, -1.0), (1.5, -1.0), (0.5, 1.0))
    drawn = [[Token(-1.0 + math.log(ratio), -1.0, gain, True) for ratio, gain in pairs]]
    tokens = laid_out(drawn, torch.float64)
    found = grpo(tokens, narrow(importance_cap=2.0))
    found.loss.sum().backward()
    assert found.clipped is not None
    assert found.clipped.tolist() == [True, True, False, False]
    assert found.loss.tolist() == pytest.approx([-1.2, 0.8, 1.5, -0.5])
    assert tokens.logprobs.grad is not None
    assert tokens.logprobs.grad.tolist() == pytest.approx([0, 0, 1.5, -0.5])


def test_a_mismatch_under_the_same_weights_is_weighted_and_never_clipped() -> None:
    pairs = ((1.5, 1.0), (0.5, -1.0), (3.0, 1.0), (3.0, -1.0))
    drawn = [[Token(-1.0 + math.log(ratio), -1.0, gain, False) for ratio, gain in pairs]]
    tokens = laid_out(drawn, torch.float64)
    found = grpo(tokens, narrow(importance_cap=2.0, dual_clip=2.5))
    found.loss.sum().backward()
    assert found.clipped is not None
    assert found.truncated is not None
    assert not found.clipped.any()
    assert found.truncated.tolist() == [False, False, True, True]
    assert tokens.logprobs.grad is not None
    assert tokens.logprobs.grad.tolist() == pytest.approx([-1.5, 0.5, -2, 2])


def test_importance_weights_give_the_gradient_of_the_training_weights() -> None:
    """Tokens sampled from one distribution and weighted for another: the mean over all tokens is exact."""
    drew, train = (
        torch.log_softmax(torch.tensor(x, dtype=torch.float64), 0) for x in ([1, 0, 0.3], [0.5, 0.4, 0])
    )
    gains = torch.tensor([1.0, -0.5, 0.25], dtype=torch.float64)
    logits = train.clone().requires_grad_(True)
    now = torch.log_softmax(logits, 0)
    unmoved = torch.zeros(3, dtype=torch.bool)
    tokens = Tokens(now, drew, gains, unmoved, torch.zeros(3, dtype=torch.long))
    wide = CISPO(algorithm="cispo", kl_weight=0.0, clip_low=0.9, clip_high=9.0)
    (exact,) = torch.autograd.grad(-(now.exp() * gains).sum(), logits, retain_graph=True)
    for found in (grpo(tokens, narrow(importance_cap=9.0)), cispo(tokens, wide)):
        (ours,) = torch.autograd.grad((drew.exp() * found.loss).sum(), logits, retain_graph=True)
        torch.testing.assert_close(ours, exact)


@pytest.mark.parametrize(
    ("change", "where", "what"),
    [
        ({"importance_cap": 1.2}, (), r"importance_cap must be at least 1 \+ clip_high"),
        ({"importance_cap": None}, ("importance_cap",), "algorithm grpo needs it"),
        ({"tau_positive": 1.0}, ("tau_positive",), "has no effect with algorithm grpo, only with sapo"),
        ({"algorithm": "gspo"}, ("importance_cap",), "has no effect with algorithm gspo, only with grpo"),
        (
            {"algorithm": "sapo"},
            ("clip_high",),
            "algorithm sapo, only with grpo, gspo, cispo: leave it out",
        ),
        ({"algorithm": "sapo"}, ("tau_positive",), "algorithm sapo needs it"),
        ({"algorithm": "cispo", "importance_cap": None, "dual_clip": 3.0}, ("dual_clip",), "has no effect"),
        ({"clip_hihg": 0.2}, ("clip_hihg",), "did you mean `clip_high`"),
        ({"clip_hihg": None}, ("clip_hihg",), "did you mean `clip_high`"),
        ({"algorithm": "cisp"}, ("algorithm",), "there is no loss `cisp`; did you mean `cispo`"),
        ({"algorithm": ["grpo"]}, ("algorithm",), "there is no loss"),
        ({"aggregation": "fixed_length"}, (), "length belongs to aggregation fixed_length"),
        ({"length": 100}, (), "length belongs to aggregation fixed_length"),
    ],
)
def test_a_missing_or_ineffective_key_is_refused(
    change: dict[str, Any], where: tuple[str, ...], what: str
) -> None:
    whole = {**BASE, "algorithm": "grpo", **CASES["grpo"][1]}
    read_loss(whole)
    with pytest.raises(ValidationError, match=what) as refused:
        read_loss({**whole, **change})
    assert where in {problem["loc"] for problem in refused.value.errors()}


def test_a_loss_without_a_name_is_the_original_default() -> None:
    assert read_loss({**BASE, **CASES["grpo"][1]}) == recipe_of("grpo")


@EVERY
def test_a_section_with_its_own_keys_survives_a_round_trip(name: str) -> None:
    class Recipe(Strict):
        loss: LossSection

    recipe = Recipe(loss=recipe_of(name))
    written = yaml.safe_load(dump_recipe(recipe))
    assert set(written["loss"]) == set(type(recipe.loss).model_fields)
    assert Recipe.model_validate(written) == recipe


def slow_kl(now: float, reference: float, estimator: str) -> float:
    apart = now - reference
    return {"k1": apart, "k2": apart**2 / 2, "k3": math.exp(-apart) + apart - 1}[estimator]


@given(st.lists(st.tuples(logs, logs), max_size=6), st.sampled_from(get_args(KLEstimator)))
def test_every_kl_estimate_and_gradient_match_the_slow_reference(
    drawn: list[tuple[float, float]], estimator: KLEstimator
) -> None:
    now, reference = (torch.tensor([pair[k] for pair in drawn], dtype=torch.float64) for k in (0, 1))
    now.requires_grad_(True)
    found = kl(now, reference, estimator)
    assert found.tolist() == pytest.approx([slow_kl(n, r, estimator) for n, r in drawn], rel=1e-9, abs=1e-12)
    assert estimator == "k1" or all(value >= -1e-12 for value in found.tolist())
    (gradient,) = torch.autograd.grad(found.sum(), now)
    step = 1e-6
    slopes = [
        (slow_kl(n + step, r, estimator) - slow_kl(n - step, r, estimator)) / (2 * step) for n, r in drawn
    ]
    assert gradient.tolist() == pytest.approx(slopes, rel=1e-4, abs=1e-5)


def test_a_token_of_vanishing_probability_gives_finite_estimates() -> None:
    now = torch.tensor([-3.0, -90.0, -2000.0], requires_grad=True)
    found = kl(now, torch.tensor([-2.0, -1.0, -1.0]), "k3")
    (gradient,) = torch.autograd.grad(found.sum(), now)
    assert found[0].item() == pytest.approx(math.e - 2)
    assert found[1:].tolist() == pytest.approx([math.exp(20) - 21] * 2)
    assert gradient.tolist() == pytest.approx([1 - math.e, 0.0, 0.0])


def test_the_estimates_have_the_kl_as_their_mean_and_k2_has_its_gradient() -> None:
    logits, other = (torch.randn(50, generator=torch.Generator().manual_seed(s)).double() for s in (0, 1))
    logits.requires_grad_(True)
    policy, reference = torch.log_softmax(logits, 0), torch.log_softmax(other, 0)
    true = (policy.exp() * (policy - reference)).sum()
    drew = policy.exp().detach()
    for estimator in ("k1", "k3"):
        torch.testing.assert_close((drew * kl(policy, reference, estimator)).sum(), true)
    (exact,) = torch.autograd.grad(true, logits, retain_graph=True)
    slopes = {
        name: torch.autograd.grad((drew * kl(policy, reference, name)).sum(), logits, retain_graph=True)[0]
        for name in get_args(KLEstimator)
    }
    torch.testing.assert_close(slopes["k2"], exact)
    torch.testing.assert_close(slopes["k1"], torch.zeros_like(exact))


def test_mismatched_shapes_are_refused() -> None:
    flags, numbers = torch.zeros(2, dtype=torch.bool), torch.zeros(2, dtype=torch.long)
    with pytest.raises(TypeCheckError):
        Tokens(torch.zeros(2), torch.zeros(2, 1), torch.zeros(2), flags, numbers)
    with pytest.raises(TypeCheckError):
        Tokens(torch.zeros(2), torch.zeros(2), torch.zeros(2), flags, torch.zeros(2))
    with pytest.raises(TypeCheckError):
        kl_k3(torch.zeros(2), torch.zeros(2, 1))


@pytest.mark.parametrize(
    ("gives", "what", "fix"),
    [
        (
            "-tokens.advantages * tokens.logprobs",
            "it returns Tensor, not PolicyTerms",
            "return PolicyTerms(loss)",
        ),
        ("None", "it returns NoneType, not PolicyTerms", "return PolicyTerms(loss)"),
        ("PolicyTerms(None)", "`loss` is of type NoneType, not Tensor", "one value per token"),
        (
            "PolicyTerms(tokens.logprobs.mean())",
            "`loss` has the shape () for 2 tokens",
            "one value per token",
        ),
        (
            "PolicyTerms(tokens.logprobs, tokens.off_policy[:1])",
            "`clipped` has the shape (1,) for 2 tokens",
            "one value per token",
        ),
        ("PolicyTerms(tokens.logprobs.detach())", "its loss has no gradient", "without `detach`"),
        (
            'PolicyTerms(tokens.logprobs * float("nan"))',
            "its loss is nan for a token with a log-probability of -1 (-1 when sampled) and an "
            "advantage of 1",
            "clamp what overflows",
        ),
    ],
)
def test_a_custom_loss_with_a_wrong_result_is_reported_with_its_line(
    tmp_path: Path, gives: str, what: str, fix: str
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from vtune.update.losses import LOSSES, Loss, PolicyLoss, PolicyTerms, Tokens\n"
        "def mine(tokens: Tokens, recipe: PolicyLoss) -> PolicyTerms:\n"
        f'    """Mine."""\n    return {gives}\n'
        'LOSSES.add("mine", Loss(mine, PolicyLoss))\n'
    )
    files = use([path])
    try:
        with pytest.raises(BrokenPart) as told:
            loss_of(section("mine", {}), [[Token(-1.0, -1.0, 1.0, False)] * 2], torch.float32)
    finally:
        forget(files)
    assert told.value.what.startswith("loss `mine` of mine.py is broken: ")
    assert what in told.value.what
    assert (told.value.where, fix in told.value.fix) == (f"{path}:2", True)


def test_a_custom_loss_is_not_blamed_for_nan_log_probabilities() -> None:
    tokens = Tokens(
        torch.tensor([float("nan")], requires_grad=True),
        torch.zeros(1),
        torch.ones(1),
        torch.zeros(1, dtype=torch.bool),
        torch.zeros(1, dtype=torch.long),
    )
    assert policy_terms(section(*CASES["grpo"]), tokens).loss.isnan().all()
