"""One row of numbers per data source (V-Triune §3.3), and one for all."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, get_args

from vtune.metrics.replies import leaks, reflects
from vtune.schema.reward import Reward
from vtune.schema.source_names import ALL, EVAL, check_source
from vtune.schema.trajectory import Call, Status, Trajectory
from vtune.tools.calls import INVALID, found_nothing, is_search

Rows = dict[str, dict[str, float]]
"""Source -> name of the number -> number. What could not be measured has no key: a gap, never a zero."""

_CUT_SHORT = ("length", "turns", "context")
_CALLS = "_calls"
_COUNTED = (_CALLS, "_errors", "_empty")


def by_source(trajectories: Sequence[Trajectory], *, evidence_score: float) -> Rows:
    """The numbers of scored trajectories, by source.

    Each row holds:

    - `trajectories`; `unscored`: share whose total reward is None;
    - `reward`, `reward_accuracy`, `reward_format`, `reward_tool`, `reward_consistency`: means over those
      where it was scored; likewise `reward_<name>` for each custom part. `reward_tool`, `evidence_rate` and
      `tool_<name>_score` are missing if looks were not judged because they are not rewarded (`_unasked`);
    - `accuracy`: share of full marks among scored answers;
    - the policy's behaviour, here and below over those that did not end through a failure on our side:
      `tool_calls`: mean number; `no_tool`: share without a call; `calls_<status>`: number of calls with that
      status (`calls_infra` includes the failures); `calls_invalid`: number that were not a JSON call of an
      offered tool;
    - `evidence_rate`: share with a call that scored `evidence_score` or more, among those whose question
      needs a look and whose calls were all scored; missing if most of those with calls were not scored;
    - `red_flags`: mean number of calls with a red flag;
    - for each tool called, `tool_<name>_calls`: number of calls; `tool_<name>_errors`: number that failed
      through the model's fault; for searches, `tool_<name>_empty`: number that found nothing;
      `tool_<name>_score`: mean score of the scored ones. In a curve a row without the three numbers counts
      as 0 (`tool_counts`);
    - `response_tokens`: mean number of sampled tokens, missing if the model does not return tokens;
      `truncated`: share cut short by a limit on tokens, turns or context;
    - `reflection_ratio`: share of replies with a reflective word; `reflection_accuracy`: share of full marks
      among the scored ones of these (V-Triune, eq. 4 and 5);
    - `leaked_placeholders`: share of replies that contain a picture placeholder as text;
    - the verifier's further numbers, under its own names: means over the replies for which it reported them.
      For boxes, `iou@50` and the like, and `ap`, the mean of the average precisions of single replies.

    Args:
        trajectories: As the scorer returned them.
        evidence_score: The score of a call that clearly shows a target (`reward.evidence.full`).

    Raises:
        DataError: If a source is called `all`, the name of the row over all sources, or `eval/…`.
    """
    groups: dict[str, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        groups[trajectory.source].append(trajectory)
    for source in groups:
        check_source(source)
    rows = {source: _row(group, evidence_score) for source, group in sorted(groups.items())}
    return rows | {ALL: _row(trajectories, evidence_score)} if rows else {}


def tool_counts(names: Iterable[str]) -> list[str]:
    """The names that count calls of a tool; a row of the same source without them stands for 0 calls.

    Args:
        names: All names of numbers in the rows of one source.
    """
    known = set(names)
    called = {name.removesuffix(_CALLS) for name in known if name.startswith("tool_")}
    tools = called - known - {"tool"}  # `tool_calls` is a mean, and always there
    return sorted(f"{tool}{kind}" for tool in tools for kind in _COUNTED if f"{tool}{kind}" in known)


def steps_done(sources: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> int:
    """Number of training steps that the curves cover.

    A training row gives its step, counted from 0; an evaluation row the number of steps before it.

    Args:
        sources: Source -> number -> `steps`.
    """
    last = {
        source: max((curve["steps"][-1] for curve in curves.values()), default=-1)
        for source, curves in sources.items()
    }
    return max((step if source.startswith(EVAL) else step + 1 for source, step in last.items()), default=0)


def _row(trajectories: Sequence[Trajectory], evidence_score: float) -> dict[str, float]:
    rewards = [trajectory.reward for trajectory in trajectories]
    accuracies = _known(r.accuracy for r in rewards if r is not None)
    asked = not _unasked(trajectories)
    # A rollout that failed on our side has a call that records why, but no end; it says nothing about
    # behaviour.
    ended = [trajectory for trajectory in trajectories if trajectory.stop_reason != "error"]
    lookers = _asked_to_look(ended)
    users = [t for t in lookers if t.calls]
    judged = [t for t in lookers if len(t.tool_scores) == len(t.calls) and None not in t.tool_scores]
    if not asked or 2 * sum(bool(t.calls) for t in judged) < len(users):
        judged = []  # a rate over those without calls, or with red flags, says nothing about looks
    tokens_known = any(t.loss_mask for t in ended)
    means: dict[str, Iterable[float]] = {
        "unscored": [reward is None or reward.total is None for reward in rewards],
        "reward": _known(reward.total for reward in rewards if reward is not None),
        "reward_accuracy": accuracies,
        "reward_format": _known(reward.format for reward in rewards if reward is not None),
        "reward_tool": _known(reward.tool for reward in rewards if asked and reward is not None),
        "reward_consistency": _known(reward.consistency for reward in rewards if reward is not None),
        "accuracy": [accuracy >= 1.0 for accuracy in accuracies],
        "tool_calls": [len(t.calls) for t in ended],
        "no_tool": [not t.calls for t in ended],
        "evidence_rate": [max(_known(t.tool_scores), default=-1.0) >= evidence_score for t in judged],
        "red_flags": [sum(bool(call.flags) for call in t.calls) for t in ended],
        "response_tokens": [sum(t.loss_mask) for t in ended] if tokens_known else [],
        "truncated": [t.stop_reason in _CUT_SHORT for t in ended],
        "reflection_ratio": [reflects(t.reply) for t in ended],
        "reflection_accuracy": [
            t.reward.accuracy >= 1.0
            for t in trajectories
            if t.reward is not None and t.reward.accuracy is not None and reflects(t.reply)
        ],
        "leaked_placeholders": [leaks(t.reply) for t in ended],
    }
    statuses = Counter(call.status for t in ended for call in t.calls)
    statuses["infra"] = sum(call.status == "infra" for t in trajectories for call in t.calls)
    row: dict[str, float] = {"trajectories": len(trajectories)}
    row |= {name: fmean(values) for name, values in means.items() if values}
    row["calls_invalid"] = sum(call.tool == INVALID for t in ended for call in t.calls)
    row |= {f"calls_{status}": statuses[status] for status in get_args(Status)}
    return row | _own(rewards) | _tools(ended, asked=asked) | _parts(rewards)


def _unasked(trajectories: Iterable[Trajectory]) -> bool:
    """Whether some looks have no score although the total has one: a judge is only asked if looks are
    rewarded.

    Only trajectories without a call, and red flags, have scores then; they say nothing about the looks.
    """
    return any(
        score is None and call.status != "infra"
        for t in _asked_to_look(trajectories)
        if t.reward is not None and t.reward.total is not None and t.tool_scores
        for call, score in zip(t.calls, t.tool_scores, strict=True)
    )


def _asked_to_look(trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    """Trajectories whose question needs a look, or whose scores do not say if it does."""
    return [t for t in trajectories if t.needs_look is not False]


def _own(rewards: Iterable[Reward | None]) -> dict[str, float]:
    """Means of custom reward parts, over the trajectories where they were scored."""
    found: dict[str, list[float]] = defaultdict(list)
    for reward in rewards:
        for name, value in (reward.own if reward is not None else {}).items():
            if value is not None:
                found[f"reward_{name}"].append(value)
    return {name: fmean(values) for name, values in found.items()}


def _tools(trajectories: Sequence[Trajectory], *, asked: bool) -> dict[str, float]:
    """Calls, errors, searches without results and, if looks were judged, mean score of each tool."""
    calls: dict[str, list[tuple[Call, float | None]]] = defaultdict(list)
    for trajectory in trajectories:
        # If nothing was scored, there are no scores to pair with the calls.
        scores = trajectory.tool_scores or (None,) * len(trajectory.calls)
        for call, score in zip(trajectory.calls, scores, strict=True):
            calls[call.tool].append((call, score))
    row: dict[str, float] = {}
    for tool, found in sorted(calls.items()):
        row[f"tool_{tool}_calls"] = len(found)
        row[f"tool_{tool}_errors"] = sum(call.status not in ("ok", "limit", "infra") for call, _ in found)
        if is_search(tool):
            row[f"tool_{tool}_empty"] = sum(found_nothing(tool, call.output) for call, _ in found)
        if asked and (scored := _known(score for _, score in found)):
            row[f"tool_{tool}_score"] = fmean(scored)
    return row


def _parts(rewards: Iterable[Reward | None]) -> dict[str, float]:
    """Means of what verifiers reported besides their scores."""
    found: dict[str, list[float]] = defaultdict(list)
    for reward in rewards:
        for name, value in (reward.parts if reward is not None else {}).items():
            found[name].append(value)
    return {name: fmean(values) for name, values in found.items()}


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
