"""Credit transfer: a useful tool call in a failing trajectory is not punished along with the answer.

Dong et al. (2026), §3.3-3.5 and appendix B.3. Calls with similar arguments seek the same information. So if
successful trajectories of a question made the same call, the call was not what failed, and part of their
advantage makes up for the negative one that it got.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from math import inf
from typing import Any, NamedTuple

import numpy as np

from vtune.advantage.recipe import Credit, Gate
from vtune.advantage.tool_types import tool_types
from vtune.schema.trajectory import Call, Trajectory
from vtune.tools.python import NAME as PYTHON
from vtune.tools.similarity import Flags, Indices, Pairs, ToolType, Values

SUCCESS = 1.0
"""The accuracy of a success: full marks. Format and tool rewards do not make a success (§3.2)."""

TOLERANCE = 1e-9
"""Tolerance in comparing a similarity: sums depend on the order of their terms."""


class Match(NamedTuple):
    """A call of a failing trajectory and the reference group that it is most similar to."""

    trajectory: int
    """Index among the trajectories."""
    call: int
    """Index among its calls."""
    tool: str
    """Its tool type."""
    nearest: float
    """Similarity to the most similar call of a successful trajectory, in [0, 1]."""
    similarity: float
    """Mean similarity to the group, sim(o, C*), in [0, 1]."""
    support: float
    """Share of the question's successful trajectories that have a call in the group, in (0, 1]."""
    credit: float
    """F(o, C*) = similarity x support x mean advantage of the group (eq. 3), before any gate; without the
    support if the recipe omits it."""
    before: float
    """The trajectory's original advantage."""
    correction: float
    """What was added to it for this call; 0 if a gate blocked the transfer."""
    gated: bool
    """Whether it passed both gates, θ and α_min, in a trajectory with a negative advantage."""

    @property
    def confidence(self) -> float:
        """α = similarity x support."""
        return self.similarity * self.support


@dataclass(frozen=True, slots=True)
class Transfer:
    """The result of credit transfer for a set of trajectories, and everything found on the way."""

    call_advantages: tuple[tuple[float | None, ...], ...]
    """For each trajectory, one per call; None if the trajectory is unscored."""
    matches: tuple[Match, ...]
    """Matches of those calls of failing trajectories that have a reference group to compare with."""
    failing: tuple[int, ...]
    """The failing trajectories."""
    failing_calls: int
    """Number of their calls whose tool types the recipe names."""


def transfer_credit(trajectories: Sequence[Trajectory], recipe: Credit) -> Transfer:
    """Advantages of calls after credit transfer.

    Phase 3 (reference library): calls of successful trajectories of a question that have the same tool type
    and a similarity of at least θ are merged into reference groups. Merging is transitive (connected
    components), so the groups do not depend on any order. Adv(C) is the mean advantage over the calls of a
    group.

    Phase 4 (transfer): a call of a failing trajectory goes to the group with the largest mean similarity
    (eq. 2; ties go to the group with more support, then to the one with the higher advantage). If that
    similarity is at least θ and α = similarity x support at least α_min, its advantage becomes min(Â + β F,
    0) with F = α Adv(C) (eq. 3 and 4). The recipe's `support` and `clip` turn off one of these each (table
    3).

    What the paper leaves open: a call that ran but did not end well is not a witness, but may receive credit,
    because only its arguments say what it sought; one that never ran takes no part. A trajectory that fails
    with Â >= 0 was not punished and stays unchanged. Unscored trajectories take no part.

    Args:
        trajectories: Scored, with advantages; those with the same `group` are about the same question.
        recipe: Thresholds and weight.

    Source: Dong et al. 2026, eq. 2-4, appendix B.3.
    """
    scored = [_accuracy(t) is not None for t in trajectories]
    facts = _facts(trajectories)
    found: list[tuple[float | None, ...]] = [
        (t.advantage if known else None,) * len(t.calls)
        for t, known in zip(trajectories, scored, strict=True)
    ]
    transferred: dict[int, list[float | None]] = {}
    matches: list[Match] = []
    failing_calls = 0
    for name, calls in _calls(recipe, trajectories, scored, facts.won).items():
        failing_calls += int((~facts.won[np.array(calls[0], dtype=np.int64)]).sum())
        of_type, advantages = _matched(name, calls, facts, recipe)
        matches += of_type
        for match, after in zip(of_type, advantages, strict=True):
            if not match.gated:
                continue
            if match.trajectory not in transferred:
                transferred[match.trajectory] = list(found[match.trajectory])
            transferred[match.trajectory][match.call] = after
    for of, changed in transferred.items():
        found[of] = tuple(changed)
    return Transfer(
        call_advantages=tuple(found),
        matches=tuple(matches),
        failing=tuple(k for k, known in enumerate(scored) if known and not facts.won[k]),
        failing_calls=failing_calls,
    )


