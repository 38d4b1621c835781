"""A few rows of the layouts that ask where something is, and of VisualProbe (see `specimens`)."""

import base64
import json
from pathlib import Path

import pyarrow as pa

from vtune.data.formats.specimens import SIZE, TARGET, Specimen, coded
from vtune.data.formats.specimens_tsv import table
from vtune.schema.parquet import write_rows


def screenspot_pro(folder: Path) -> Specimen:
    """ScreenSpot-Pro: one screenshot with a text, one with an icon."""
    root = folder / "ScreenSpot-Pro"
    for name in ("annotations", "images/win"):
        (root / name).mkdir(parents=True)
    rows = []
    for number, kind in enumerate(("text", "icon")):
        picture = f"win/{number}.jpg"
        (root / "images" / picture).write_bytes(base64.b64decode(coded(number)))
        rows.append(
            {
                "img_filename": picture,
                "bbox": list(TARGET),
                "instruction": "save the file",
                "instruction_cn": "保存文件",
                "id": f"word_windows_{number}",
                "application": "word",
                "platform": "windows",
                "img_size": list(SIZE),
                "ui_type": kind,
                "group": "Office",
            }
        )
    (root / "annotations" / "word_windows.json").write_text(json.dumps(rows), encoding="utf-8")
    return Specimen(root)


def refcoco(folder: Path) -> Specimen:
    """RefCOCO of lmms-lab: a box with two expressions."""
    x0, y0, x1, y1 = map(float, TARGET)
    row = {
        "question_id": "1",
        "image": {"bytes": base64.b64decode(coded(0)), "path": "a.jpg"},
        "question": "Please carefully observe the area circled in the image.",
        "answer": ["white sign", "sign on the left"],
        "bbox": [x0, y0, x1 - x0, y1 - y0],
        "iscrowd": 0,
        "file_name": "a.jpg",
    }
    data = folder / "RefCOCO" / "data"
    data.mkdir(parents=True)
    schema = pa.Table.from_pylist([row]).schema
    write_rows(data / "testA-00000-of-00001.parquet", schema, [row])
    return Specimen(folder / "RefCOCO")


def refcoco_tsv(folder: Path) -> Specimen:
    """RefCOCO.tsv: a question from each of two splits, with boxes as fractions."""
    x0, y0, x1, y1 = TARGET
    shares = [x0 / SIZE[0], y0 / SIZE[1], x1 / SIZE[0], y1 / SIZE[1]]
    rows = [
        {
            "index": str(number),
            "image": coded(number),
            "question": "Give the box [x1, y1, x2, y2] of the white sign, in shares of the image's sides.",
            "answer": json.dumps(shares),
            "category": category,
        }
        for number, category in enumerate(("RefCOCO val", "RefCOCOg test"))
    ]
    return Specimen(table(folder / "RefCOCO.tsv", rows))


def visual_probe(folder: Path) -> Specimen:
    """VisualProbe: an open question whose level is given by its folder."""
    here = folder / "VisualProbe_Hard"
    (here / "images").mkdir(parents=True)
    (here / "images" / "0.jpg").write_bytes(base64.b64decode(coded(0)))
    row = {
        "problem": "<image>\nWhat is the colour of the sign?",
        "images": ["images/0.jpg"],
        "solution": "white",
        "doc_id": "0",
    }
    (here / "val.json").write_text(json.dumps([row]), encoding="utf-8")
    return Specimen(here / "val.json")
