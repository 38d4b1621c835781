"""The decoder with one token per row, compared with the model's own forward over all tokens."""

import copy
from collections.abc import Sequence
from math import inf

import pytest
import torch

import vtune.models.decoder
import vtune.models.decoding
from tests.models.rows import ragged
from tests.models.test_packed import group, packed, words
from vtune.models.attention import use_tree_attention
from vtune.models.batch import Row, image_features
from vtune.models.decoder import Decoder, Norm
from vtune.models.decoding import KeyValues
from vtune.models.policy import Policy
from vtune.models.rotation import signed


def as_bfloat16(policy: Policy) -> Policy:
    found = copy.copy(policy)
    object.__setattr__(found, "model", copy.deepcopy(policy.model).to(torch.bfloat16))
    return found


def decoded(policy: Policy, rows: Sequence[Row], written: Sequence[Sequence[int]]) -> torch.Tensor:
    """Hidden states (R, T, D) of the tokens that follow the rows, decoded one by one."""
    use_tree_attention(policy.model)
    row = packed(policy, list(rows))
    kept = KeyValues(row.places, policy.model.dtype)
    policy.model.model(
        input_ids=row.input_ids,
        position_ids=row.position_ids,
        mm_encoder_outputs=image_features(policy.model, row.pictures),
        layout=row.layout,
        kept=kept,
        use_cache=False,
    )
    decoder, found = Decoder(policy.model), []
    for number, tokens in enumerate(zip(*written, strict=True)):
        positions = (row.following + number)[None, :, None].expand(3, -1, 1)
        cosine, sine = policy.model.model.language_model.rotary_emb(policy.model.lm_head.weight, positions)
        found.append(decoder.step(torch.tensor(tokens), cosine, signed(sine), kept))
    return torch.stack(found, dim=1)


def forwarded(policy: Policy, rows: Sequence[Row], written: Sequence[Sequence[int]]) -> torch.Tensor:
    """The same hidden states from one forward over everything."""
    whole = [Row([*row.token_ids, *own], row.pixels) for row, own in zip(rows, written, strict=True)]
    row = packed(policy, whole)
    hidden = policy.model.model(
        input_ids=row.input_ids,
        position_ids=row.position_ids,
        mm_encoder_outputs=image_features(policy.model, row.pictures),
        layout=row.layout,
        use_cache=False,
    ).last_hidden_state[0]
    return torch.stack([hidden[places[-len(written[0]) :]] for places in row.places])


@pytest.mark.parametrize("joined", [0, inf])
@pytest.mark.parametrize("least", [0, inf])
@torch.no_grad()
def test_a_step_matches_the_models_own_modules(
    each_policy: Policy, least: float, joined: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vtune.models.decoding, "LEAST", least)
    monkeypatch.setattr(vtune.models.decoder, "JOINED", joined)
    # Rows of different lengths, and rows of equal length with a common prefix.
    shared = group(each_policy, "Which digit?", 1) * 4
    for rows in (ragged(each_policy), shared):
        written = [words(each_policy, 20, seed) for seed in range(len(rows))]
        ours, theirs = decoded(each_policy, rows, written), forwarded(each_policy, rows, written)
        assert float(theirs.abs().mean()) > 0.1
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5)


@torch.no_grad()
def test_in_bfloat16_a_step_matches_up_to_rounding(each_policy: Policy) -> None:
    policy, rows = as_bfloat16(each_policy), ragged(each_policy)
    written = [words(each_policy, 20, seed) for seed in range(len(rows))]
    exact = forwarded(each_policy, rows, written)
    ours, theirs = (of(policy, rows, written).float() for of in (decoded, forwarded))
    assert float((ours - exact).norm()) < 1.2 * float((theirs - exact).norm())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@torch.no_grad()
def test_a_norm_without_gradient_matches_the_stock_one(dtype: torch.dtype) -> None:
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLRMSNorm

    torch.manual_seed(0)
    states, norm = (3 * torch.randn(5, 3, 32)).to(dtype), Qwen2_5_VLRMSNorm(32, 1e-6)
    norm.weight = torch.nn.Parameter(torch.randn(32).to(dtype))
    # The second row is nearly zero, so the epsilon matters.
    states[1] *= 1e-3
    ours, theirs = Norm.of(norm)(states), norm(states)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, theirs, rtol=1e-6 if dtype == torch.float32 else 8e-3, atol=1e-6)
