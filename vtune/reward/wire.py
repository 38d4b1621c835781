"""The JSON that goes over HTTP between a run and its reward service.

A row is that of the Parquet files, with pictures in base64. What scoring never reads is not sent: a
sample's pictures (no verifier looks at them), tokens, the user's turns, printed output that no judge reads,
and keys of `extra_info` that no evidence judge names. If the user has their own parts that score, output and
`extra_info` are sent too, as far as JSON can represent them. A trajectory's pictures are sent if it has
calls, for red flags and judges; those of the question if its grading shows them to a model.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from pydantic import ValidationError

from vtune.errors import DataError, RecipeError, ServiceError
from vtune.judge.endpoint import JudgeEndpoint
from vtune.judge.graders import GRADERS
from vtune.judge.pictures import read_bytes
from vtune.reward.evidence_judge import EVIDENCE
from vtune.reward.recipe import RewardRecipe
from vtune.reward.recut import printed
from vtune.schema.fields import Fields, Row
from vtune.schema.message import IMAGE, Picture
from vtune.schema.reward import Reward
from vtune.schema.sample import Sample
from vtune.schema.sample_row import scored_columns
from vtune.schema.trajectory import Call, Crop, Look, Trajectory
from vtune.schema.trajectory_row import call_to_row, outcome_to_row
from vtune.tools.python import NAME as PYTHON
from vtune.uses import prints, used

_PARTS = ("total", "accuracy", "format", "tool", "consistency")

SCORING = ("verifier", "evidence", "reward")
"""Kinds of parts that can change a score: the user's own must be the same in run and service."""

JUDGE = ("model", "temperature", "max_tokens")
"""The judge settings that can change a score. Endpoint and key are up to the service."""


def item_of(sample: Sample, trajectory: Trajectory) -> Row:
    """What a service needs to score a trajectory; columns that are left out are empty there."""
    count = len(sample.images)
    asked = scored_columns(sample) | {
        "images": [None] * count,  # counted, never looked at
        "prompt": [{"role": "user", "content": IMAGE * count + sample.question}],
        "extra_info": read_of(sample.extra) | {"id": sample.id},
    }
    done = {
        "sample_id": trajectory.sample_id,
        "messages": [
            {"role": "assistant", "content": turn.content}
            for turn in trajectory.messages
            if turn.role == "assistant"
        ],
        "images": [_sent(picture) for picture in looked_at(sample, trajectory)],
        "calls": [call_to_row(call) | {"output": _output(call), "span": (0, 0)} for call in trajectory.calls],
        "stop_reason": trajectory.stop_reason,
        "outcome": None if trajectory.outcome is None else outcome_to_row(trajectory.outcome),
    }
    return {"sample": asked, "trajectory": done}


def looked_at(sample: Sample, trajectory: Trajectory) -> Sequence[Picture]:
    """The pictures that red flags, judges or the sample's grading need."""
    grader = GRADERS.get(sample.verifier_parm.get("grading") or "vtune")
    shown = len(sample.images) if grader is not None and grader.pictures else 0
    return trajectory.images if trajectory.calls else trajectory.images[:shown]


def _output(call: Call) -> str:
    """The part of a call's text output that scoring may read."""
    return printed(call) if call.tool == PYTHON and not prints(SCORING) else call.output


def read_of(extra: Mapping[str, Any]) -> Row:
    """The part of `extra_info` that scoring reads."""
    if prints(SCORING):
        return {key: value for key, value in extra.items() if _is_json(value)}
    known = {key for part in EVIDENCE.values() for key in part.reads}
    return {key: value for key, value in extra.items() if key in known}


