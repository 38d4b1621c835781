"""The six causes for which two results on the same data differ, and how much each accounts for."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from vtune.differences import both, differing_keys, value_of
from vtune.runs.evaluate.finished import Finished
from vtune.runs.evaluate.rescored import PARSER
from vtune.runs.evaluate.suite import EvalSuite

KEYS: Mapping[str, tuple[str, ...]] = {
    "prompt": ("protocol", "offers", "rollout.prompt", "choices.template"),
    "parser": PARSER,
    "pixels": ("images", "call_images", "openai.side_multiple", "openai.picture_mb"),
    "order": ("choices.order",),
    "decoding": (
        "rollout.temperature",
        "rollout.max_turns",
        "rollout.max_new_tokens",
        "rollout.max_tokens",
        "rollouts",
        "seed",
        "dtype",
        "openai.top_p",
    ),
    "judge": ("grader", "reward.judge"),
}
"""Cause -> keys of a suite that belong to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One of the six causes."""

    differs: bool | None
    """None: unknown, for a published number."""
    keys: Mapping[str, tuple[Any, Any]]
    """Key -> its value here and there."""
    items: int | None
    """Number of questions that it affects; None if unknown."""
    score: float | None = None
    """Score of our replies when read their way for this cause and the ones before it."""
    points: float | None = None
    """The part of the difference that it explains, as a fraction of 1."""
    why: str = ""
    """Why there are no points."""
    command: str | None = None
    """Command that would measure it."""
    example: Mapping[str, str] | None = None


def concluded(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], causes: Mapping[str, Cause], besides: Sequence[str]
) -> dict[str, Any]:
    """The report that the causes add up to."""
    both = ours["score"] is not None and theirs["score"] is not None
    difference = ours["score"] - theirs["score"] if both else None
    known = [cause.points for cause in causes.values() if cause.points is not None]
    named = [name for name, cause in causes.items() if cause.differs]
    return {
        "ours": dict(ours),
        "theirs": dict(theirs),
        "difference": difference,
        "verdict": _verdict(difference, causes, named, besides),
        "named": named,
        "unknown": [name for name, cause in causes.items() if cause.differs is None],
        "explained": sum(known) if known else None,
        "rest": None if difference is None else difference - sum(known),
        "causes": {name: asdict(cause) for name, cause in causes.items()},
        "besides": list(besides),
    }


def _verdict(
    difference: float | None, causes: Mapping[str, Cause], named: Sequence[str], besides: Sequence[str]
) -> str:
    gap = "no scores to compare" if difference is None else f"{100 * difference:+.1f} points"
    differing = [
        name if causes[name].points is None else f"{name} ({100 * (causes[name].points or 0):+.1f})"
        for name in named
    ]
    unknown = [name for name, cause in causes.items() if cause.differs is None]
    one = len(named) == 1 and named[0] != "pixels"
    parts = [
        f"{gap}: {', '.join(differing)} differ{'s' if one else ''}"
        if differing
        else f"{gap}: none of the causes {'is known to differ' if unknown else 'differs'}",
        *([f"not known: {', '.join(unknown)}"] if unknown else []),
        *([f"besides: {', '.join(besides)}"] if besides else []),
    ]
    return "; ".join(parts)


def changed(ours: EvalSuite, theirs: EvalSuite, cause: str) -> dict[str, tuple[Any, Any]]:
    """Keys of a cause in which two suites differ, with both values."""
    mine, other = (suite.model_dump(mode="json") for suite in (ours, theirs))
    return both([key for key in differing_keys(mine, other) if within(key, KEYS[cause])], mine, other)


def with_command(ours: Finished, theirs: EvalSuite, name: str, cause: Cause) -> Cause:
    """The cause with the command that measures it, if stored replies cannot."""
    if not cause.differs or cause.points is not None:
        return cause
    sets = _settings(ours.suite, theirs, name)
    if not sets:
        return replace(cause, why=cause.why or "no setting of the suite determines it")
    limit = ours.results.get("limit")
    words = ["vtune", "eval", "--suite", str(ours.folder / "suite.yaml")]
    words += ["--model", str(ours.results["model"]), "--out", f"{ours.folder}-{name}"]
    words += [] if limit is None else ["--limit", str(limit)]
    words += ["--vllm"] if ours.results.get("engine") == "vllm" else []
    words += [word for one in sets for word in ("--set", one)]
    why = cause.why or "only new replies can show it"
    return replace(cause, command=shlex.join(words), why=why)


def _settings(ours: EvalSuite, theirs: EvalSuite, cause: str) -> list[str]:
    """A cause's settings as `key=value`, with the other's values; a protocol's name implies its settings."""
    if cause == "judge":
        dumped = theirs.model_dump(mode="json")
        values = {key: (None, value_of(dumped, key)) for key in KEYS["judge"] if changed(ours, theirs, cause)}
    else:
        values = changed(ours, theirs, cause)
    follows = "protocol" in values
    if follows and "choices.template" in values:  # both must be given, or neither
        values |= {
            "choices.letter_rule": (None, value_of(theirs.model_dump(mode="json"), "choices.letter_rule"))
        }
    return [
        f"{key}={json.dumps(value)}"
        for key, (_, value) in values.items()
        if not (follows and key in ("choices.template", "choices.letter_rule", "scorer") and value is None)
    ]


def within(key: str, sections: Sequence[str]) -> bool:
    """Whether a dotted key is one of some keys, or below one of them."""
    return any(f"{key}.".startswith(f"{section}.") for section in sections)