def token_advantages(trajectory: Trajectory) -> tuple[float, ...]:
    """The advantage of each token that the policy sampled, in order.

    This is the advantage of the call in whose span the token lies, else that of the trajectory. A turn with
    several calls is split into parts, one per call with the thoughts that lead to it (`Transcript.spans`; the
    paper has one call per turn). Where spans overlap, the lower one counts: a token is spared only if all its
    calls are.

    Raises:
        ValueError: If the trajectory has no advantage.
    """
    if trajectory.advantage is None:
        raise ValueError(f"a trajectory of {trajectory.sample_id!r} is unscored")
    values = np.full(len(trajectory.loss_mask), inf)
    if trajectory.call_advantages:
        for call, advantage in zip(trajectory.calls, trajectory.call_advantages, strict=True):
            start, end = call.span
            if advantage is not None:
                values[start:end] = np.minimum(values[start:end], advantage)
    values[values == inf] = trajectory.advantage
    return tuple(values[np.array(trajectory.loss_mask, dtype=bool)].tolist())


def _accuracy(trajectory: Trajectory) -> float | None:
    """The accuracy; None if answer or total is unscored: then the trajectory is no example."""
    reward = trajectory.reward
    return None if reward is None or trajectory.advantage is None else reward.accuracy


class _Facts(NamedTuple):
    """What both phases need to know, with one entry per trajectory or per question."""

    won: Flags
    question: Indices
    """Index of the question."""
    advantage: Values
    """0 if a trajectory has none."""
    successes: Values
    """Number of successful trajectories per question."""


def _facts(trajectories: Sequence[Trajectory]) -> _Facts:
    won: Flags = np.array([(_accuracy(t) or 0.0) >= SUCCESS for t in trajectories], dtype=bool)
    asked: dict[int, int] = {}
    question = np.array([asked.setdefault(t.group, len(asked)) for t in trajectories], dtype=np.int64)
    advantage = np.array([t.advantage or 0.0 for t in trajectories], dtype=np.float64)
    successes = np.bincount(question[won], minlength=len(asked)).astype(np.float64)
    return _Facts(won, question, advantage, successes)


_Calls = tuple[list[int], list[int], list[Any]]
"""For each call: its trajectory, its index there, and its argument."""


def _calls(
    recipe: Credit, trajectories: Sequence[Trajectory], scored: Sequence[bool], won: Flags
) -> dict[str, _Calls]:
    """Tool type -> all of its calls that take part."""
    found: dict[str, _Calls] = {name: ([], [], []) for name in recipe.tools}
    known = tool_types()
    types = {tool: (known[name].type.argument, *found[name]) for name in found for tool in known[name].tools}
    for number, trajectory in enumerate(trajectories):
        if not scored[number]:
            continue
        succeeded = bool(won[number])
        for place, call in enumerate(trajectory.calls):
            if (entry := types.get(call.tool)) is None or (succeeded and call.status != "ok"):
                continue
            if not _ran(call):
                continue
            argument_of, owners, places, arguments = entry
            argument = argument_of(trajectory, call)
            if argument is not None:
                owners.append(number)
                places.append(place)
                arguments.append(argument)
    return {name: one for name, one in found.items() if one[0]}


def _ran(call: Call) -> bool:
    """Whether a call was executed. Code that fails has run; other tools refuse what they cannot do."""
    return call.status != "blocked" and (call.status != "error" or call.tool == PYTHON)


def _matched(name: str, calls: _Calls, facts: _Facts, recipe: Credit) -> tuple[list[Match], list[float]]:
    """Both phases for the calls of one tool type: the matches, and the resulting advantage of each call."""
    gate = recipe.tools[name]
    owners, numbers, arguments = calls
    owner = np.array(owners, dtype=np.int64)
    won, question, advantage = facts.won[owner], facts.question[owner], facts.advantage
    best = _best(tool_types()[name].type, arguments, owner, won, question, advantage, gate)
    support = best.witnesses / np.maximum(facts.successes[question[best.call]], 1)
    confidence = best.similarity * (support if recipe.support else 1.0)
    credit = confidence * best.advantage
    before = advantage[owner[best.call]]
    opened = (
        (before < 0)
        & (best.similarity + TOLERANCE >= gate.similarity)
        & (confidence + TOLERANCE >= gate.confidence)
    )
    raised = before + recipe.beta * credit
    after = np.where(opened, np.minimum(raised, 0.0) if recipe.clip else raised, before)
    place = np.array(numbers, dtype=np.int64)[best.call]
    columns = (best.nearest, best.similarity, support, credit, before, after - before, opened)
    ends = (owner[best.call].tolist(), place.tolist(), repeat(name))
    found = list(map(Match._make, zip(*ends, *(column.tolist() for column in columns), strict=False)))
    return found, after.tolist()


