"""Attention of one generated token on a CPU: common prefixes kept once against once per row, alternating.

python -m tests.bench.bench_beginnings
"""

import statistics
import time
from math import inf

import torch

import vtune.models.decoding
from vtune.models.decoding import KeyValues

HEADS, WIDTH, LAYERS = 3, 32, 4
"""Heads and width of the tiny model; enough layers that those of one are no longer in a cache at the next
token, as in a model."""
GROUP, TOKENS, TURNS = 8, 40, 15
WAYS = {"for each row": inf, "once": 0}
SHAPES = (
    (16, 73, 64),
    (32, 40, 64),
    (32, 73, 64),
    (64, 73, 64),
    (32, 300, 120),
    (32, 1200, 0),
    (64, 1200, 200),
)
"""Rows, tokens of a prompt, and of what each row has written before."""


def kept(rows: int, prompt: int, own: int) -> KeyValues:
    places, end = [], 0
    for _ in range(rows // GROUP):
        begun = torch.arange(end, end + prompt)
        end += prompt
        for _ in range(GROUP):
            places.append(torch.cat([begun, torch.arange(end, end + own)]))
            end += own
    found = KeyValues(places, torch.float32)
    for _ in range(LAYERS):
        found.keep(torch.randn(1, HEADS, end, WIDTH), torch.randn(1, HEADS, end, WIDTH))
    return found


def taken(rows: int, prompt: int, own: int) -> float:
    """Microseconds for one layer's attention."""
    states, token = kept(rows, prompt, own), torch.randn(rows, HEADS, WIDTH)
    began = time.perf_counter()
    for _ in range(TOKENS):
        states.grow()
        for layer in range(LAYERS):
            states.attend(layer, token, token, token, WIDTH**-0.5)
    return (time.perf_counter() - began) / TOKENS / LAYERS * 1e6


def main() -> None:
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    for rows, prompt, own in SHAPES:
        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(TURNS):
            for way, least in WAYS.items():
                vtune.models.decoding.LEAST = least
                seconds[way].append(taken(rows, prompt, own))
        apart, once = (statistics.median(found) for found in seconds.values())
        saved = (rows - rows // GROUP) * prompt
        print(
            f"{rows} rows in groups of {GROUP}, prompts of {prompt}, {own} of their own, {saved} saved: "
            f"{apart:5.0f} us for each row, {once:5.0f} once: {once / apart:.2f}"
        )


if __name__ == "__main__":
    main()
