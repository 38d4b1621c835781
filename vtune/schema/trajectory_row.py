"""A trajectory as a row of Parquet, and back."""

import math
from collections.abc import Sequence

import pyarrow as pa

from vtune.schema.box import proper
from vtune.schema.fields import Fields, Row, mistyped, pictures_from_row, shown_to_row, wrong
from vtune.schema.message import IMAGE, Message, Role
from vtune.schema.reward import Reward
from vtune.schema.trajectory import Call, Crop, Look, Outcome, Status, StopReason, Trajectory

_BOX = pa.list_(pa.float64())
_INDICES = pa.list_(pa.int32())

TRAJECTORY_COLUMNS = pa.schema(
    [
        ("sample_id", pa.string()),
        ("data_source", pa.string()),
        ("group", pa.int64()),
        ("rollout", pa.int32()),
        ("policy_version", pa.int64()),
        (
            "messages",
            pa.list_(pa.struct([("role", pa.string()), ("content", pa.string()), ("images", _INDICES)])),
        ),
        (
            "images",
            pa.list_(
                pa.struct(
                    [
                        ("bytes", pa.binary()),
                        ("path", pa.string()),
                        ("origin", pa.string()),
                        ("seen", _INDICES),
                    ]
                )
            ),
        ),
        (
            "calls",
            pa.list_(
                pa.struct(
                    [
                        ("tool", pa.string()),
                        ("arguments", pa.string()),
                        ("status", pa.string()),
                        ("error", pa.string()),
                        ("output", pa.string()),
                        ("images", _INDICES),
                        (
                            "crops",
                            pa.list_(
                                pa.struct(
                                    [
                                        ("image", pa.int32()),
                                        ("bbox_2d", _BOX),
                                        ("shown", pa.int32()),
                                        ("matrix", pa.list_(pa.float64())),
                                        ("look", pa.string()),
                                    ]
                                )
                            ),
                        ),
                        ("seconds", pa.float64()),
                        ("span", _INDICES),
                        ("flags", pa.list_(pa.string())),
                        ("unseen", pa.bool_()),
                    ]
                )
            ),
        ),
        ("token_ids", pa.list_(pa.int32())),
        ("loss_mask", pa.list_(pa.bool_())),
        ("logprobs", pa.list_(pa.float32())),
        ("answer", pa.string()),
        ("stop_reason", pa.string()),
        (
            "reward",
            pa.struct(
                [
                    ("total", pa.float32()),
                    ("accuracy", pa.float32()),
                    ("format", pa.float32()),
                    ("tool", pa.float32()),
                    ("consistency", pa.float32()),
                    ("why", pa.string()),
                    ("parts", pa.map_(pa.string(), pa.float64())),
                    ("own", pa.map_(pa.string(), pa.float32())),
                ]
            ),
        ),
        ("tool_scores", pa.list_(pa.float32())),
        ("advantage", pa.float32()),
        ("call_advantages", pa.list_(pa.float32())),
        ("sandbox", pa.string()),
        ("weight_versions", pa.list_(pa.int32())),
        ("entropies", pa.list_(pa.float32())),
        ("outcome", pa.struct([("score", pa.float64()), ("why", pa.string())])),
        ("needs_look", pa.bool_()),
    ]
)
"""One row per rollout."""
LATE_COLUMNS = ("sandbox", "weight_versions", "entropies", "outcome", "needs_look")
"""Columns added later; older files may lack them."""


def trajectory_to_row(trajectory: Trajectory) -> Row:
    """The row of a trajectory.

    Raises:
        DataError: If the trajectory contradicts itself (see `trajectory_from_row`).
    """
    _check(trajectory)
    reward = trajectory.reward
    return {
        "sample_id": trajectory.sample_id,
        "data_source": trajectory.source,
        "group": trajectory.group,
        "rollout": trajectory.rollout,
        "policy_version": trajectory.policy_version,
        "messages": [
            {"role": message.role, "content": message.content, "images": list(message.images)}
            for message in trajectory.messages
        ],
        "images": [shown_to_row(picture) for picture in trajectory.images],
        "calls": [call_to_row(call) for call in trajectory.calls],
        "token_ids": list(trajectory.token_ids),
        "loss_mask": list(trajectory.loss_mask),
        "logprobs": list(trajectory.logprobs),
        "answer": trajectory.answer,
        "stop_reason": trajectory.stop_reason,
        "reward": None
        if reward is None
        else {
            "total": reward.total,
            "accuracy": reward.accuracy,
            "format": reward.format,
            "tool": reward.tool,
            "consistency": reward.consistency,
            "why": reward.why,
            "parts": list(reward.parts.items()),
            "own": list(reward.own.items()),
        },
        "tool_scores": list(trajectory.tool_scores),
        "advantage": trajectory.advantage,
        "call_advantages": list(trajectory.call_advantages),
        "sandbox": trajectory.sandbox,
        "weight_versions": list(trajectory.weight_versions),
        "entropies": list(trajectory.entropies),
        "outcome": None if trajectory.outcome is None else outcome_to_row(trajectory.outcome),
        "needs_look": trajectory.needs_look,
    }