class _Best(NamedTuple):
    """The best reference group of each failing call that has any, one entry per call."""

    call: Indices
    """Index of the call."""
    nearest: Values
    similarity: Values
    witnesses: Indices
    """Number of successful trajectories with a call in the group."""
    advantage: Values
    """Mean over the calls of the group."""


def _best(
    kind: ToolType,
    arguments: Sequence[object],
    owner: Indices,
    witness: Flags,
    question: Indices,
    advantage: Values,
    gate: Gate,
) -> _Best:
    """Group the witnesses (phase 3), and find the best group of every other call (phase 4)."""
    witnesses = np.flatnonzero(witness)
    witnesses = witnesses[np.argsort(question[witnesses], kind="stable")]
    one, other = _same_question(witnesses, witnesses, question)
    within = (one[one < other], other[one < other])
    across = _same_question(np.flatnonzero(~witness), witnesses, question)
    left, right = (np.concatenate(sides) for sides in zip(within, across, strict=True))
    similarity = kind.similarity(arguments, Pairs(left, right, question))
    merged = similarity[: len(within[0])] + TOLERANCE >= gate.similarity
    label = _components(len(owner), within[0][merged], within[1][merged])

    # The groups, ordered by question, each represented by one of its calls.
    heads = np.flatnonzero(np.bincount(label[witnesses], minlength=len(owner)))
    heads = heads[np.argsort(question[heads], kind="stable")]
    number = np.zeros(len(owner), dtype=np.int64)
    number[heads] = np.arange(len(heads))
    group = number[label]
    size = np.bincount(group[witnesses], minlength=len(heads))
    mean = np.bincount(group[witnesses], weights=advantage[owner[witnesses]], minlength=len(heads)) / size
    held = np.sort(group[witnesses] * len(advantage) + owner[witnesses])
    held = held[np.diff(held, prepend=-1) > 0] // len(advantage)
    trajectories = np.bincount(held, minlength=len(heads))

    # One slot per call and group of its question; calls are in the same order in pairs and slots.
    receiver, reference = across
    values = similarity[len(within[0]) :]
    call, head = _same_question(np.flatnonzero(~witness), heads, question)
    chosen = number[head]
    start = np.flatnonzero(np.diff(call, prepend=-1))
    if not len(start):
        return _Best(call, values, values, trajectories[chosen], values)
    slot = np.zeros(len(owner), dtype=np.int64)
    slot[call[start]] = start - chosen[start]
    close = np.bincount(slot[receiver] + group[reference], weights=values) / size[chosen]
    nearest = np.maximum.reduceat(values, np.flatnonzero(np.diff(receiver, prepend=-1)))

    rounded = np.round(close, 9)
    highest = np.maximum.reduceat(rounded, start)
    left = np.flatnonzero(rounded == np.repeat(highest, np.diff(start, append=len(call))))
    left = left[np.lexsort((mean[chosen[left]], trajectories[chosen[left]], call[left]))]
    last = left[np.diff(call[left], append=len(owner)) > 0]
    return _Best(call[last], nearest, close[last], trajectories[chosen[last]], mean[chosen[last]])


def _same_question(left: Indices, right: Indices, question: Indices) -> tuple[Indices, Indices]:
    """All pairs of a left and a right call about the same question; `right` is sorted by question."""
    asked = question[right]
    low, high = (np.searchsorted(asked, question[left], side) for side in ("left", "right"))
    counts = high - low
    first = np.repeat(left, counts)
    place = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(low, counts)
    return first, right[place]


def _components(count: int, left: Indices, right: Indices) -> Indices:
    """The connected component of each of `count` nodes, labelled by its lowest node."""
    label = np.arange(count)
    while True:
        lower = label.copy()
        np.minimum.at(lower, left, label[right])
        np.minimum.at(lower, right, label[left])
        lower = lower[lower]
        if np.array_equal(lower, label):
            return label
        label = lower
