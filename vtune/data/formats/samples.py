"""Samples as JSON lines: the columns of a sample file, one object per line, with pictures in base64.

Sample files round-trip unchanged. Hand-written lines may omit what has a default, give pictures as paths and
`prompt` as a text.
"""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vtune.data.formats import specimens
from vtune.data.formats.building import Found, Options, each, judged, own_id
from vtune.data.formats.reward_rows import ADDED, is_own, is_verl, names_verifier
from vtune.data.formats.source import Place, read_rows
from vtune.data.formats.table import FORMATS, Format, Writer
from vtune.data.formats.values import conversation, json_object, needed, pictures, struct_of, text_of
from vtune.errors import nearest
from vtune.schema.fields import Fields, Row, picture_to_row, wrong
from vtune.schema.parquet import scan_samples
from vtune.schema.sample import Sample
from vtune.schema.sample_row import SAMPLE_COLUMNS, sample_from_row, sample_to_row

NAME = "samples"

_JUDGE = (
    "answer",
    "ground_truth",
    "verifier",
    "verifier_parm",
    "accuracy_ratio",
    "format_ratio",
    "tool_ratio",
    "style",
)
_EVIDENCE = ("label", "image", "bbox_2d")
_RESERVED = ("id", "more_json")
"""Members of `extra_info` with a meaning; a sample's own fields of these names go into `more_json`."""


def read_own(path: Path, options: Options) -> Iterator[Found]:
    """Samples of files in our own layout, one entry per row."""
    return each(read_rows(path), lambda row, place: own_sample(row, place, options))


def own_sample(row: Row, place: Place, options: Options) -> Sample:
    """The sample of a row. A row that names no verifier gets the one that suits its answer.

    Raises:
        DataError: Names the column and the fix; also raised for a column that our layout does not have.
    """
    _check_names(row, SAMPLE_COLUMNS.names, "", "other values of a row go into `extra_info`")
    judge, info = struct_of(row, "reward_model"), struct_of(row, "extra_info")
    _check_names(judge, _JUDGE, "reward_model.", "options of the verifier go into `verifier_parm`")
    for entry in Fields(row).structs("evidence"):
        _check_names(entry.values, _EVIDENCE, "evidence.", "boxes are xyxy in pixels of the stored picture")
    source = text_of("data_source", needed(row, "data_source"))
    images = pictures("images", _encoded(row.get("images")), options.base(place.file))
    turns = conversation(needed(row, "prompt"), len(images))
    identity = info.get("id")
    found = {
        **row,
        **_judgement(row, judge, turns, options),
        "data_source": source,
        "images": [picture_to_row(picture) for picture in images],
        "prompt": turns,
        "extra_info": {
            "id": own_id(source, place) if identity is None else text_of("extra_info.id", identity),
            "more_json": _more(info),
        },
    }
    return sample_from_row(found, place=place.id)


def own_line(sample: Sample, index: int) -> Row:
    """A sample as the object of a line.

    Args:
        sample: Its pictures hold their bytes.
        index: Row number; no column stores it.

    Raises:
        DataError: If the sample cannot be stored.
    """
    row = sample_to_row(sample)
    reserved = {key: value for key, value in sample.extra.items() if _is_reserved(key, value)}
    plain = {key: value for key, value in sample.extra.items() if key not in reserved}
    return row | {
        "images": [
            {"bytes": base64.b64encode(picture.data or b"").decode("ascii"), "path": picture.path}
            for picture in sample.images
        ],
        "reward_model": row["reward_model"] | {"verifier_parm": dict(sample.verifier_parm)},
        "extra_info": {"id": sample.id, **plain}
        | ({"more_json": json.dumps(reserved, ensure_ascii=False)} if reserved else {}),
    }


def refuse_own(row: Row) -> None:
    """Check that a row of a published layout has none of our own columns, which its reader would drop.

    Raises:
        DataError: Names the column.
    """
    held = next((name for name in ADDED if row.get(name)), None)
    if held is not None:
        raise wrong(held, "this is a column of our own layout", "import the file as `samples`")


def _judgement(row: Row, judge: Mapping[str, Any], turns: Sequence[Row], options: Options) -> Row:
    """The columns `reward_model` and `choices`."""
    truth, named = needed(judge, "ground_truth"), judge.get("verifier")
    choices = Fields(row).texts("choices")
    found: dict[str, Any] = {}
    if named is None or not isinstance(truth, str):
        found = judged(
            next((turn["content"] for turn in reversed(turns) if turn["role"] == "user"), ""),
            truth,
            options if named is None else replace(options, verifier=named),
            column="reward_model.ground_truth",
            choices=choices or None,
            model=judge.get("style") == "model",
        )
    listed = found.pop("choices", ())
    parm = json_object("reward_model.verifier_parm", judge.get("verifier_parm")) | found.pop(
        "verifier_parm", {}
    )
    return {
        "choices": list(choices or listed),
        "reward_model": {**judge, **found, "verifier_parm": json.dumps(parm)},
    }


def _more(info: Mapping[str, Any]) -> str:
    """Everything in `extra_info` except the id, as the single object that a sample keeps."""
    plain = {key: value for key, value in info.items() if not _is_reserved(key, value)}
    return json.dumps(plain | json_object("extra_info.more_json", info.get("more_json")))


def _is_reserved(key: str, value: Any) -> bool:
    # In Parquet the path is a separate column, in which null means none.
    return key in _RESERVED or (key == "image_path" and value is None)


def _encoded(value: Any) -> Any:
    """Pictures whose `bytes` are in base64, decoded; all others as they are."""
    items = value if isinstance(value, list) else [] if value is None else [value]
    found = []
    for item in items:
        data = item.get("bytes") if isinstance(item, Mapping) else None
        if isinstance(data, str):
            try:
                item = {**item, "bytes": base64.b64decode(data, validate=True)}
            except (binascii.Error, ValueError):
                raise wrong("images.bytes", "not base64", "encode the file's bytes, or give a path") from None
        found.append(item)
    return found


def _check_names(row: Mapping[str, Any], known: Sequence[str], prefix: str, rule: str) -> None:
    for name in row:
        if name not in known:
            raise wrong(f"{prefix}{name}", "our layout has no such column", f"{nearest(name, known)}; {rule}")


FORMATS.add(
    NAME,
    Format(
        read_own,
        "JSON lines of our own layout",
        shares=lambda options: (names_verifier, is_verl),  # lines without our own columns
        looks=is_own,
        specimen=specimens.samples,
        writes=Writer(own_line),
        offers_tools=True,
        scan=scan_samples,  # suites store samples as Parquet
    ),
)
