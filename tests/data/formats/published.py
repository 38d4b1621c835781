"""Small files in the layout of published data sets, each with one invalid row."""

import base64
import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tests.data.benchmarks import hrbench_rows, make_vstar, picture, write_tsv
from tests.data.formats import published_search
from vtune.data.formats.building import Options
from vtune.data.formats.table import FORMATS

SIZE = (80, 60)


def jpeg(number: int, size: tuple[int, int] = SIZE) -> bytes:
    return picture(number, size, (10, 10, 20, 20))


def coded(number: int) -> str:
    return base64.b64encode(jpeg(number)).decode()


def as_image(number: int) -> list[dict[str, Any]]:
    return [{"bytes": jpeg(number), "path": None}]


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), str(path))
    return path


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


NONE = Options()


@dataclass(frozen=True)
class Published:
    """The files of a fixture, and the expected result of importing them."""

    paths: list[Path]
    verifiers: dict[str, int]
    odd: dict[str, str]
    """"file, row" of what must be skipped -> a word of the reason."""
    options: Options = NONE
    sources: tuple[str, ...] = ()


def vtriune(folder: Path) -> Published:
    ratio = dict.fromkeys(
        ("iou_max_label_first", "iou_max_iou_first", "iou_completeness", "map", "map50", "map75")
    )

    def row(number: int, ability: str, text: str, truth: str, *, boxes: bool = False) -> dict[str, Any]:
        given = {"iou_max_label_first": 1.0, "iou_max_iou_first": 0.0, "iou_completeness": 0.3}
        parm = {
            "det_verifier_normalized": True if boxes else None,
            "det_reward_ratio": ratio | given | {"map": 0.0, "map50": 0.0, "map75": 0.0} if boxes else ratio,
        }
        return {
            "data_source": "v3det_train" if boxes else "mm_math",
            "images": as_image(number),
            "prompt": [{"content": text, "role": "user"}],
            "ability": ability,
            "reward_model": {
                "answer": "" if boxes else truth,
                "ground_truth": truth,
                "accuracy_ratio": 1.0,
                "format_ratio": 0.1 if boxes else 0.0,
                "verifier": "detection" if boxes else "mathverify",
                "verifier_parm": parm,
            },
            "extra_info": {
                "id": None if number == 1 else f"row-{number}",
                "image_path": f"images/{number}.jpg",
            },
        }

    box = "<answer>\n[{'bbox_2d': [12, 40, 510, 600], 'label': \"cat's tail\"}]\n</answer>"
    two = "<answer>\n[{'bbox_2d': [1, 2, 30, 40], 'label': 'cup'}, "
    two += "{'bbox_2d': [500, 2, 730, 400], 'label': 'cup'}]\n</answer>"
    rows = [
        row(0, "math", "<image>\nHow long is AB? Put it in \\boxed{}.", "\\boxed{\\frac{4}{3}}"),
        row(1, "counting", "<image>How many signs? Put it in \\boxed{}.", "\\boxed{3}"),
        row(2, "cv_detection", "<image>\nDetect cups.", two, boxes=True),
        row(3, "cv_grounding", "<image>\nWhere is the cat's tail?", box, boxes=True),
        row(
            4,
            "cv_detection",
            "<image>\nDetect cups.",
            "<answer>\n[{'bbox_2d': [9, 9, 3, 3]}]\n</answer>",
            boxes=True,
        ),
        row(5, "ocr", "<image>What number is written? Put it in \\boxed{}.", "\\boxed{1984}"),
    ]
    file = parquet(folder / "train" / "train_mixed_6.parquet", rows)
    return Published(
        [folder],
        {"math": 1, "counting": 1, "detection": 1, "grounding": 1, "ocr": 1},
        {f"{file}, row 4": "not a box"},
        sources=("mm_math", "v3det_train"),
    )


