from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import vtune.rollout.drawn_rows
from vtune.errors import RunFailed
from vtune.rollout.drawn_rows import DrawnRows
from vtune.rollout.engine import Request, Sampling

LETTERS = "abc<>/."
END = len(LETTERS)
STOPS = (("b>",), ("</a>", "c."), ())


@dataclass
class Letters:
    """A chat whose tokens are letters."""

    end_id: int = END

    def decode(self, token_ids: list[int]) -> str:
        return "".join(LETTERS[token] for token in token_ids if token != END)


def closing(stops: tuple[str, ...]) -> torch.Tensor:
    last = {stop[-1] for stop in stops}
    return torch.tensor([letter in last for letter in LETTERS] + [False])


MASKS = {stops: closing(stops) for stops in STOPS}


def rows_of(stops: list[tuple[str, ...]], limits: list[int]) -> DrawnRows:
    requests = [
        Request(token_ids=(), pixels=(), sampling=Sampling(temperature=1, max_new_tokens=limit, stop=stop))
        for stop, limit in zip(stops, limits, strict=True)
    ]
    return DrawnRows(Letters(), requests, [MASKS[stop] for stop in stops])  # type: ignore[arg-type]


def by_hand(tokens: list[int], stops: tuple[str, ...], limit: int) -> tuple[int, str]:
    """How many of the upcoming tokens a row samples, and why it ends."""
    for count in range(1, limit + 1):
        if tokens[count - 1] == END:
            return count, "end"
        if any(stop in Letters().decode(tokens[:count]) for stop in stops):
            return count, "stop"
    return limit, "length"


@given(st.data(), st.integers(1, 5), st.integers(1, 6))
def test_rows_end_exactly_where_checking_every_token_would_end_them(
    data: st.DataObject, count: int, unread: int
) -> None:
    most = 12
    limits = data.draw(st.lists(st.integers(1, most), min_size=count, max_size=count))
    stops = data.draw(st.lists(st.sampled_from(STOPS), min_size=count, max_size=count))
    coming = data.draw(
        st.lists(st.lists(st.integers(0, END), min_size=most, max_size=most), min_size=count, max_size=count)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vtune.rollout.drawn_rows, "UNREAD", unread)
        rows = rows_of(stops, limits)
        here = torch.arange(count)
        while rows.drawing:
            at = rows.length
            tokens = torch.tensor([coming[row][at] for row in rows.drawing])
            numbers = torch.tensor([float(100 * row + at) for row in rows.drawing])
            before = list(rows.drawing)
            ended, on = rows.take(tokens, numbers, -numbers)
            assert sorted([*ended, *rows.drawing]) == before
            if on is not None:
                here = here[on]
            assert here.tolist() == list(rows.drawing)
            for row in ended:
                assert rows.completion(row, 0).token_ids == tuple(coming[row][: at + 1])
    for row in range(count):
        found = rows.completion(row, 7)
        length, finish = by_hand(coming[row], stops[row], limits[row])
        assert (len(found.token_ids), found.finish) == (length, finish)
        assert found.token_ids == tuple(coming[row][:length])
        assert found.logprobs == tuple(float(100 * row + at) for at in range(length))
        assert found.entropies == tuple(-float(100 * row + at) for at in range(length))
        assert found.weight_versions == (7,) * length


def test_a_nan_is_found_at_the_end_of_a_row_or_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vtune.rollout.drawn_rows, "UNREAD", 3)
    zeros, nan = torch.zeros(2), torch.tensor([0.0, torch.nan])
    letters, one_ends = torch.tensor([0, 0]), torch.tensor([END, 0])
    rows = rows_of([(), ()], [100, 100])
    rows.take(letters, nan, zeros)
    with pytest.raises(RunFailed, match="not numbers"):
        rows.take(one_ends, zeros, zeros)
    rows = rows_of([(), ()], [100, 100])
    rows.take(letters, nan, zeros)
    rows.take(letters, zeros, zeros)
    with pytest.raises(RunFailed, match="not numbers"):
        rows.take(letters, zeros, zeros)
