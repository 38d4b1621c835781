"""What goes over HTTP between a run and its reward service: our records as JSON.

A row is that of the Parquet files, with pictures in base64. What scoring never reads stays at home: a
sample's pictures (no verifier looks at them), tokens, the user's turns, code and output. A trajectory's
pictures go along where it has calls: red flags and judges look at them.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from vtune.errors import DataError, RecipeError, ServiceError
from vtune.judge.client import JudgeEndpoint
from vtune.judge.pictures import read_bytes
from vtune.reward.recipe import RewardRecipe
from vtune.schema.fields import Row
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.reward import Reward
from vtune.schema.sample import Sample
from vtune.schema.sample_row import sample_from_row, scored_columns
from vtune.schema.trajectory import Trajectory
from vtune.schema.trajectory_row import TRAJECTORY_COLUMNS, call_to_row, trajectory_from_row

JUDGE = ("model", "temperature", "max_tokens")
"""What of a judge can move a score. Where it answers, and its key, are the service's own business."""


def item_of(sample: Sample, trajectory: Trajectory) -> Row:
    """What a service has to know to score a trajectory; columns that are left out are empty there."""
    count = len(sample.images)
    asked = scored_columns(sample) | {
        "images": [None] * count,  # counted, never looked at
        "prompt": [{"role": "user", "content": IMAGE * count + sample.question}],
        "extra_info": {"id": sample.id},
    }
    done = {
        "sample_id": trajectory.sample_id,
        "messages": [
            {"role": "assistant", "content": turn.content}
            for turn in trajectory.messages
            if turn.role == "assistant"
        ],
        # Red flags and judges look at them.
        "images": [_sent(picture) for picture in trajectory.images] if trajectory.calls else [],
        "calls": [
            call_to_row(call) | {"arguments": "", "output": "", "span": (0, 0)} for call in trajectory.calls
        ],
        "stop_reason": trajectory.stop_reason,
    }
    return {"sample": asked, "trajectory": done}


def read_item(item: Any) -> tuple[Sample, Trajectory]:
    """The sample and the trajectory of an item; `{"sample": row, "reply": text}` is one of a single turn.

    Raises:
        DataError: Naming the column and the remedy.
    """
    if not isinstance(item, dict) or not isinstance(item.get("sample"), dict):
        raise DataError("an item needs a `sample`", fix='{"sample": {…}, "reply": "…"} or "trajectory": {…}')
    if unknown := sorted(set(item) - {"sample", "trajectory", "reply"}):
        raise DataError(f"unknown key `{unknown[0]}` in an item", fix="known: sample, trajectory, reply")
    sample = _sample(item["sample"])
    row, reply = item.get("trajectory"), item.get("reply")
    if isinstance(reply, str) and row is None:
        messages = (Message("assistant", reply),)
        return sample, Trajectory(sample_id=sample.id, source=sample.source, messages=messages)
    if not isinstance(row, dict) or reply is not None:
        raise DataError("an item has either a `reply` or a `trajectory`", fix="send the text of the reply")
    trajectory = _trajectory(row, sample)
    if trajectory.sample_id != sample.id:
        raise DataError(
            f"the trajectory answers {trajectory.sample_id!r}, the sample is {sample.id!r}",
            fix="send each trajectory with the sample that it answers",
        )
    return sample, trajectory


def settings_of(recipe: RewardRecipe) -> Row:
    """Everything in a recipe that moves a score. IoU thresholds stand in the samples, for they change."""
    settings = recipe.model_dump(mode="json", exclude={"service", "max_unscored", "judge", "iou"})
    judge = recipe.judge
    return settings | {"judge": None if judge is None else {name: getattr(judge, name) for name in JUDGE}}


def packed_json(value: Mapping[str, Any]) -> bytes:
    """As JSON in ASCII: a reply may hold half a surrogate pair, which no other encoding takes."""
    return json.dumps(value, allow_nan=False).encode()


def request_of(settings: bytes, items: Sequence[bytes]) -> bytes:
    """The body of `POST /score`: settings and items, each as JSON."""
    return b'{"reward": %b, "items": [%b]}' % (settings, b", ".join(items))


def recipe_of(settings: Mapping[str, Any], judge: JudgeEndpoint | None) -> RewardRecipe:
    """The recipe that settings describe, with the service's own judge if they want one.

    Raises:
        RecipeError: If they are no settings, or want another judge than the service has.
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
    values = dict(settings) | {"max_unscored": 1.0, "judge": None if wanted is None else judge}
    try:
        return RewardRecipe.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, ("reward", *problem["loc"])))
        raise RecipeError(f"`{key}`: {problem['msg']}", fix="send the reward section of a recipe") from None


def scores_of(trajectory: Trajectory) -> Row:
    """What scoring has found out about a trajectory."""
    reward = trajectory.reward
    if reward is None:
        raise ValueError("a trajectory without a reward has no scores")
    return {
        "reward": {
            "total": reward.total,
            "accuracy": reward.accuracy,
            "format": reward.format,
            "tool": reward.tool,
            "why": reward.why,
            "parts": dict(reward.parts),
        },
        "tool_scores": list(trajectory.tool_scores),
        "flags": [list(call.flags) for call in trajectory.calls],
    }


def with_scores(trajectory: Trajectory, scores: Mapping[str, Any]) -> Trajectory:
    """The trajectory with the scores of `scores_of`.

    Raises:
        ServiceError: If they are none, or those of another trajectory.
    """
    try:
        reward = Reward(**scores["reward"])
        tool_scores, flags = tuple(scores["tool_scores"]), [tuple(names) for names in scores["flags"]]
    except (KeyError, TypeError) as error:
        raise ServiceError(f"the reward service sent no scores: {error!r}") from None
    if not len(tool_scores) == len(flags) == len(trajectory.calls):
        raise ServiceError(
            f"the reward service sent scores of {len(flags)} calls, not {len(trajectory.calls)}"
        )
    calls = tuple(replace(call, flags=found) for call, found in zip(trajectory.calls, flags, strict=True))
    return replace(trajectory, reward=reward, tool_scores=tool_scores, calls=calls)


def _sent(picture: Picture) -> Row:
    try:
        data = read_bytes(picture)
    except DataError:
        data = b""  # unreadable there as here: the calls are unscored
    return {"bytes": base64.b64encode(data).decode("ascii"), "origin": picture.origin}


def _sample(row: Row) -> Sample:
    images = row.get("images")
    # A path in a request must never be opened here, and no verifier looks at a sample's pictures.
    hollow = [{"bytes": b"", "path": None} for _ in images] if isinstance(images, list) else None
    return sample_from_row(row | {"images": hollow}, place="request")


def _trajectory(row: Row, sample: Sample) -> Trajectory:
    images = row.get("images") or []
    if not isinstance(images, list):
        raise DataError("column `images` is no list", fix="send a list of pictures")
    nothing = dict.fromkeys(TRAJECTORY_COLUMNS.names)
    known = {"sample_id": sample.id, "data_source": sample.source, "stop_reason": "answer"}
    return trajectory_from_row(nothing | known | row | {"images": [_picture(item) for item in images]})


def _picture(item: Any) -> Row:
    data = item.get("bytes") if isinstance(item, dict) else None
    if not isinstance(data, str):
        raise DataError(
            "a picture came without its bytes", where="column `images`", fix="send `bytes` in base64"
        )
    try:
        return {"bytes": base64.b64decode(data, validate=True), "path": None, "origin": item.get("origin")}
    except binascii.Error:
        raise DataError("not base64", where="column `images.bytes`", fix="encode the file's bytes") from None