def verl(folder: Path) -> Published:
    def row(number: int, text: str, truth: str, style: str = "rule") -> dict[str, Any]:
        return {
            "data_source": "hiyouga/geometry3k",
            "prompt": user(text),
            "images": as_image(number),
            "ability": "math",
            "reward_model": {"style": style, "ground_truth": truth},
            "extra_info": {"split": "train", "index": number, "answer": "see text", "question": text},
        }

    rows = [
        row(0, "<image>Find x.", "2 \\sqrt { 221 }"),
        row(1, "<image>Which?\n(A) red\n(B) blue", "(B)"),
        row(2, "<image>Who painted it?", "Vermeer", "model"),
        row(3, "<image> <image> Compare.", "4"),
    ]
    return Published(
        [parquet(folder / "train.parquet", rows)],
        {"math": 1, "choice": 1, "judge": 1},
        {f"{folder / 'train.parquet'}, row 3": "2 <image> mark(s) for 1"},
        sources=("hiyouga/geometry3k",),
    )


DEEPEYES_SYSTEM = """You are a helpful assistant.

# Tools
You may call one or more functions to assist with the user query.
You are provided with function signatures within <tools></tools> XML tags:
<tools>
{"type":"function","function":{"name":"image_zoom_in_tool"}}
</tools>"""
"""DeepEyes' SYSTEM_PROMPT_V2, shortened."""
DEEPEYES_USER = (
    "\nThink first, call **image_zoom_in_tool** if needed, then answer. Format strictly as:  "
    "<think>...</think>  <tool_call>...</tool_call> (if tools needed)  <answer>...</answer> "
)
"""DeepEyes' USER_PROMPT_V2."""


def deepeyes(folder: Path) -> Published:
    def row(source: str, number: int, environment: str | None, text: str, truth: str) -> dict[str, Any]:
        return {
            "data_source": source,
            "prompt": [
                {"role": "system", "content": DEEPEYES_SYSTEM},
                {"role": "user", "content": f"<image>\n{text}{DEEPEYES_USER if environment else ''}"},
            ],
            "images": as_image(number),
            "ability": "vl_chart",
            "env_name": environment,
            "reward_model": {"style": "model", "ground_truth": truth},
            "extra_info": {"index": str(number), "answer": truth, "question": text, "split": "train"},
        }

    zoom = "visual_toolbox_v2"
    vstar = [
        row("vstar", 0, zoom, "What colour is the glove?", "The glove is blue."),
        row("vstar", 1, zoom, "Which?\nA. red\nB. blue", "B"),
        row("vstar", 2, "browser", "Which?", "B"),
    ]
    chart = [row("chart", 0, zoom, "Which year?", "1999") | {"rationale": "The tallest bar."}]
    lite = [row("thinklite_eureka", 0, None, "Find x.", "5")]
    lite[0]["reward_model"]["style"] = "rule"
    files = [
        parquet(folder / name, rows)
        for name, rows in (
            ("data_0.1.2_visual_toolbox_v2.parquet", vstar),
            ("data_v0.8_visual_toolbox_v2.parquet", chart),
            ("data_thinklite_reasoning_acc.parquet", lite),
        )
    ]
    return Published(
        [folder],
        {"judge": 1, "choice": 1, "math": 2},
        {f"{files[0]}, row 2": "unknown environment"},
        sources=("vstar", "chart", "thinklite_eureka"),
    )


def codev(folder: Path) -> Published:
    def row(number: int, environment: str = "code") -> dict[str, Any]:
        return {
            "data_source": "high_res",
            "prompt": user("<image>\nWhat does the sign say?"),
            "images": [jpeg(number)],
            "env_name": environment,
            "ability": None,
            "reward_model": {"style": "model", "ground_truth": f"Exit towards hall {number}"},
            "extra_info": {
                "index": number,
                "question": "What does the sign say?",
                "image_file_name": f"{number}.jpg",
                "image_file_path": f"/data/{number}.jpg",
                "image_size": list(SIZE),
            },
        }

    file = parquet(folder / "codev_rl.parquet", [row(0), row(1, "visual_toolbox_v2"), row(2)])
    return Published([file], {"judge": 2}, {f"{file}, row 1": "read by the format `deepeyes`"})


