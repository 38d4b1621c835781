"""A slow reference of credit transfer, call by call as in the paper, without arrays; and test questions."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace

from vtune.advantage.group import group_advantages
from vtune.advantage.recipe import Credit
from vtune.schema.box import iou
from vtune.schema.message import Picture
from vtune.schema.reward import Reward
from vtune.schema.trajectory import Call, Crop, Status, Trajectory
from vtune.tools.similarity import STOP_WORDS

TYPE = {
    "image_search_tool": "image_search",
    "image_zoom_in_tool": "zoom",
    "python": "zoom",
    "text_search_tool": "text_search",
}
Step = tuple[int, int]
"""(trajectory, call)."""


def jaccard(a: set[str], b: set[str]) -> float:
    return len(a & b) / len(a | b)


def query_similarity(one: str, other: str) -> float:
    """Eq. 5, for queries of lower-case ASCII words."""
    a, b = (set(q.split()) - STOP_WORDS or set(q.split()) for q in (one, other))
    grams = [{q[k : k + 2] for k in range(len(q) - 1)} for q in (one, other)]
    return 0.3 * jaccard(a, b) + 0.5 * len(a & b) / min(len(a), len(b)) + 0.2 * jaccard(*grams)


def crop_similarity(one: Call, other: Call) -> float:
    def best(crop: Crop, among: Sequence[Crop]) -> float:
        return max(iou(crop.bbox, c.bbox) if crop.image == c.image else 0.0 for c in among)

    total = sum(best(c, other.crops) for c in one.crops) + sum(best(c, one.crops) for c in other.crops)
    return total / (len(one.crops) + len(other.crops))


def similarity(one: Call, other: Call) -> float:
    kind = TYPE[one.tool]
    if kind == "image_search":
        return 1.0
    if kind == "zoom":
        return crop_similarity(one, other)
    return query_similarity(json.loads(one.arguments)["query"], json.loads(other.arguments)["query"])


def seeks(call: Call) -> bool:
    if call.status == "error" and call.tool != "python":
        return False  # the call was refused
    return TYPE[call.tool] != "zoom" or bool(call.crops)


def transferred(question: Sequence[Trajectory], recipe: Credit) -> list[list[float | None]]:
    """The call advantages of the trajectories of one question."""
    usable = [
        t.advantage is not None and t.reward is not None and t.reward.accuracy is not None for t in question
    ]
    won = [ok and t.reward.accuracy == 1 for ok, t in zip(usable, question, strict=True)]  # type: ignore[union-attr]
    out = [[t.advantage if ok else None] * len(t.calls) for ok, t in zip(usable, question, strict=True)]
    for kind, gate in recipe.tools.items():
        steps = [
            (j, k)
            for j, t in enumerate(question)
            for k, call in enumerate(t.calls)
            if usable[j] and TYPE[call.tool] == kind and seeks(call)
        ]

        def of(step: Step) -> Call:
            return question[step[0]].calls[step[1]]

        good = [step for step in steps if won[step[0]] and of(step).status == "ok"]
        groups: list[list[Step]] = []
        left = list(good)
        while left:
            group = [left.pop()]
            for member in group:
                near = [s for s in left if similarity(of(member), of(s)) >= gate.similarity - 1e-9]
                group += near
                left = [s for s in left if s not in near]
            groups.append(group)
        for j, k in steps:
            if won[j] or (own := question[j].advantage) is None or own >= 0 or not groups:
                continue
            rated = []
            for group in groups:
                close = sum(similarity(of((j, k)), of(s)) for s in group) / len(group)
                support = len({i for i, _ in group}) / sum(won)
                mean = sum(question[i].advantage or 0.0 for i, _ in group) / len(group)
                rated.append((round(close, 9), support, mean, close))
            _, support, mean, close = max(rated)
            alpha = close * support if recipe.support else close
            if close >= gate.similarity - 1e-9 and alpha >= gate.confidence - 1e-9:
                raised = own + recipe.beta * alpha * mean
                out[j][k] = min(raised, 0.0) if recipe.clip else raised
    return out


WORDS = ["legoland", "windsor", "opening", "year", "park", "the", "of", "golf", "course", "date", "who"]
STATUSES: tuple[Status, ...] = ("ok", "ok", "ok", "ok", "error", "timeout")


def random_call(rng: random.Random) -> Call:
    tool = rng.choice(list(TYPE))
    status = rng.choice(STATUSES)
    if TYPE[tool] == "text_search":
        query = " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 4)))
        return Call(tool=tool, arguments=json.dumps({"query": query}), status=status)
    crops: tuple[Crop, ...] = ()
    if TYPE[tool] == "zoom":
        count = rng.choice((0, 1, 1, 1, 2, 3))
        corners = [(rng.choice((0, 10, 12)), rng.choice((0, 1, 30))) for _ in range(count)]
        sizes = [(rng.choice((30, 33, 60)), rng.choice((30, 32))) for _ in range(count)]
        crops = tuple(
            Crop(rng.choice((0, 0, 0, 1)), (x, y, x + w, y + h), shown=0)
            for (x, y), (w, h) in zip(corners, sizes, strict=True)
        )
    return Call(tool=tool, arguments="{}", status=status, crops=crops)


def random_question(rng: random.Random, group: int, *, rollouts: int = 6, calls: int = 4) -> list[Trajectory]:
    """Trajectories of one question: right, partly right, wrong but well formatted, or unscored."""
    found = []
    for rollout in range(rng.randint(1, rollouts)):
        accuracy = rng.choice((0.0, 0.0, 1.0, 1.0, 0.5, None))
        form = rng.choice((0.0, 0.5, 1.2))
        total = None if accuracy is None or rng.random() < 0.05 else accuracy + form
        found.append(
            Trajectory(
                sample_id=f"q/{group}",
                source="q",
                group=group,
                rollout=rollout,
                images=(Picture(data=b"a"), Picture(data=b"b")),
                calls=tuple(random_call(rng) for _ in range(rng.randint(0, calls))),
                reward=Reward(total=total, accuracy=accuracy, format=form, tool=None, why=""),
            )
        )
    gains = group_advantages(
        [t.reward.total if t.reward else None for t in found], [t.group for t in found], baseline="group_std"
    )
    return [replace(t, advantage=gain) for t, gain in zip(found, gains, strict=True)]