def trajectory_from_row(row: Row) -> Trajectory:
    """The trajectory of a row; float columns come back with the precision of float32.

    Raises:
        DataError: Names the column: a value of the wrong type, token lists of different lengths, an
            index without an image, different numbers of marks and images in a turn, a crop's box
            that is empty or not finite, a span outside the tokens, scores that are not one per call or not
            finite, an outcome outside [0, 1].
    """
    fields = Fields(row)
    trajectory = Trajectory(
        sample_id=fields.text("sample_id"),
        source=fields.text("data_source"),
        group=fields.integer("group", 0),
        rollout=fields.integer("rollout", 0),
        policy_version=fields.integer("policy_version", 0),
        messages=tuple(
            Message(item.one_of("role", Role), item.text("content"), item.integers("images"))
            for item in fields.structs("messages")
        ),
        images=pictures_from_row(row["images"]),
        calls=tuple(call_from_row(item) for item in fields.structs("calls")),
        token_ids=fields.integers("token_ids"),
        loss_mask=fields.flags("loss_mask"),
        logprobs=fields.numbers_or_null("logprobs"),
        answer=None if row["answer"] is None else fields.text("answer"),
        stop_reason=fields.one_of("stop_reason", StopReason),
        reward=_reward(fields.struct("reward")) if row["reward"] is not None else None,
        tool_scores=fields.numbers_or_null("tool_scores"),
        advantage=fields.number_or_null("advantage"),
        call_advantages=fields.numbers_or_null("call_advantages"),
        sandbox=fields.text("sandbox", ""),
        weight_versions=fields.integers_or_null("weight_versions"),
        entropies=fields.numbers_or_null("entropies"),
        outcome=_outcome(fields.struct("outcome")) if row.get("outcome") is not None else None,
        needs_look=needs_look_of(row),
    )
    _check(trajectory)
    return trajectory


def needs_look_of(row: Row) -> bool | None:
    """`needs_look` of a row. Older files do not have it; a row with an environment's outcome needs no look.

    Raises:
        DataError: If it is present but not true or false.
    """
    if row.get("needs_look") is None:
        return None if row.get("outcome") is None else False
    return Fields(row).flag("needs_look")


def call_to_row(call: Call) -> Row:
    """A call as an entry of `calls`."""
    return {
        "tool": call.tool,
        "arguments": call.arguments,
        "status": call.status,
        "error": call.error,
        "output": call.output,
        "images": list(call.images),
        "crops": [
            {
                "image": crop.image,
                "bbox_2d": list(crop.bbox),
                "shown": crop.shown,
                "matrix": None if crop.matrix is None else list(crop.matrix),
                "look": crop.look,
            }
            for crop in call.crops
        ],
        "seconds": call.seconds,
        "span": list(call.span),
        "flags": list(call.flags),
        "unseen": call.unseen,
    }


def call_from_row(fields: Fields) -> Call:
    """An entry of `calls` as a call; whether it fits its trajectory is not checked.

    Raises:
        DataError: Names the column and the remedy.
    """
    span = fields.integers("span")
    if len(span) != 2:
        raise mistyped("calls.span", list(span), "a pair [first, last+1]")
    return Call(
        tool=fields.text("tool"),
        arguments=fields.text("arguments"),
        status=fields.one_of("status", Status),
        error=fields.text("error", ""),
        output=fields.text("output", ""),
        images=fields.integers("images"),
        crops=tuple(
            Crop(
                item.integer("image", 0),
                item.box("bbox_2d"),
                item.integer_or_null("shown"),
                _matrix(item),
                item.one_of_or_null("look", Look),
            )
            for item in fields.structs("crops")
        ),
        seconds=fields.number("seconds", 0.0),
        span=(span[0], span[1]),
        flags=fields.texts("flags"),
        unseen=fields.flag("unseen"),
    )


def outcome_to_row(outcome: Outcome) -> Row:
    """An outcome as the value of `outcome`."""
    return {"score": outcome.score, "why": outcome.why}