def thinklite(folder: Path) -> Published:
    rows = [
        {"image": jpeg(0), "problem": "<image>What is the area?", "answer": "12.5"},
        {"image": jpeg(1), "problem": "Which?\nA. red\nB. blue", "answer": "A"},
        {"image": jpeg(2)[:40], "problem": "What is the area?", "answer": "12.5"},
    ]
    file = parquet(folder / "ThinkLite-VL-hard-11k.parquet", rows)
    return Published(
        [file], {"math": 1, "choice": 1}, {f"{file}, row 2": "cannot be opened"}, sources=("thinklite",)
    )


THYME_RESPONSE = (
    "<think>I cut it out.\n<code>\n```python\nimage.crop((1, 2, 30, 40)).save('a.jpg')\n```\n</code>"
    "\n<sandbox_output><image></sandbox_output>\nOnce more.\n<code>\n```python\nprint(1/0)\n```\n</code>\n"
    "<sandbox_output>ZeroDivisionError: division by zero</sandbox_output>\nEnough.</think>\n"
    "<answer>7</answer>"
)


def thyme(folder: Path) -> Published:
    rows = [
        {"image": [coded(0), coded(1)], "question": "<image>\nWhich number?", "response": THYME_RESPONSE},
        {"image": [coded(2)], "question": "Which?", "response": "<think>Red.</think>\n<answer>A</answer>"},
        {"image": [coded(0)], "question": "<image>\nWhich number?", "response": THYME_RESPONSE},
    ]
    file = parquet(folder / "2round.parquet", rows)
    for number in range(2):
        (folder / f"00000001_{number:02d}.jpg").write_bytes(jpeg(number))
    converted = {
        "image": ["00000001_00.jpg", "00000001_01.jpg"],
        "question": "<image>\nWhich number?",
        "response": THYME_RESPONSE,
    }
    return Published(
        [file, lines(folder / "converted.jsonl", [converted])],
        {},
        {f"{file}, row 2": "1 pictures for 2 <image> mark(s)"},
        sources=("thyme",),
    )


def conversations(folder: Path) -> Published:
    """The layouts of ms-swift's guide to custom data sets, LLaMA-Factory's multimodal ShareGPT, and TRL."""
    for number in range(2):
        (folder / f"{number}.jpg").write_bytes(jpeg(number))
    box = {"name": "image_zoom_in_tool", "arguments": {"bbox_2d": [2, 2, 20, 20]}}
    end = "<think>Seven.</think>\n<answer>7</answer>"
    shown = ["0.jpg", "1.jpg"]
    swift = [("user", "<image>Which?"), ("tool_call", json.dumps(box)), ("tool_response", "<image>")]
    sharegpt = [("human", "Which?"), ("gpt", "<code>x</code>"), ("observation", "7"), ("gpt", end)]
    chat = [("user", "<image>Which?"), ("assistant", "No more."), ("user", "Sure?"), ("assistant", end)]
    file = folder / "swift.jsonl"
    return Published(
        [
            lines(
                file,
                [
                    {"messages": turns_of([*swift, ("assistant", end)]), "images": shown, "id": "one"},
                    {"messages": turns_of(chat), "images": shown[:1]},
                    {"messages": turns_of([*swift, ("assistant", end)]), "images": shown[:1]},
                ],
            ),
            parquet(
                folder / "sharegpt.parquet",
                [
                    {
                        "conversations": [{"from": who, "value": said} for who, said in sharegpt],
                        "images": as_image(0),
                    }
                ],
            ),
        ],
        {},
        {
            f"{file}, row 1": "neither ends with </code> nor has a <tool_call>",
            f"{file}, row 2": "1 pictures for 2 <image> mark(s)",
        },
        sources=("conversations",),
    )


