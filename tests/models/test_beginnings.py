"""Common prefixes of rows are stored once, and attention is unchanged."""

import weakref
from collections.abc import Sequence
from math import inf
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import pad

import vtune.models.beginnings
import vtune.models.decoding
from vtune.models.beginnings import groups_of
from vtune.models.decoding import KeyValues

HEADS, SHARED, WIDTH = 2, 3, 8
"""Key heads, query heads per key head, head width."""
Asked = list[list[tuple[int, int]]]
"""For each question, the tokens of its prompt and of each rollout's turns."""


def laid_out(system: int, questions: Asked) -> list[torch.Tensor]:
    """Layout of the rows' tokens: a common system prompt, the prompts, and each row's turns."""
    end, places = system, []
    for question in questions:
        prompt = [*range(system), *range(end, end + question[0][0])]
        end += question[0][0]
        for _, own in question:
            places.append(torch.tensor([*prompt, *range(end, end + own)], dtype=torch.int64))
            end += own
    return places


@st.composite
def batches(draw: st.DrawFn) -> list[torch.Tensor]:
    question = st.integers(1, 30).flatmap(
        lambda prompt: st.lists(st.tuples(st.just(prompt), st.integers(0, 12)), min_size=1, max_size=5)
    )
    return laid_out(draw(st.integers(0, 20)), draw(st.lists(question, min_size=1, max_size=5)))


def attended(
    places: Sequence[torch.Tensor], least: float, spare: float, ended: Sequence[int], seed: int
) -> list[torch.Tensor]:
    """Attention results token by token; some rows end after each token."""
    chance = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=chance)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vtune.models.decoding, "LEAST", least)
        patch.setattr(vtune.models.beginnings, "SPARE", spare)
        patch.setattr(vtune.models.decoding, "ROOM", 2)
        kept = KeyValues(places, torch.float32)
        tokens = 1 + max(int(one.max()) for one in places)
        for _ in range(2):
            kept.keep(numbers(1, HEADS, tokens, WIDTH), numbers(1, HEADS, tokens, WIDTH))
        rows, found = len(places), []
        for end in ended:
            kept.grow()
            for layer in range(2):
                query = numbers(rows, HEADS * SHARED, WIDTH)
                key, value = numbers(rows, HEADS, WIDTH), numbers(rows, HEADS, WIDTH)
                found.append(kept.attend(layer, query, key, value, 0.5))
            if rows > 1:
                left = [row for row in range(rows) if row != end % rows]
                kept.select(torch.tensor(left[end % 3 :] + left[: end % 3]))
                rows -= 1
        return found


@given(
    batches(),
    st.sampled_from([0.0, 20.0, 60.0]),
    st.sampled_from([1.2, 2.0, inf]),
    st.lists(st.integers(0, 20), min_size=1, max_size=8),
    st.integers(0, 99),
)
def test_attention_matches_separately_stored_rows(
    places: list[torch.Tensor], least: float, spare: float, ended: list[int], seed: int
) -> None:
    """Whatever order the remaining rows have, and whenever prefixes are split up."""
    once, apart = (attended(places, one, spare, ended, seed) for one in (least, inf))
    for ours, theirs in zip(once, apart, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@given(batches())
def test_prefixes_and_rests_add_up_to_the_rows(places: list[torch.Tensor]) -> None:
    groups = groups_of(places)
    begun = [one for one, size in zip(groups.places, groups.sizes, strict=True) for _ in range(size)]
    for row, *parts in zip(places, begun, groups.rest, strict=True):
        assert torch.equal(torch.cat(parts), row)
    assert groups.columns <= len(places) * max(map(len, places))


def test_each_question_is_a_group_despite_a_common_system_prompt() -> None:
    places = laid_out(50, [[(40, 5), (40, 7)], [(45, 0), (45, 3), (45, 9)]])
    groups = groups_of(places)
    assert groups.sizes == [2, 3]
    assert [len(one) for one in groups.places] == [90, 95]
    assert [len(one) for one in groups.rest] == [5, 7, 0, 3, 9]


def test_a_single_row_is_its_own_prefix() -> None:
    groups = groups_of(laid_out(0, [[(40, 0), (40, 0)], [(30, 8)]]))
    assert groups.sizes == [2, 1]
    assert [len(one) for one in groups.rest] == [0, 0, 0]


def test_prefixes_are_split_up_when_few_rows_share_them() -> None:
    places = laid_out(0, [[(600, 0)] * 8, [(600, 0)] * 8])
    kept = KeyValues(places, torch.float32)
    kept.keep(torch.randn(1, 1, 1200, 8), torch.randn(1, 1, 1200, 8))
    assert kept._shared is not None
    kept.select(torch.arange(10))
    assert kept._shared is not None
    kept.select(torch.arange(3))  # a single group, which saves 2 x 600 columns
    assert kept._shared is None


@pytest.mark.parametrize(
    ("places", "dtype"),
    [
        (laid_out(0, [[(600, 0)] * 8]), torch.bfloat16),
        (laid_out(0, [[(600, 0)] * 16, *[[(600, 0)]] * 16]), torch.float32),
        (laid_out(0, [[(100, 0)] * 8]), torch.float32),
    ],
    ids=["short numbers", "a large group among single rows", "short prompts"],
)
def test_rows_are_stored_separately_if_sharing_gains_nothing(
    places: list[torch.Tensor], dtype: torch.dtype
) -> None:
    assert KeyValues(places, dtype)._shared is None


@pytest.mark.parametrize("longer", [True, False])
def test_keys_and_values_are_replaced_layer_by_layer(longer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copying all at once would double the GPU memory during generation."""
    layers = 4
    kept = KeyValues(laid_out(3, [[(5, 4), (5, 4)]]), torch.float32)
    for _ in range(layers):
        kept.keep(*torch.randn(2, 1, SHARED, 16, WIDTH))
    before = [weakref.ref(states) for layer in kept._layers for states in layer]
    alive = []

    def noted(*given: Any) -> torch.Tensor:
        alive.append(sum(one() is not None for one in before))
        return pad(*given)

    monkeypatch.setattr(vtune.models.decoding, "pad", noted)
    if longer:
        kept.grow()
    else:
        kept._map_layers(lambda states: noted(states, (0, 0)))
    assert alive == [8, 8, 6, 6, 4, 4, 2, 2]
