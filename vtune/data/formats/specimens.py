"""A few made-up rows of each published layout, to show what an import yields without the data.

Columns, prompts, system turns and answer forms are those of the data sets. To see what becomes of such rows,
run these through the import itself.
"""

import base64
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from vtune.data.vstar import CATEGORIES
from vtune.schema.fields import Row

SIZE = (200, 120)
TARGET = (20, 20, 70, 60)
"""Box of the object in every picture, xyxy."""


@dataclass(frozen=True, slots=True)
class Specimen:
    """Files of a layout, as given to an import."""

    path: Path
    images: Path | None = None
    """Folder of the pictures, if the layout keeps them apart."""
    columns: Path | None = None
    """The column map, if the layout needs one."""


def samples(folder: Path) -> Specimen:
    """Our own JSON lines: one with a box and code, as in a user's own data, and one without."""
    asked = {"data_source": "mine", "images": [picture_file(folder, 0)], "tools": ["python"]}
    box = {"label": "sign", "image": 0, "bbox_2d": list(TARGET)}
    rows = [
        asked
        | {"prompt": "What does the sign say?", "reward_model": _judge("Exit", "exact"), "evidence": [box]},
        asked
        | {"prompt": "How many signs are there?", "reward_model": _judge("3", "counting"), "evidence": [box]},
    ]
    return Specimen(json_lines(folder / "mine.jsonl", rows))


FIGURE_8 = """<image>
Please detect all instances of the following category within the image:
cup.

Let's think step by step and output the final answer in <answer> and </answer> tags.
For example:
Your detailed reasoning process here.
<answer>
[{'bbox_2d': [x1,y1,x2,y2], 'label': label_name}]
</answer>
"""
"""V-Triune, figure 8. It does not mention the think tags that its equation 2 counts."""


def vtriune(folder: Path) -> Specimen:
    """Orsta-Data-47k: maths, counting and OCR judged by math-verify, detection and grounding by boxes."""
    boxes = "<answer>\n[{'bbox_2d': [100, 160, 350, 500], 'label': 'cup'}]\n</answer>"
    plain = {
        "math": "\\frac{4}{3}",
        "puzzle": "12",
        "science": "0.5",
        "chart": "1984",
        "counting": "3",
        "ocr": "NO 7",
    }
    rows = [
        _vtriune(
            folder, number, ability, f"<image>\nWhat is the number of picture {number}?", truth, boxes=False
        )
        for number, (ability, truth) in enumerate(plain.items())
    ]
    rows += [
        _vtriune(folder, number, ability, FIGURE_8, boxes, boxes=True)
        for number, ability in enumerate(("cv_detection", "cv_grounding"), start=len(plain))
    ]
    return Specimen(json_lines(folder / "orsta.jsonl", rows))


def _vtriune(folder: Path, number: int, ability: str, text: str, truth: str, *, boxes: bool) -> Row:
    ratio: dict[str, float | None] = dict.fromkeys(
        ("iou_max_label_first", "iou_max_iou_first", "iou_completeness", "map", "map50", "map75"),
        0.0 if boxes else None,
    )
    if boxes:
        ratio |= {"iou_max_label_first": 1.0, "iou_completeness": 0.3}
    return {
        "data_source": "orsta",
        "images": [picture_file(folder, number)],
        "prompt": _user(text),
        "ability": ability,
        "reward_model": {
            "answer": "" if boxes else truth,
            "ground_truth": truth if boxes else f"\\boxed{{{truth}}}",
            "accuracy_ratio": 1.0,
            "format_ratio": 0.1 if boxes else 0.0,
            "verifier": "detection" if boxes else "mathverify",
            "verifier_parm": {"det_verifier_normalized": boxes or None, "det_reward_ratio": ratio},
        },
        "extra_info": {"id": f"row-{number}", "image_path": f"images/{number}.jpg"},
    }


def verl(folder: Path) -> Specimen:
    """Geometry3K as verl and EasyR1 prepare it."""
    rows = [
        _verl(folder, 0, "hiyouga/geometry3k", _user("<image>Find x."), "2 \\sqrt{221}", "rule"),
        _verl(folder, 1, "hiyouga/geometry3k", _user("<image>Which?\n(A) red\n(B) blue"), "B", "rule"),
    ]
    return Specimen(json_lines(folder / "train.jsonl", rows))


def _verl(
    folder: Path, number: int, source: str, prompt: list[Row], truth: str, style: str, **more: Any
) -> Row:
    return {
        "data_source": source,
        "prompt": prompt,
        "images": [picture_file(folder, number)],
        "ability": "vl",
        "reward_model": {"style": style, "ground_truth": truth},
        "extra_info": {
            "split": "train",
            "index": str(number),
            "answer": truth,
            "question": prompt[-1]["content"],
        },
        **more,
    }


