"""A sample as a row of Parquet, and back.

The layout is that of V-Triune (figure 9) with four columns of ours: `tools`, `evidence`, `choices`
and `environment`.
The reader accepts more than the writer produces: `verifier_parm` as a struct, `images` as paths or plain
bytes, and the `reward_model{style, ground_truth}` of verl. A null member of a foreign struct means
"not given" and is dropped.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from vtune.files.json_text import check_depth, parse_json
from vtune.schema.fields import Fields, Row, mistyped, picture_to_row, pictures_from_row, wrong
from vtune.schema.message import IMAGE, Message, Role
from vtune.schema.sample import Evidence, Sample

SAMPLE_COLUMNS = pa.schema(
    [
        ("data_source", pa.string()),
        ("images", pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))),
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("ability", pa.string()),
        (
            "reward_model",
            pa.struct(
                [
                    ("answer", pa.string()),
                    ("ground_truth", pa.string()),
                    ("verifier", pa.string()),
                    ("verifier_parm", pa.string()),
                    ("accuracy_ratio", pa.float32()),
                    ("format_ratio", pa.float32()),
                    ("tool_ratio", pa.float32()),
                ]
            ),
        ),
        (
            "extra_info",
            pa.struct([("id", pa.string()), ("image_path", pa.string()), ("more_json", pa.string())]),
        ),
        ("tools", pa.list_(pa.string())),
        (
            "evidence",
            pa.list_(
                pa.struct(
                    [("label", pa.string()), ("image", pa.int32()), ("bbox_2d", pa.list_(pa.float64()))]
                )
            ),
        ),
        ("choices", pa.list_(pa.string())),
        ("environment", pa.string()),
    ]
)
"""One row per sample. `extra_info.more_json` contains the rest of `extra_info` as one JSON object."""

SAMPLE_NEEDS = ("data_source", "prompt", "reward_model")
"""Columns that every sample file must have."""


def sample_to_row(sample: Sample) -> Row:
    """The row of a sample.

    Raises:
        DataError: If the columns cannot represent the record: a picture without bytes and
            path, image indices that do not follow the `<image>` marks, values that JSON cannot represent.
    """
    shown = [index for message in sample.prompt for index in message.images]
    if shown and shown != list(range(len(sample.images))):
        raise wrong(
            "prompt",
            f"the messages show the images in the order {shown}",
            "a sample file keeps only the order of the marks: sort the images in that order",
        )
    more = dict(sample.extra)
    image_path = more.pop("image_path") if isinstance(more.get("image_path"), str) else None
    return scored_columns(sample) | {
        "images": [picture_to_row(picture) for picture in sample.images],
        "prompt": [{"role": message.role, "content": message.content} for message in sample.prompt],
        "extra_info": {
            "id": sample.id,
            "image_path": image_path,
            "more_json": _to_json("extra_info", more) if more else None,
        },
    }


def scored_columns(sample: Sample) -> Row:
    """The columns that scoring reads, besides the id, the question and the number of pictures.

    Raises:
        DataError: If the verifier's parameters contain values that JSON cannot represent.
    """
    return {
        "data_source": sample.source,
        "ability": sample.ability,
        "reward_model": {
            "answer": sample.answer,
            "ground_truth": sample.ground_truth,
            "verifier": sample.verifier,
            "verifier_parm": _to_json("reward_model.verifier_parm", sample.verifier_parm),
            "accuracy_ratio": sample.accuracy_ratio,
            "format_ratio": sample.format_ratio,
            "tool_ratio": sample.tool_ratio,
        },
        "tools": list(sample.tools),
        "evidence": [
            {"label": item.label, "image": item.image, "bbox_2d": list(item.bbox)} for item in sample.evidence
        ],
        "choices": list(sample.choices),
        "environment": sample.environment or None,
    }


def sample_from_row(row: Row, *, place: str, default_verifier: str | None = None) -> Sample:
    """The sample of a row.

    Args:
        row: Column -> value, as in Arrow.
        place: File and row, e.g. `train/17`: the id of a foreign row without an id.
        default_verifier: Judges rows that name no verifier (the layout of verl).

    Raises:
        DataError: Names the column and the remedy; also for anything that `Sample` itself refuses.
    """
    fields = Fields(row)
    source = fields.text("data_source")
    judge = fields.struct("reward_model")
    verifier = judge.text("verifier", default_verifier or "")
    if not verifier:
        raise wrong(
            "reward_model.verifier",
            "the row names no verifier (the layout of verl: style and ground_truth)",
            "import the file (`vtune data import verl`, `deepeyes`, `codev` …), or name one in each row",
        )
    extra: dict[str, Any] = _given(fields.struct("extra_info").values) if row.get("extra_info") else {}
    more = extra.pop("more_json", None)
    identity = extra.pop("id", None)
    if identity is None:
        identity = _foreign_id(source, extra, place)
    images = pictures_from_row(row.get("images"))
    return Sample(
        id=str(identity),
        source=source,
        prompt=_prompt(fields),
        images=images,
        ability=fields.text("ability", ""),
        ground_truth=judge.text("ground_truth"),
        answer=judge.text("answer", ""),
        verifier=verifier,
        verifier_parm=_verifier_parm(judge.values.get("verifier_parm")),
        accuracy_ratio=as_typed(judge.number("accuracy_ratio", 1.0)),
        format_ratio=as_typed(judge.number("format_ratio", 0.0)),
        tool_ratio=as_typed(judge.number("tool_ratio", 0.0)),
        tools=fields.texts("tools"),
        environment=fields.text("environment", ""),
        evidence=tuple(
            Evidence(item.text("label", ""), item.integer("image", 0), item.box("bbox_2d"))
            for item in fields.structs("evidence")
        ),
        choices=fields.texts("choices"),
        extra=extra | (_from_json("extra_info.more_json", more) if more is not None else {}),
    )


def _prompt(fields: Fields) -> tuple[Message, ...]:
    """The messages; image indices follow the `<image>` marks in order."""
    messages, seen = [], 0
    for item in fields.structs("prompt"):
        content = item.text("content")
        marks = content.count(IMAGE)
        messages.append(Message(item.one_of("role", Role), content, tuple(range(seen, seen + marks))))
        seen += marks
    return tuple(messages)


def _verifier_parm(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if isinstance(value, dict):
        return {key: _given(item) for key, item in value.items() if item is not None}
    if isinstance(value, str):
        return _from_json("reward_model.verifier_parm", value)
    raise mistyped("reward_model.verifier_parm", value, "a JSON object")


def _given(value: Any) -> Any:
    """A value without null members of structs: all rows of a file share one struct type."""
    if isinstance(value, dict):
        return {key: _given(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_given(item) for item in value]
    return value


def _foreign_id(source: str, extra: Mapping[str, Any], place: str) -> str:
    """An id that is stable as long as the file is; verl numbers its rows by split and index."""
    if "index" in extra:
        return "/".join(
            str(part) for part in (source, extra.get("split"), extra["index"]) if part is not None
        )
    return place


def as_typed(value: float) -> float:
    """0.1 for the float32 closest to 0.1: ratios are typed by people, and shown to people."""
    short = float(str(np.float32(value)))
    return short if float(np.float32(value)) == value else value


def _to_json(column: str, value: Mapping[str, Any]) -> str:
    try:
        check_depth(value)
        return json.dumps(dict(value), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise wrong(column, f"JSON cannot carry the values: {error}", "keep plain values only") from None


def _from_json(column: str, text: Any) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except (TypeError, ValueError) as error:
        raise wrong(column, f"not JSON: {error}", 'write a JSON object, such as "{}"') from None
    if not isinstance(value, dict):
        raise mistyped(column, value, "a JSON object")
    return value