def _is_json(value: Any) -> bool:
    """Whether JSON can represent it; anything else, e.g. a picture's bytes, is not sent."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def settings_of(recipe: RewardRecipe) -> Row:
    """Everything in a recipe that affects a score here. IoU thresholds travel in the samples, since they
    change from step to step; parts that regenerate turns are scored where the rollouts are generated.
    """
    settings = recipe.model_dump(
        mode="json", exclude={"service", "max_unscored", "judge", "iou", "counterfactual"}
    )
    judge, brought = recipe.judge, prints(SCORING)
    if brought:
        settings["uses"] = brought
    return settings | {"judge": None if judge is None else {name: getattr(judge, name) for name in JUDGE}}


def packed_json(value: Mapping[str, Any]) -> bytes:
    """Serialise to ASCII JSON: a reply may contain half a surrogate pair, which UTF-8 cannot encode."""
    return json.dumps(value, allow_nan=False).encode()


def request_of(settings: bytes, items: Sequence[bytes]) -> bytes:
    """The body of `POST /score`: settings and items, each as JSON."""
    return b'{"reward": %b, "items": [%b]}' % (settings, b", ".join(items))


def recipe_of(settings: Mapping[str, Any], judge: JudgeEndpoint | None) -> RewardRecipe:
    """The recipe for these settings, with the service's own judge if they need one.

    Raises:
        RecipeError: If they are not valid settings, or need a different judge from the service's.
    """
    wanted = settings.get("judge")
    if isinstance(wanted, dict):
        wanted = {name: wanted.get(name) for name in JUDGE}
    own = None if judge is None else {name: getattr(judge, name) for name in JUDGE}
    if wanted is not None and wanted != own:
        raise RecipeError(
            f"the service's judge is {own or 'none'}, the request wants {wanted}",
            fix="start the service with the --recipe of the run",
        )
    _check_uses(settings.get("uses"))
    values = {key: value for key, value in settings.items() if key != "uses"}
    values |= {"max_unscored": 1.0, "judge": None if wanted is None else judge}
    try:
        return RewardRecipe.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, ("reward", *problem["loc"])))
        raise RecipeError(f"`{key}`: {problem['msg']}", fix="send the reward section of a recipe") from None


def _check_uses(wanted: Any) -> None:
    """Check that this process has loaded the user's own parts that a request scores with; it never loads them
    itself.

    Raises:
        RecipeError: If it has none, or different ones.
    """
    if wanted is not None and not isinstance(wanted, dict):
        raise RecipeError("`reward.uses` is not an object", fix="send file names and their SHA-256")
    own = {file.sha256: file.name for file in used()}
    for name, sha256 in (wanted or {}).items():
        if sha256 not in own:
            lacks = "has another" if name in own.values() else "has not loaded"
            what = f"the service {lacks} {name[:80]!r}, which the run uses (SHA-256 {str(sha256)[:16]}…)"
            raise RecipeError(
                what, fix="start it with the --recipe of the run, whose `uses` names the same file"
            )


def scores_of(trajectory: Trajectory) -> Row:
    """The scores of a trajectory, as a row."""
    reward = trajectory.reward
    if reward is None:
        raise ValueError("a trajectory without a reward has no scores")
    return {
        "reward": {
            "total": reward.total,
            "accuracy": reward.accuracy,
            "format": reward.format,
            "tool": reward.tool,
            "consistency": reward.consistency,
            "why": reward.why,
            "parts": dict(reward.parts),
            "own": dict(reward.own),
        },
        "tool_scores": list(trajectory.tool_scores),
        "flags": [list(call.flags) for call in trajectory.calls],
        "looks": [[crop.look for crop in call.crops] for call in trajectory.calls],
    }


def with_scores(trajectory: Trajectory, scores: Mapping[str, Any]) -> Trajectory:
    """The trajectory with scores as returned by `scores_of`.

    Raises:
        ServiceError: If they are not scores, or are those of another trajectory.
    """
    # Not every service sends looks.
    unseen: list[tuple[Look | None, ...]] = [(None,) * len(call.crops) for call in trajectory.calls]
    try:
        fields = Fields(scores)
        given = fields.struct("reward")
        parts, own = (
            given.struct(name) if given.values.get(name) is not None else Fields({})
            for name in ("parts", "own")
        )
        reward = Reward(
            **{name: _score(given, name) for name in _PARTS},
            why=given.text("why"),
            parts={name: number for name in parts.values if (number := _score(parts, name)) is not None},
            own={name: _score(own, name) for name in own.values},
        )
        tool_scores = tuple(_finite(number) for number in fields.numbers_or_null("tool_scores"))
        flags = [Fields({"flags": names}).texts("flags") for names in fields.items("flags")]
        looks = [_looks(names) for names in fields.items("looks")] or unseen
    except DataError as error:
        raise ServiceError(f"the reward service sent no scores: {error.what}") from None
    crops = [len(call.crops) for call in trajectory.calls]
    if not len(tool_scores) == len(flags) == len(crops) or [len(names) for names in looks] != crops:
        raise ServiceError(
            f"the reward service sent scores of {len(flags)} calls, not {len(trajectory.calls)}"
        )
    calls = tuple(
        replace(call, flags=found, crops=_with_looks(call, names))
        for call, found, names in zip(trajectory.calls, flags, looks, strict=True)
    )
    return replace(trajectory, reward=reward, tool_scores=tool_scores, calls=calls)


def _looks(names: Any) -> tuple[Look | None, ...]:
    if not isinstance(names, list):
        raise DataError("the looks of a call are not a list")
    return tuple(Fields({"look": name}).one_of_or_null("look", Look) for name in names)


def _with_looks(call: Call, looks: Sequence[Look | None]) -> tuple[Crop, ...]:
    return tuple(replace(crop, look=look) for crop, look in zip(call.crops, looks, strict=True))


def _score(fields: Fields, name: str) -> float | None:
    return _finite(fields.number_or_null(name))


def _finite(number: float | None) -> float | None:
    if number is not None and not isfinite(number):
        raise DataError(f"found {number} where a score is needed")
    return number


def _sent(picture: Picture) -> Row:
    try:
        data = read_bytes(picture)
    except DataError:
        data = b""  # the service could not read it either: the calls are unscored
    seen = None if picture.seen is None else list(picture.seen)
    return {"bytes": base64.b64encode(data).decode("ascii"), "origin": picture.origin, "seen": seen}