def _outcome(fields: Fields) -> Outcome:
    score = fields.number_or_null("score")
    if score is None or not 0.0 <= score <= 1.0:  # also catches NaN
        raise wrong("outcome.score", f"it is {score}", "write a number from 0 to 1")
    return Outcome(score, fields.text("why", ""))


def _matrix(fields: Fields) -> tuple[float, ...] | None:
    """Six or nine finite numbers, or None."""
    numbers = tuple(n for n in fields.numbers_or_null("matrix") if n is not None and math.isfinite(n))
    if len(numbers) != len(fields.items("matrix")) or len(numbers) not in (0, 6, 9):
        raise mistyped(fields.name("matrix"), fields.items("matrix"), "six or nine finite numbers")
    return numbers or None


def _reward(fields: Fields) -> Reward:
    return Reward(
        total=fields.number_or_null("total"),
        accuracy=fields.number_or_null("accuracy"),
        format=fields.number_or_null("format"),
        tool=fields.number_or_null("tool"),
        consistency=fields.number_or_null("consistency"),
        why=fields.text("why", ""),
        parts={name: n for name, n in fields.numbers_by_name("parts").items() if n is not None},
        own=fields.numbers_by_name("own"),
    )


def _check(trajectory: Trajectory) -> None:
    """Check that the parts of a trajectory agree."""
    _check_scores(trajectory)
    tokens = len(trajectory.token_ids)
    for name, values in (("loss_mask", trajectory.loss_mask), ("logprobs", trajectory.logprobs)):
        if len(values) != tokens:
            raise wrong(
                name,
                f"{len(values)} entries for {tokens} tokens",
                f"one entry of `{name}` for each of `token_ids`",
            )
    for name, values in (
        ("weight_versions", trajectory.weight_versions),
        ("entropies", trajectory.entropies),
    ):
        if len(values) not in (0, tokens):
            raise wrong(name, f"{len(values)} entries for {tokens} tokens", "one per token, or none at all")
    for message in trajectory.messages:
        _check_images("messages.images", message.images, trajectory)
        marks = message.content.count(IMAGE)
        # A policy may write `<image>` as often as it likes; no picture is shown for it.
        mere_text = message.role == "assistant" and not message.images
        if marks != len(message.images) and not mere_text:
            raise wrong(
                "messages.images",
                f"a turn has {marks} {IMAGE} mark(s) for {len(message.images)} image(s)",
                f"put one {IMAGE} where each image of the turn goes",
            )
    for call in trajectory.calls:
        _check_images("calls.images", call.images, trajectory)
        for crop in call.crops:
            _check_images(
                "calls.crops", [crop.image, *([] if crop.shown is None else [crop.shown])], trajectory
            )
            if not proper(crop.bbox):
                raise wrong(
                    "calls.crops.bbox_2d",
                    f"the box {list(crop.bbox)} is empty or not finite",
                    "write [x0, y0, x1, y1]",
                )
        if not 0 <= call.span[0] <= call.span[1] <= tokens:
            raise wrong(
                "calls.span", f"{list(call.span)} lies outside the {tokens} tokens", "write [first, last+1]"
            )
    calls = len(trajectory.calls)
    for name, scores in (
        ("tool_scores", trajectory.tool_scores),
        ("call_advantages", trajectory.call_advantages),
    ):
        if len(scores) not in (0, calls):
            raise wrong(name, f"{len(scores)} entries for {calls} calls", "one per call, or none at all")


def _check_scores(trajectory: Trajectory) -> None:
    """Check that unknown values are null: NaN would count as a score, and JSON has no NaN."""
    reward = trajectory.reward
    for name, values in (
        ("reward", () if reward is None else (*_parts(reward), *reward.parts.values(), *reward.own.values())),
        ("tool_scores", trajectory.tool_scores),
        ("advantage", (trajectory.advantage,)),
        ("call_advantages", trajectory.call_advantages),
    ):
        for value in values:
            if value is not None and not math.isfinite(value):
                raise wrong(name, f"found {value}", "write null where nothing is known")


def _parts(reward: Reward) -> tuple[float | None, ...]:
    return reward.total, reward.accuracy, reward.format, reward.tool, reward.consistency


def _check_images(column: str, indices: Sequence[int], trajectory: Trajectory) -> None:
    for index in indices:
        if not 0 <= index < len(trajectory.images):
            raise wrong(
                column,
                f"points to image {index} of {len(trajectory.images)}",
                "count the pictures of `images` from 0",
            )