DEEPEYES_SYSTEM = """You are a helpful assistant.

# Tools
You may call one or more functions to assist with the user query.
You are provided with function signatures within <tools></tools> XML tags:
<tools>
{"type":"function","function":{"name":"image_zoom_in_tool"}}
</tools>"""
"""DeepEyes-Datasets-47k, its SYSTEM_PROMPT_V2, without the schema."""
DEEPEYES_USER = (
    "\nThink first, call **image_zoom_in_tool** if needed, then answer. Format strictly as:  "
    "<think>...</think>  <tool_call>...</tool_call> (if tools needed)  <answer>...</answer> "
)
"""Its USER_PROMPT_V2."""


def deepeyes(folder: Path) -> Specimen:
    """DeepEyes-Datasets-47k: V* and chart rows with the zoom tool, and ThinkLite rows without a tool."""

    def zooming(number: int, source: str, text: str, truth: str) -> Row:
        turns = [{"role": "system", "content": DEEPEYES_SYSTEM}, *_user(f"<image>\n{text}{DEEPEYES_USER}")]
        return _verl(folder, number, source, turns, truth, "model", env_name="visual_toolbox_v2")

    reasoning = (
        "Put your thoughts in <think> </think> tags and the final answer in \\boxed{}.\nQuestion:\nFind x."
    )
    turns = [{"role": "system", "content": "You are a helpful assistant."}, *_user(f"<image>\n{reasoning}")]
    rows = [
        zooming(0, "vstar", "What is the colour of the glove?", "The glove is blue."),
        zooming(1, "vstar", "Where is the glove?\nA. left\nB. right", "B"),
        zooming(2, "chart", "Which year has the highest bar?", "1999"),
        _verl(folder, 3, "thinklite_eureka", turns, "5", "rule", env_name=None),
    ]
    return Specimen(json_lines(folder / "deepeyes.jsonl", rows))


def codev(folder: Path) -> Specimen:
    """CodeV's own RL data: `env_name` code."""
    turns = _user("<image>\nWhat does the sign say?")
    rows = [
        _verl(folder, number, source, turns, f"To hall {number}", "model", env_name="code")
        for number, source in enumerate(("vstar", "high_res"))
    ]
    return Specimen(json_lines(folder / "codev.jsonl", rows))


def thinklite(folder: Path) -> Specimen:
    """ThinkLite-VL: a number, a letter."""
    rows = [
        {
            "image": picture_file(folder, 0),
            "problem": "<image>What is the area?",
            "answer": "12.5",
            "id": "GeoQA_0",
        },
        {
            "image": picture_file(folder, 1),
            "problem": "<image>Which?\nA. red\nB. blue",
            "answer": "A",
            "id": "IconQA_1",
        },
    ]
    return Specimen(json_lines(folder / "ThinkLite-VL-70k.jsonl", rows))


def easyr1(folder: Path) -> Specimen:
    """EasyR1's Geometry3K, and VisualProbe with an answer in words."""
    rows = [
        {"problem": "<image>How long is it?", "images": [picture_file(folder, 0)], "answer": "3\\pi"},
        {"problem": "<image>What colour is it?", "images": [picture_file(folder, 1)], "answer": "red"},
    ]
    return Specimen(json_lines(folder / "geometry3k.jsonl", rows))


MARS = {
    "fvqa_train": "llm_score",
    "deepeyes_4k_train_non_mcq": "llm_score",
    "visual_probe_train": "llm_score",
    "deepeyes_4k_train_mcq": "em_score_mcq",
}
"""Subset in the published meta file -> how its answers are scored."""


def mars(folder: Path) -> Specimen:
    """SenseNova-MARS: its meta file and the four subsets, with cached image search."""
    cached = {
        "image_search_title_list": ["Bridge", "Tower"],
        "image_search_thumbnail_list": ["t/0.jpg", "t/1.jpg"],
        "image_search_summary": "A bridge.",
    }
    meta = {}
    for number, (name, score) in enumerate(MARS.items()):
        pick = score == "em_score_mcq"
        question = "Which?\n(A) red\n(B) blue" if pick else "Who designed it?"
        truth = "A" if pick else ["Gustave Eiffel", "G. Eiffel"]
        row = {
            "prompt": _user(f"<image>{question}"),
            "image": [picture_file(folder, number)],
            "index": number,
            "reward_model": {"ground_truth": truth},
        }
        json_lines(folder / f"{name}.jsonl", [row | cached])
        meta[name] = {"root": ".", "annotation": f"{name}.jsonl", "reward_fn": [score, "format_score"]}
    file = folder / "train_qwen3_vl_8b.json"
    file.write_text(json.dumps(meta), encoding="utf-8")
    return Specimen(file)


