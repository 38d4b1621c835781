"""V-Triune's rows (Orsta-Data-47k; figure 9), read and written.

Their `mathverify` judges reasoning, counting and OCR; here these are `math`, `counting` and `ocr`, chosen by
`ability`. Reasoning whose answer is words, such as `light blue`, or a date, a time or a range uses `exact`:
math-verify would read a product of letters, and compute 1:20 as 2:40. Their `detection` also judges
grounding. Ground-truth boxes are in 0-1000, written as Python literals in `<answer>`; here they are a JSON
list.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from vtune.data.formats import own, specimens
from vtune.data.formats.building import Found, Options, build_sample, each, given_id, others
from vtune.data.formats.judging import is_computed, known_verifier
from vtune.data.formats.reward_rows import is_verl, names_verifier
from vtune.data.formats.samples import refuse_own
from vtune.data.formats.source import Place, read_rows
from vtune.data.formats.table import FORMATS, Format, Writer
from vtune.data.formats.values import conversation, first, needed, picture_size, pictures, struct_of, text_of
from vtune.errors import DataError
from vtune.files.json_text import parse_json
from vtune.schema.box import proper
from vtune.schema.fields import Fields, Row, picture_to_row, wrong
from vtune.schema.sample import Sample
from vtune.schema.sample_row import as_typed, sample_from_row
from vtune.verifiers import counting, detection, exact, grounding, math, ocr, point_in_box
from vtune.verifiers import judge as judging
from vtune.verifiers.tags import closes

PUBLISHED_BOXES = detection.NAME
"""The only box verifier there; its name is also that of one of ours."""
BOXES = (detection.NAME, grounding.NAME)
RATIOS = ("iou_max_label_first", "iou_max_iou_first", "iou_completeness", "map", "map50", "map75")
"""Members of `det_reward_ratio`."""
_PARM = pa.struct(
    [
        ("det_verifier_normalized", pa.bool_()),
        ("det_reward_ratio", pa.struct([(name, pa.float32()) for name in RATIOS])),
    ]
)
VTRIUNE_COLUMNS = pa.schema(
    [
        ("data_source", pa.string()),
        ("images", pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))),
        ("prompt", pa.list_(pa.struct([("content", pa.string()), ("role", pa.string())]))),
        ("ability", pa.string()),
        (
            "reward_model",
            pa.struct(
                [
                    ("answer", pa.string()),
                    ("ground_truth", pa.string()),
                    ("accuracy_ratio", pa.float32()),
                    ("format_ratio", pa.float32()),
                    ("verifier", pa.string()),
                    ("verifier_parm", _PARM),
                ]
            ),
        ),
        (
            "extra_info",
            pa.struct([("id", pa.string()), ("image_path", pa.string()), (own.KEY, pa.string())]),
        ),
    ]
)
"""The published columns, with our packed member in `extra_info`."""
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_BOXED = re.compile(r"\\boxed\{(.*)\}", re.DOTALL)


def read_vtriune(path: Path, options: Options) -> Iterator[Found]:
    """Samples of V-Triune's files, one entry per row."""
    return each(read_rows(path), lambda row, place: vtriune_sample(row, place, options))


def vtriune_sample(row: Row, place: Place, options: Options) -> Sample:
    """The sample of a row.

    Raises:
        DataError: Names the column and the fix.
    """
    refuse_own(row)
    needed(row, "reward_model")
    judge = struct_of(row, "reward_model")
    weights = Fields(judge, "reward_model.")
    images = pictures("images", first(row, "images", "image"), options.base(place.file))
    turns = conversation(needed(row, "prompt"), len(images))
    truth = text_of("reward_model.ground_truth", needed(judge, "ground_truth", of="reward_model"))
    info = struct_of(row, "extra_info")
    packed = own.unpack(info)
    if packed is not None:
        kept = packed["reward_model"]
        same = _written_truth(kept["verifier"], kept["ground_truth"]) == truth
        shown = row | {"prompt": turns, "images": [picture_to_row(picture) for picture in images]}
        found = kept["ground_truth"] if same else _read_truth(kept["verifier"], truth)
        return sample_from_row(own.restore(shown, packed, found), place=place.id)
    ability = str(row.get("ability") or "")
    verifier = _verifier(judge, ability, truth, options)
    source = text_of("data_source", needed(row, "data_source"))
    parm = _parm(judge.get("verifier_parm"))
    if verifier in BOXES:
        if not images:
            raise wrong("images", "boxes without a picture", "drop the row")
        # Our files state what coordinates mean; theirs only say whether they are thousandths.
        if "space" not in parm:
            width, height = picture_size(images[0])
            space = "relative_1000" if parm.get("det_verifier_normalized") else "pixels"
            parm |= {"space": space, "width": width, "height": height}
    else:
        # Their prompts ask for \boxed{}, and equation 1 reads it.
        parm = {key: value for key, value in parm.items() if not key.startswith("det_")}
        parm |= {"answer_in": "boxed"} if judge.get("verifier") == "mathverify" else {}
    return build_sample(
        place,
        source=source,
        turns=turns,
        images=images,
        ability=ability,
        identity=given_id(info.get("id"), source),
        ground_truth=_read_truth(verifier, truth),
        answer=str(judge.get("answer") or ""),
        verifier=verifier,
        verifier_parm=parm,
        ratios=(weights.number("accuracy_ratio", 1.0), weights.number("format_ratio", 0.0), 0.0),
        extra=others(info, "id")
        | others(row, "data_source", "images", "image", "prompt", "ability", "reward_model", "extra_info"),
    )


