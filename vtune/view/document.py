"""One trajectory, or one sample, as a document of plain values, for pages and terminals."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vtune.errors import DataError
from vtune.files.json_text import parse_json
from vtune.reward.recipe import RIGHT
from vtune.schema.box import iou
from vtune.schema.message import Message, Picture
from vtune.schema.parquet import at_row, load_picture, read_row
from vtune.schema.pixels import Refused, check_head
from vtune.schema.sample import Sample
from vtune.schema.sample_row import sample_from_row
from vtune.schema.trajectory import Call, Trajectory
from vtune.schema.trajectory_row import trajectory_from_row
from vtune.verifiers.boxes import LabelledBox
from vtune.verifiers.drawn import answer_in_pixels, asks_for_boxes, truth_in_pixels
from vtune.view.place import Place, inside, step_of
from vtune.view.turns import parts_of, turns_of

LONGEST = 20_000
"""Characters of a text that are shown in full; a longer one shows only its beginning and end (ours)."""
END = 2_000
"""How many of them are for the end."""


def read_record(place: Place, file: Path, row: int) -> Trajectory | Sample:
    """The record in a row, with pictures as stored: `picture_bytes` loads those stored by name.

    Raises:
        DataError: If the row is not a record; names file and row.
    """
    values = read_row(file, row)
    try:
        if place.kind == "samples":
            return sample_from_row(values, place=f"{file.stem}/{row}", default_verifier=None)
        return trajectory_from_row(values)
    except DataError as error:
        raise at_row(file, row, error) from None


def picture_bytes(picture: Picture, file: Path, place: Place) -> bytes:
    """The encoded bytes of a record's picture.

    Raises:
        DataError: If there are none, or the picture's path leads out of the folder of its place.
    """
    if picture.data is None and picture.path is not None:
        try:
            inside(file.parent / picture.path, place.root)
        except ValueError:  # a NUL character
            raise DataError("no file has the name of this picture", where=str(file)) from None
    return load_picture(picture, file.parent)


def document_of(
    place: Place,
    file: Path,
    row: int,
    record: Trajectory | Sample,
    asked: Mapping[str, Any] | None,
    why_not_asked: str = "",
) -> dict[str, Any]:
    """The document of a record.

    Args:
        place: The place that it is from.
        file: The file that it is from.
        row: Its row in the file.
        record: The trajectory, or the sample.
        asked: The question of its sample (`question_of`); None if unknown.
        why_not_asked: Why it is unknown.

    Returns:
        `key`, `file`, `row`, `step`, `sample`, `source`, `pictures` (with `width` and `height`, or the
        `problem`), `boxes`, `turns`, `calls`, `reward`, and anything else that is known; None for what could
        not be measured. Long texts are cut, see `shortened`.
    """
    pictures = [_picture(one, file, place) for one in record.images]
    if isinstance(record, Sample):
        asked = question_of(record)
    head = {
        "key": f"{file.stem}/{row}",
        "file": os.path.relpath(file, place.root),
        "row": row,
        "step": step_of(file),
        "pictures": pictures,
        "boxes": _boxes(record, asked, pictures),
        "asked": asked,
        "why_not_asked": why_not_asked,
    }
    known = _of_sample(record) if isinstance(record, Sample) else _of_trajectory(record)
    return {name: shortened(value) for name, value in {**head, **known}.items()}


def question_of(sample: Sample) -> dict[str, Any]:
    """Facts about a sample that its trajectories lack; `verifier_parm` only if it asks for boxes."""
    return {
        "question": sample.question,
        "ground_truth": sample.ground_truth,
        "answer": sample.answer,
        "verifier": sample.verifier,
        "verifier_parm": dict(sample.verifier_parm) if asks_for_boxes(sample) else {},
        "ability": sample.ability,
        "choices": list(sample.choices),
        "tools": list(sample.tools),
        "evidence": [
            {"label": one.label, "picture": one.image, "box": list(one.bbox)} for one in sample.evidence
        ],
    }


def _boxes(
    record: Trajectory | Sample, asked: Mapping[str, Any] | None, pictures: list[dict[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
    """Boxes of the ground truth and of the answer, `truth` and `answer`, in pixels of the first picture.

    Those of the answer have `iou`, with the ground-truth box that they overlap most, and that box's label as
    `meets`; None if they overlap none. A point is a box of size zero; it has no IoU, and meets the box that
    it lies in. Lists are empty if the question does not ask for places, or none is known.
    """
    found: dict[str, list[dict[str, Any]]] = {"truth": [], "answer": []}
    if asked is None or not pictures or pictures[0]["problem"]:
        return found
    sample = Sample(
        id=record.id if isinstance(record, Sample) else record.sample_id,
        source=record.source,
        prompt=(Message("user", ""),),
        ground_truth=asked["ground_truth"],
        verifier=asked["verifier"],
        verifier_parm=asked["verifier_parm"],
    )
    if not asks_for_boxes(sample):
        return found
    size = pictures[0]["width"], pictures[0]["height"]
    truth = truth_in_pixels(sample, size)
    found["truth"] = [{"label": one.label, "box": list(one.box)} for one in truth]
    if isinstance(record, Trajectory):
        given = answer_in_pixels(record.reply, sample, size, record.images[0].seen)
        found["answer"] = [_answered(one, truth) for one in given]
    return found


def _answered(given: LabelledBox, truth: Sequence[LabelledBox]) -> dict[str, Any]:
    found = {"label": given.label, "box": list(given.box)}
    x, y, *end = given.box
    if [x, y] == end:
        hit = (one.label for one in truth if one.box[0] <= x <= one.box[2] and one.box[1] <= y <= one.box[3])
        return found | {"iou": None, "meets": next(hit, None)}
    overlap, meets = max(((iou(given.box, one.box), one.label) for one in truth), default=(0.0, ""))
    return found | {"iou": overlap, "meets": meets if overlap else None}


def shortened(value: Any) -> Any:
    """A nested value in which long texts keep only their beginning and end, and state how much is cut."""
    if isinstance(value, str) and len(value) > LONGEST:
        cut = len(value) - LONGEST
        return f"{value[: LONGEST - END]}\n[… {cut} characters are left out …]\n{value[-END:]}"
    if isinstance(value, Mapping):
        return {shortened(key): shortened(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shortened(item) for item in value]
    return value


def _of_sample(sample: Sample) -> dict[str, Any]:
    turns = [
        {"role": one.role, "by": "prompt", "parts": parts_of(one, "prompt"), "calls": []}
        for one in sample.prompt
    ]
    return {"sample": sample.id, "source": sample.source, "turns": turns, "calls": [], "reward": None}


def _of_trajectory(trajectory: Trajectory) -> dict[str, Any]:
    reward = trajectory.reward
    accuracy = None if reward is None else reward.accuracy
    return {
        "sample": trajectory.sample_id,
        "source": trajectory.source,
        "group": trajectory.group,
        "rollout": trajectory.rollout,
        "policy_version": trajectory.policy_version,
        "tokens": len(trajectory.token_ids) or None,
        "sampled": sum(trajectory.loss_mask) or None,
        "stop": trajectory.stop_reason,
        "answer": trajectory.answer,
        "right": None if accuracy is None else accuracy >= RIGHT,
        "needs_look": trajectory.needs_look,
        "sandbox": trajectory.sandbox,
        "outcome": None if trajectory.outcome is None else asdict(trajectory.outcome),
        "reward": None
        if reward is None
        else {
            "total": reward.total,
            "parts": {name: getattr(reward, name) for name in ("accuracy", "format", "tool", "consistency")}
            | dict(reward.own),
            "facts": dict(reward.parts),
            "why": reward.why,
        },
        "advantage": trajectory.advantage,
        "turns": turns_of(trajectory),
        "calls": [_call(trajectory, k, call) for k, call in enumerate(trajectory.calls)],
    }


def _call(trajectory: Trajectory, k: int, call: Call) -> dict[str, Any]:
    return {
        "tool": call.tool,
        "arguments": call.arguments,
        "code": _code(call),
        "status": call.status,
        "error": call.error,
        "output": call.output,
        "pictures": list(call.images),
        "crops": [
            {"picture": crop.image, "box": list(crop.bbox), "shown": crop.shown, "look": crop.look}
            for crop in call.crops
        ],
        "seconds": call.seconds,
        "flags": list(call.flags),
        "score": _at(trajectory.tool_scores, k),
        "advantage": _at(trajectory.call_advantages, k),
    }


def _at(values: tuple[float | None, ...], k: int) -> float | None:
    return values[k] if k < len(values) else None


def _code(call: Call) -> str | None:
    """The code of a call, if it ran any."""
    try:
        arguments = parse_json(call.arguments)
    except ValueError:
        return None  # shown unparsed
    code = arguments.get("code") if isinstance(arguments, dict) else None
    return code if isinstance(code, str) else None


def _picture(picture: Picture, file: Path, place: Place) -> dict[str, Any]:
    facts: dict[str, Any] = {"origin": picture.origin, "seen": picture.seen}
    try:
        head = check_head(picture_bytes(picture, file, place))
    except Refused as refused:
        return facts | {"width": None, "height": None, "problem": str(refused)}
    except DataError as error:
        return facts | {"width": None, "height": None, "problem": error.what}
    return facts | {"width": head.width, "height": head.height, "problem": ""}