def mmsearch(folder: Path) -> Specimen:
    """MMSearch-R1 (FVQA): several right answers."""
    judge = {"candidate_answers": '["AFC Ajax", "Ajax"]', "ground_truth": "Ajax", "style": "rule"}
    row = {
        "data_source": "mmsearch_r1/fvqa_train",
        "prompt": _user("<image>Which team plays here?"),
        "images": [picture_file(folder, 0)],
        "ability": "direct_answer",
        "reward_model": judge,
        "data_id": "fvqa_0",
    }
    return Specimen(json_lines(folder / "fvqa.jsonl", [row]))


def coco(folder: Path) -> Specimen:
    """COCO's instances: two photographs, with a thing that appears once and one that appears twice."""
    boxes = [(1, 1, TARGET), (1, 1, (100, 20, 150, 60)), (1, 2, (150, 70, 190, 110)), (2, 3, TARGET)]
    return annotated(folder / "instances.json", ("a.jpg", "b.jpg"), ("cat", "dog", "cup"), boxes, folder)


def v3det(folder: Path) -> Specimen:
    """V3Det: photographs by category in a folder of folders."""
    name = "images/n07745046/21_371.jpg"
    return annotated(folder / "v3det_2023_v1_train.json", (name,), ("timer",), [(1, 1, TARGET)], folder)


def objects365(folder: Path) -> Specimen:
    """Objects365: photographs in patches."""
    name = "images/v1/patch8/objects365_v1_00420916.jpg"
    return annotated(folder / "zhiyuan_objv2_train.json", (name,), ("Person",), [(1, 1, TARGET)], folder)


def annotated(
    file: Path,
    names: Sequence[str],
    categories: Sequence[str],
    boxes: Sequence[tuple[int, int, Any]],
    images: Path,
) -> Specimen:
    """Annotations in COCO's layout; a box is (photograph's number, category's number, xyxy), from 1."""
    for number, name in enumerate(names):
        (images / name).parent.mkdir(parents=True, exist_ok=True)
        (images / name).write_bytes(encoded_picture(number))
    things = [
        {
            "id": number,
            "image_id": photo,
            "category_id": kind,
            "bbox": [x0, y0, x1 - x0, y1 - y0],
            "iscrowd": 0,
        }
        for number, (photo, kind, (x0, y0, x1, y1)) in enumerate(boxes, start=1)
    ]
    photos = [
        {"id": number, "file_name": name, "width": SIZE[0], "height": SIZE[1]}
        for number, name in enumerate(names, start=1)
    ]
    kinds = [{"id": number, "name": name} for number, name in enumerate(categories, start=1)]
    file.write_text(
        json.dumps({"images": photos, "categories": kinds, "annotations": things}), encoding="utf-8"
    )
    return Specimen(file, images)


def vstar(folder: Path) -> Specimen:
    """V*: a picture and its annotation for each category; the first option is right."""
    for number, category in enumerate(CATEGORIES):
        here = folder / "vstar_bench" / category
        here.mkdir(parents=True)
        (here / f"sa_{number:04d}.jpg").write_bytes(encoded_picture(number))
        x0, y0, x1, y1 = TARGET
        note = {
            "target_object": ["sign"],
            "bbox": [[x0, y0, x1 - x0, y1 - y0]],
            "question": "What is the colour of the sign?",
            "options": ["red", "green", "blue", "yellow"],
        }
        (here / f"sa_{number:04d}.json").write_text(json.dumps(note), encoding="utf-8")
    return Specimen(folder / "vstar_bench")


def _judge(truth: str, verifier: str) -> Row:
    return {"ground_truth": truth, "verifier": verifier}


def _user(text: str) -> list[Row]:
    return [{"role": "user", "content": text}]


def json_lines(file: Path, rows: Sequence[Row]) -> Path:
    """Write one row per line; return the file."""
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return file


def picture_file(folder: Path, number: int) -> str:
    """Write the picture into the folder; return its name."""
    name = f"{number}.jpg"
    (folder / name).write_bytes(encoded_picture(number))
    return name


def coded(number: int) -> str:
    """The picture with this number, in base64."""
    return base64.b64encode(encoded_picture(number)).decode()


def encoded_picture(number: int) -> bytes:
    """A different picture for each number."""
    image = Image.new("RGB", SIZE, (90 + number, 90, 90))
    ImageDraw.Draw(image).rectangle(TARGET, fill="white")
    out = io.BytesIO()
    image.save(out, "JPEG")
    return out.getvalue()