def vtriune_row(sample: Sample, index: int) -> Row:
    """A sample as V-Triune's trainer and reward server read it.

    Args:
        sample: Its pictures hold their bytes.
        index: Row number.

    Raises:
        DataError: If its verifier has no counterpart there.
    """
    if sample.verifier in (judging.NAME, point_in_box.NAME):
        raise DataError(
            f"V-Triune has no verifier like `{sample.verifier}`",
            where=f"sample {sample.id!r}",
            fix="leave these samples out, or export them as verl",
        )
    boxes = sample.verifier in BOXES
    ratio = sample.verifier_parm.get("det_reward_ratio") or {}
    path = sample.extra.get("image_path")
    return {
        "data_source": sample.source,
        "images": [picture_to_row(picture) for picture in sample.images],
        "prompt": [{"content": turn.content, "role": turn.role} for turn in sample.prompt],
        "ability": sample.ability,
        "reward_model": {
            "answer": sample.answer,
            "ground_truth": _written_truth(sample.verifier, sample.ground_truth),
            "accuracy_ratio": sample.accuracy_ratio,
            "format_ratio": sample.format_ratio,
            "verifier": PUBLISHED_BOXES if boxes else "mathverify",
            "verifier_parm": {
                # Whether the server should divide the boxes of a reply, which it takes to be pixels.
                "det_verifier_normalized": bool(sample.verifier_parm.get("det_verifier_normalized"))
                if boxes
                else None,
                "det_reward_ratio": {name: ratio.get(name) for name in RATIOS},
            },
        },
        "extra_info": {
            "id": sample.id,
            "image_path": path if isinstance(path, str) else None,
            own.KEY: own.pack(sample),
        },
    }


def _verifier(judge: Mapping[str, Any], ability: str, truth: str, options: Options) -> str:
    name = judge.get("verifier")
    if not name:
        if options.verifier is None:
            raise wrong(
                "reward_model.verifier", "the row names no verifier", "import with --verifier, or as verl"
            )
        return options.verifier
    if name == "mathverify":
        lower = ability.lower()
        if "count" in lower or "ocr" in lower:
            return counting.NAME if "count" in lower else ocr.NAME
        text = _read_truth(math.NAME, truth)
        return exact.NAME if math.is_worded(text) or is_computed(text) else math.NAME
    if name == PUBLISHED_BOXES and "ground" in ability.lower():
        return grounding.NAME
    return known_verifier(str(name))


def _parm(value: Any) -> dict[str, Any]:
    """Options without the nulls that come from the shared struct type."""
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except ValueError as error:
            raise wrong(
                "reward_model.verifier_parm", f"not JSON: {error}", "correct or drop the row"
            ) from None
    if not isinstance(value, dict):
        return {}
    inner = {key: _parm(item) if isinstance(item, dict) else item for key, item in value.items()}
    given = {key: item for key, item in inner.items() if item is not None and item != {}}
    return {key: as_typed(item) if isinstance(item, float) else item for key, item in given.items()}


def _written_truth(verifier: str, truth: str) -> str:
    if verifier in BOXES:
        return f"<answer>\n{truth}\n</answer>"
    return truth if "\\boxed" in truth else f"\\boxed{{{truth}}}"


def _read_truth(verifier: str, truth: str) -> str:
    if verifier in BOXES:
        return json.dumps(parse_boxes(truth), ensure_ascii=False)
    boxed = _BOXED.fullmatch(truth.strip())
    return boxed[1] if boxed and closes(boxed[1]) else truth


def parse_boxes(text: str) -> list[Row]:
    """The boxes of a ground truth, `[{'bbox_2d': [x0, y0, x1, y1], 'label': 'cup'}, …]`, possibly in
    `<answer>`.

    Raises:
        DataError: If there are none, or one is not four finite numbers in ascending order.
    """
    inner = _ANSWER.search(text)
    content = (inner[1] if inner else text).strip()
    items = _literal(content)
    if isinstance(items, dict):
        items = [items]
    if not isinstance(items, list) or not items:
        raise wrong(
            "reward_model.ground_truth",
            f"not a list of boxes: {content[:60]!r}",
            "write [{'bbox_2d': [x0, y0, x1, y1], 'label': '…'}]",
        )
    return [_box(item) for item in items]


def _literal(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None


def _box(item: Any) -> Row:
    corners = item.get("bbox_2d") if isinstance(item, dict) else None
    sides = corners if isinstance(corners, list | tuple) else ()
    numbers = all(isinstance(n, int | float) and not isinstance(n, bool) for n in sides)
    if len(sides) != 4 or not numbers or not proper((sides[0], sides[1], sides[2], sides[3])):
        raise wrong(
            "reward_model.ground_truth", f"not a box: {item!r:.60}", "write bbox_2d as [x0, y0, x1, y1]"
        )
    return {"label": str(item.get("label") or ""), "bbox_2d": list(sides)}


FORMATS.add(
    "vtriune",
    Format(
        read_vtriune,
        "Parquet of V-Triune (Orsta-Data-47k)",
        aliases=("orsta",),
        # Rows that do not name a verifier.
        shares=lambda options: () if options.verifier is None else (is_verl,),
        looks=names_verifier,
        specimen=specimens.vtriune,
        writes=Writer(vtriune_row, VTRIUNE_COLUMNS),
    ),
)
