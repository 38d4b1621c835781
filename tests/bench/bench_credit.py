"""How long both phases of credit transfer take on a step of the paper's size (Dong et al., appendix B.5).

128 questions x 8 rollouts x up to 10 calls. Seconds are CPU time of one thread, so that other work on the
machine does not count.

    python -m pytest tests/bench/bench_credit.py -s -o python_files='bench_*.py'
"""

import json
import random
import time
from dataclasses import replace
from statistics import median

from tests.advantage.brute import TYPE
from vtune.advantage.credit import transfer_credit
from vtune.advantage.group import group_advantages
from vtune.advantage.recipe import PAPER
from vtune.schema.message import Picture
from vtune.schema.reward import Reward
from vtune.schema.trajectory import Call, Crop, Trajectory

QUESTIONS, ROLLOUTS, CALLS = 128, 8, 10
BOUND = 0.050
"""Limit for the median, in seconds."""


def step(seed: int, *, least: int, tools: tuple[str, ...]) -> list[Trajectory]:
    """Trajectories of one step: half are right, and some queries and boxes repeat those of siblings."""
    rng = random.Random(seed)
    vocabulary = [
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 10))) for _ in range(2000)
    ]
    found = []
    for group in range(QUESTIONS):
        words = rng.sample(vocabulary, 12)
        spots = [(rng.uniform(0, 800), rng.uniform(0, 600)) for _ in range(3)]
        for rollout in range(ROLLOUTS):
            calls = []
            for _ in range(rng.randint(least, CALLS)):
                tool = rng.choice(tools)
                crops: tuple[Crop, ...] = ()
                arguments = "{}"
                if TYPE[tool] == "zoom":
                    x, y = rng.choice(spots)
                    x, y = x + rng.gauss(0, 15), y + rng.gauss(0, 15)
                    boxes = [
                        (x + 20 * k, y, x + 20 * k + 150.0, y + 120.0)
                        for k in range(rng.choice((1, 1, 1, 2)))
                    ]
                    crops = tuple(Crop(0, box) for box in boxes)
                elif TYPE[tool] == "text_search":
                    arguments = json.dumps({"query": " ".join(rng.sample(words, rng.randint(3, 7)))})
                calls.append(Call(tool=tool, arguments=arguments, status="ok", crops=crops))
            right = float(rng.random() < 0.5)
            found.append(
                Trajectory(
                    sample_id=str(group),
                    source="bench",
                    group=group,
                    rollout=rollout,
                    images=(Picture(data=b"photo"),),
                    calls=tuple(calls),
                    reward=Reward(total=right, accuracy=right, format=1.0, tool=None, why=""),
                )
            )
    gains = group_advantages(
        [t.reward.total for t in found if t.reward], [t.group for t in found], baseline="group_std"
    )
    return [replace(t, advantage=gain) for t, gain in zip(found, gains, strict=True)]


def seconds(trajectories: list[Trajectory], times: int) -> list[float]:
    taken = []
    for _ in range(times):
        began = time.process_time()
        transfer_credit(trajectories, PAPER)
        taken.append(time.process_time() - began)
    return taken


def test_both_phases_take_less_than_50_ms() -> None:
    mixes = {
        "1 to 10 calls of all tools": (1, tuple(TYPE)),
        "10 calls of all tools": (10, tuple(TYPE)),
        "10 text searches": (10, ("text_search_tool",)),
        "10 zooms": (10, ("image_zoom_in_tool",)),
    }
    medians = {}
    for name, (least, tools) in mixes.items():
        trajectories = step(0, least=least, tools=tools)
        taken = seconds(trajectories, 21)
        matches = transfer_credit(trajectories, PAPER).matches
        calls = sum(len(t.calls) for t in trajectories)
        medians[name] = median(taken)
        corrected = sum(match.correction > 0 for match in matches)
        print(f"\n{name}: {calls} calls, {len(matches)} matched, {corrected} corrected")
        print(f"median {1000 * median(taken):.1f} ms, worst {1000 * max(taken):.1f} ms")
    for name in ("1 to 10 calls of all tools", "10 calls of all tools"):
        assert medians[name] < BOUND, name