def turns_of(said: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Turns as {role, content}."""
    return [{"role": who, "content": text} for who, text in said]


def easyr1(folder: Path) -> Published:
    rows = [
        {"problem": "<image>How long is it?", "images": as_image(0), "answer": "3\\pi"},
        {"problem": "What is it called?", "images": as_image(1), "answer": "Pont Neuf"},
    ]
    (folder / "probe.jpg").write_bytes(jpeg(2))
    probe = [
        {"problem": "<image>\nWhat colour?", "images": ["probe.jpg"], "solution": "red", "doc_id": 7},
        {"problem": "<image>\nWhat colour?", "images": ["gone.jpg"], "solution": "red", "doc_id": 8},
    ]
    val = folder / "val.json"
    val.write_text(json.dumps(probe))
    return Published(
        [parquet(folder / "geometry3k@train.parquet", rows), val],
        {"math": 1, "exact": 2},
        {f"{val}, row 1": "no picture at"},
        sources=("geometry3k@train", "val"),
    )


def mars(folder: Path) -> Published:
    (folder / "images").mkdir(parents=True)
    (folder / "images" / "0.jpg").write_bytes(jpeg(0))
    ask = {
        "prompt": user("<image>Who designed this bridge?"),
        "image": ["0.jpg"],
        "reward_model": {"ground_truth": ["Gustave Eiffel", "G. Eiffel"]},
        "index": 3,
        "image_search_title_list": ["Bridge", "Tower"],
        "image_search_thumbnail_list": ["t/0.jpg", "t/1.jpg"],
        "image_search_summary": "A bridge.",
    }
    pick = {
        "prompt": user("<image>Which?\n(A) red\n(B) blue"),
        "image": ["0.jpg"],
        "reward_model": {"ground_truth": "A"},
        "index": 0,
    }
    lines(folder / "fvqa_train.jsonl", [ask, '{"prompt": '])
    lines(folder / "mcq.jsonl", [pick])
    entry = {"root": "images", "length": 1, "repeat_time": 1, "input_template": {"name": "general"}}
    meta = {
        "fvqa_train": entry | {"annotation": "fvqa_train.jsonl", "reward_fn": ["llm_score", "format_score"]},
        "deepeyes_4k_train_mcq": entry
        | {"annotation": "mcq.jsonl", "reward_fn": ["em_score_mcq", "format_score"]},
    }
    file = folder / "train_qwen3_vl_8b.json"
    file.write_text(json.dumps(meta))
    return Published(
        [file],
        {"judge": 1, "choice": 1},
        {f"{folder / 'fvqa_train.jsonl'}, row 1": "not JSON"},
        sources=("fvqa_train", "deepeyes_4k_train_mcq"),
    )


def mmsearch(folder: Path) -> Published:
    def row(number: int, candidates: str) -> dict[str, Any]:
        return {
            "data_source": "mmsearch_r1/fvqa_train",
            "prompt": user("<image>Which team plays here?"),
            "images": as_image(number),
            "ability": "direct_answer",
            "reward_model": {
                "candidate_answers": candidates,
                "ground_truth": "Ajax",
                "style": "rule",
            },
            "image_urls": [f"https://example.org/{number}.jpg"],
            "data_id": f"fvqa_{number}",
        }

    file = parquet(
        folder / "fvqa_train.parquet", [row(0, '["AFC Ajax", "Ajax"]'), row(1, "[]"), row(2, "AFC")]
    )
    return Published([file], {"exact": 2}, {f"{file}, row 2": "not a JSON list"})


def coco(folder: Path) -> Published:
    for name, size in (("a.jpg", (200, 100)), ("b.jpg", (100, 200))):
        (folder / name).write_bytes(jpeg(len(name), size))
    content = {
        "images": [
            {"id": 1, "file_name": "a.jpg", "width": 200, "height": 100},
            {"id": 2, "file_name": "b.jpg", "width": 100, "height": 200},
            {"id": 3, "file_name": "gone.jpg", "width": 100, "height": 200},
        ],
        "categories": [{"id": n, "name": name} for n, name in enumerate(("cat", "dog", "cup"))],
        "annotations": [
            {"id": 10, "image_id": 1, "category_id": 0, "bbox": [0, 0, 50.5, 40], "iscrowd": 0},
            {"id": 11, "image_id": 1, "category_id": 0, "bbox": [100, 0, 50, 40], "iscrowd": 0},
            {"id": 12, "image_id": 1, "category_id": 1, "bbox": [150, 50, 52, 51], "iscrowd": 0},
            {"id": 13, "image_id": 2, "category_id": 2, "bbox": [10, 10, 30, 30], "iscrowd": 0},
            {"id": 14, "image_id": 2, "category_id": 1, "bbox": [0, 0, 90, 90], "iscrowd": 1},
            {"id": 15, "image_id": 3, "category_id": 1, "bbox": [0, 0, 90, 90], "iscrowd": 0},
            {"id": 16, "image_id": 2, "category_id": 9, "bbox": [0, 0, 90, 90], "iscrowd": 0},
        ],
    }
    file = folder / "instances.json"
    file.write_text(json.dumps(content))
    return Published(
        [file],
        {"detection": 2, "grounding": 2, "counting": 3},
        {f"{file}, row 2": "cannot read", f"{file}, row 6": "annotation cannot be read"},
        Options(images=folder),
        sources=("coco_detection", "coco_grounding", "coco_counting"),
    )


def coco_set(folder: Path) -> Published:
    """COCO as unpacked: photographs beside the folder of annotations."""
    (folder / "val2017").mkdir(parents=True)
    published = coco(folder / "val2017")
    file = folder / "annotations" / "instances_val2017.json"
    file.parent.mkdir()
    content = json.loads(published.paths[0].read_text())
    published.paths[0].unlink()
    # The last annotation has no valid category, and a set without it could not be scored.
    content["annotations"].pop()
    file.write_text(json.dumps(content))
    return Published(
        [file], {"detection": 2}, {f"{file}, row 2": "cannot read"}, Options(), sources=("coco",)
    )


def ovdeval(folder: Path) -> Published:
    for subset in ("color", "logo"):
        (folder / "images" / subset).mkdir(parents=True)
        for number in range(2):
            (folder / "images" / subset / f"{number}.jpg").write_bytes(jpeg(number))
    width, height = SIZE
    names = ["red cup", "blue cup", "green cup"]
    texts = [(["red cup"], ["blue cup"]), (["blue cup"], ["red cup", "no cup"]), ([], ["green cup"])]
    content = {
        "images": [
            {"id": number, "file_name": f"{number % 2}.jpg", "width": width, "height": height}
            | {"text": text, "neg_text": negative}
            for number, (text, negative) in enumerate(texts)
        ],
        "categories": [{"id": number, "name": name} for number, name in enumerate(names)],
        "annotations": [{"id": 1, "image_id": 0, "category_id": 0, "bbox": [5, 5, 40, 30]}],
    }
    (folder / "annotations").mkdir()
    color, logo = (folder / "annotations" / f"{subset}.json" for subset in ("color", "logo"))
    color.write_text(json.dumps(content))
    logo.write_text(json.dumps(content | {"images": content["images"][:1]}))
    return Published(
        [folder],
        {"detection": 3},
        {f"{color}, row 1": "`text` and `neg_text`"},
        sources=("ovdeval_color", "ovdeval_logo"),
    )


def annotated(file: Path, photos: dict[str, str], categories: list[Any], boxes: list[Any]) -> None:
    """COCO annotations of photographs (path -> where it is saved, 200 x 100 pixels)."""
    for number, place in enumerate(photos.values()):
        if place:
            (file.parent / place).parent.mkdir(parents=True, exist_ok=True)
            (file.parent / place).write_bytes(jpeg(number, (200, 100)))
    content = {
        "images": [
            {"id": number, "file_name": name, "width": 200, "height": 100}
            for number, name in enumerate(photos, start=1)
        ],
        "categories": categories,
        "annotations": [
            {"id": number, "image_id": photo, "category_id": category, "bbox": bbox, "iscrowd": 0} | more
            for number, (photo, category, bbox, more) in enumerate(boxes, start=1)
        ],
    }
    file.write_text(json.dumps(content))


def v3det(folder: Path) -> Published:
    names = ["Timer", "timer", "compass (drawing tool)"]
    categories = [
        {"id": n, "name": name, "name_zh": "…", "cat_info": ["…"], "cat_info_gpt": ["…"], "novel": n == 3}
        for n, name in enumerate(names, start=1)
    ]
    photos = {f"images/n07745046/{n}_371_c.jpg": f"V3Det/images/n07745046/{n}_371_c.jpg" for n in (21, 22)}
    photos["images/a00000066/gone.jpg"] = ""
    boxes = [
        (1, 1, [10, 10, 40, 40], {}),
        (1, 2, [100, 10, 40, 40], {}),
        (2, 3, [10, 10, 90, 60], {}),
        (3, 3, [10, 10, 90, 60], {}),
    ]
    file = folder / "v3det_2023_v1_train.json"
    annotated(file, photos, categories, boxes)
    images = Options(images=folder / "V3Det" / "images")
    return Published([file], {"detection": 2}, {f"{file}, row 2": "cannot read"}, images, sources=("v3det",))


def objects365(folder: Path) -> Published:
    names = ("Person", "Formula 1 ", "Cabinet/shelf")
    photos = {
        f"images/v1/patch8/objects365_v1_0042091{n}.jpg": f"train/patch8/objects365_v1_0042091{n}.jpg"
        for n in (6, 7)
    }
    photos["images/v1/patch6/objects365_v1_00320532.jpg"] = ""
    plain = {"isfake": 0, "isreflected": 0}
    boxes = [
        (1, 1, [10, 10, 40.5, 40], plain),
        (1, 1, [10, 10, 40.5, 40], plain),
        (1, 2, [100, 10, 40, 40], plain),
        (1, 3, [100, 50, 40, 40], plain | {"isfake": 1}),
        (2, 1, [10, 10, 90, 60], plain | {"isreflected": 1}),
        (2, 1, [110, 10, 40, 60], plain),
        (2, 2, [10, 10, 90, 60], plain),
        (3, 3, [10, 10, 90, 60], plain),
    ]
    file = folder / "zhiyuan_objv2_train.json"
    annotated(file, photos, [{"id": n, "name": name} for n, name in enumerate(names, start=1)], boxes)
    return Published(
        [file],
        {"detection": 2},
        {f"{file}, row 2": "cannot read"},
        Options(images=folder / "train"),
        sources=("objects365",),
    )


def vstar(folder: Path) -> Published:
    make_vstar(folder, 4, (300, 200), (100, 50, 40, 30))
    bad = folder / "direct_attributes" / "sa_0002.json"
    bad.write_text(bad.read_text().replace("[100", "[5000"))
    return Published([folder], {"choice": 3}, {f"{bad}, row None": "box"}, sources=("vstar",))


def hrbench(folder: Path) -> Published:
    rows = hrbench_rows([jpeg(0), jpeg(1)])
    rows[5]["answer"] = "Z"
    file = write_tsv(folder / "hr_bench_4k.tsv", rows)
    return Published([file], {"choice": 7}, {f"{file}, row 5": "answer"}, sources=("hr_bench_4k",))


def table(
    name: str, file: str, verifiers: dict[str, int], column: str, told: str, *sources: str
) -> Callable[[Path], Published]:
    """The specimen of a benchmark in one TSV file, plus a row with a broken column."""

    def make(folder: Path) -> Published:
        specimen = FORMATS[name].specimen
        assert specimen is not None
        path = specimen(folder).path
        assert path.name == file
        with path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream, delimiter="\t"))
        rows.insert(0, rows[0] | {"index": "bad", column: "?" if column != "answer" else "Z9"})
        write_tsv(path, rows)
        named = () if name.startswith("charxiv") else (path.stem,)
        return Published([path], verifiers, {f"{path}, row 0": told}, sources=sources or named)

    return make


def shard(name: str, source: str, verifiers: dict[str, int], told: str) -> Callable[[Path], Published]:
    """The specimen of a benchmark in a Parquet shard, after a row without an answer."""

    def make(folder: Path) -> Published:
        specimen = FORMATS[name].specimen
        assert specimen is not None
        (path,) = specimen(folder).path.rglob("*.parquet")
        rows = pq.read_table(str(path))
        odd = rows.slice(0, 1).set_column(
            rows.column_names.index("answer"), rows.schema.field("answer"), pa.array([None], pa.string())
        )
        pq.write_table(pa.concat_tables([odd, rows]), str(path))
        return Published([path], verifiers, {f"{path}, row 0": told}, sources=(source,))

    return make


def screenspot_pro(folder: Path) -> Published:
    root = written("screenspot_pro", folder)
    file = root / "annotations" / "word_windows.json"
    rows = json.loads(file.read_text(encoding="utf-8"))
    rows.insert(1, rows[0] | {"id": "odd", "bbox": [20, 20, 900, 60]})
    file.write_text(json.dumps(rows), encoding="utf-8")
    return Published([root], {"point_in_box": 2}, {f"{file}, row 1": "bbox"}, sources=("screenspot_pro",))


def refcoco(folder: Path) -> Published:
    root = written("refcoco", folder)
    (file,) = root.rglob("*.parquet")
    rows = pq.read_table(file).to_pylist()
    parquet(file, [rows[0] | {"question_id": "odd", "bbox": [190.0, 20.0, 50.0, 40.0]}, *rows])
    return Published([root], {"grounding": 2}, {f"{root}, row 0": "bbox"}, sources=("RefCOCO_testA",))


def visual_probe(folder: Path) -> Published:
    file = written("visual_probe", folder)
    rows = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps([rows[0] | {"solution": None}, *rows]), encoding="utf-8")
    return Published([file], {"judge": 1}, {f"{file}, row 0": "solution"}, sources=("visual_probe_hard",))


def ocrbench(folder: Path) -> Published:
    file = written("ocrbench_v2", folder)
    rows = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps([rows[0] | {"id": "odd", "type": "sign reading en"}, *rows]), encoding="utf-8")
    return Published([file], {"reading": 4}, {f"{file}, row 0": "unknown type"}, sources=("ocrbench_v2",))


def mega_bench(folder: Path) -> Published:
    root = written("mega_bench", folder)
    (file,) = root.rglob("*.parquet")
    rows = pq.read_table(file).to_pylist()
    video = rows[0] | {"id": "film", "query_media": "['./data/a.mp4']"}
    parquet(file, [rows[0] | {"id": "odd", "task_name": "sign_painting"}, video, *rows])
    return Published([root], {"mega_bench": 3}, {f"{file}, row 0": "no task"}, sources=("mega_bench",))


def written(name: str, folder: Path) -> Path:
    """The path of a format's specimen."""
    specimen = FORMATS[name].specimen
    assert specimen is not None
    return specimen(folder).path


def searching(
    make: Callable[[Path], tuple[Path, str]], verifiers: dict[str, int], told: str, source: str
) -> Callable[[Path], Published]:
    """A benchmark of `published_search`, with its invalid row."""

    def made(folder: Path) -> Published:
        path, odd = make(folder)
        return Published([path], verifiers, {odd: told}, sources=(source,))

    return made


def hf(folder: Path) -> Published:
    import datasets

    out = io.BytesIO()
    Image.new("RGB", SIZE, (9, 99, 9)).save(out, "PNG")
    rows = {
        "q": ["Which colour?", "How many?", "Which colour?"],
        "pic": [{"bytes": out.getvalue(), "path": None}] * 3,
        "gold": ["B", "4", None],
        "opts": [["red", "green"], [], ["red", "green"]],
        "pid": ["x", "y", "z"],
        "note": ["kept", None, None],
    }
    features = datasets.Features(
        {
            **{name: datasets.Value("string") for name in ("q", "gold", "pid", "note")},
            "pic": datasets.Image(),
            "opts": datasets.List(datasets.Value("string")),
        }
    )
    data = folder / "data"
    data.mkdir()
    datasets.Dataset.from_dict(rows, features=features).to_parquet(str(data / "train-00000.parquet"))
    columns = folder / "columns.yaml"
    columns.write_text(
        "source: own\nquestion: q\nanswer: gold\nimages: pic\nchoices: opts\nid: pid\nability: vqa\n"
    )
    return Published(
        [data],
        {"choice": 1, "math": 1},
        {f"{data / 'train-00000.parquet'}, row 2": "no value for gold"},
        Options(columns=columns),
        sources=("own",),
    )


def samples(folder: Path) -> Published:
    (folder / "cups.jpg").write_bytes(jpeg(0))
    asked = {"data_source": "mine", "prompt": "How many cups?", "images": ["cups.jpg"]}
    judged = {"ground_truth": "3", "verifier": "counting", "tool_ratio": 0.5}
    rows = [
        asked
        | {"reward_model": judged, "tools": ["python"], "evidence": [{"bbox_2d": [10, 10, 30, 30]}]}
        | {"extra_info": {"id": "cups/0", "image_path": None, "more": {"site": None}}},
        asked | {"images": [{"bytes": coded(1)}], "reward_model": {"ground_truth": "a cup"}},
        asked | {"reward_model": judged, "evidnce": [{"bbox_2d": [10, 10, 30, 30]}]},
        asked | {"reward_model": judged, "evidence": [{"bbox_2d": [10, 10, 3000, 30]}]},
    ]
    file = lines(folder / "mine.jsonl", rows)
    odd = {f"{file}, row 2": "evidence", f"{file}, row 3": "leaves image 0"}
    return Published([file], {"counting": 1, "exact": 1}, odd, sources=("mine",))


MAKERS: dict[str, Callable[[Path], Published]] = {
    "samples": samples,
    "vtriune": vtriune,
    "verl": verl,
    "deepeyes": deepeyes,
    "codev": codev,
    "thinklite": thinklite,
    "thyme": thyme,
    "conversations": conversations,
    "easyr1": easyr1,
    "mars": mars,
    "mmsearch": mmsearch,
    "coco": coco,
    "coco_set": coco_set,
    "ovdeval": ovdeval,
    "v3det": v3det,
    "objects365": objects365,
    "vstar": vstar,
    "hrbench": hrbench,
    "mme_realworld": table("mme_realworld", "mme_realworld_lite.tsv", {"choice": 2}, "answer", "answer"),
    "treebench": table("treebench", "TreeBench.tsv", {"choice": 2}, "target_instances", "target_instances"),
    "mmmu": table("mmmu", "MMMU_DEV_VAL.tsv", {"choice": 1, "exact": 1}, "answer", "answer"),
    "mmmu_pro": table("mmmu_pro", "MMMU_Pro_10c.tsv", {"choice": 2}, "answer", "answer"),
    "mmmu_pro_vision": table("mmmu_pro_vision", "MMMU_Pro_V.tsv", {"choice": 2}, "answer", "answer"),
    "countbench": table("countbench", "CountBenchQA.tsv", {"counting": 2}, "answer", "whole number"),
    "vlmblind": table("vlmblind", "VLMBlind.tsv", {"exact": 4}, "task", "unknown task"),
    "screenspot_pro": screenspot_pro,
    "refcoco": refcoco,
    "refcoco_tsv": table(
        "refcoco_tsv", "RefCOCO.tsv", {"grounding": 2}, "category", "unknown split", "RefCOCO_val"
    ),
    "visual_probe": visual_probe,
    "ocrbench_v2": ocrbench,
    "mega_bench": mega_bench,
    "mathvista": shard("mathvista", "mathvista", {"choice": 1, "math": 3}, "no answer"),
    "mathverse": shard("mathverse", "mathverse", {"choice": 2, "exact": 1}, "no answer"),
    "mathvision": shard("mathvision", "mathvision", {"choice": 2, "math": 1}, "no answer"),
    "mathvision_mini": shard("mathvision_mini", "mathvision", {"choice": 2, "math": 1}, "no answer"),
    "charxiv_reasoning": table(
        "charxiv_reasoning",
        "CharXiv_reasoning_val.tsv",
        {"exact": 1, "math": 1},
        "inst_category",
        "inst_category",
    ),
    "charxiv_descriptive": table(
        "charxiv_descriptive",
        "CharXiv_descriptive_val.tsv",
        {"exact": 1, "math": 1},
        "grading_query",
        "PREDICTION",
    ),
    "browsecomp_vl": searching(published_search.browsecomp_vl, {"judge": 2}, "no picture", "browsecomp_vl"),
    "mmsearch_plus": searching(published_search.mmsearch_plus, {"judge": 2}, "encrypted", "mmsearch_plus"),
    "mm_eval": searching(published_search.mm_eval, {"math": 2}, "truth", "mm_eval"),
    "hf": hf,
}
