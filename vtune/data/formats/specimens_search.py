"""A few rows of the search-agent benchmarks (see `specimens`)."""

import base64
import hashlib
import json
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa

from vtune.data.formats.specimens import Specimen, coded

CANARY = "MMSearch-Plus"
"""The published password of its texts, which keeps them out of training data; it is not a secret."""


def browsecomp_vl(folder: Path) -> Specimen:
    """BrowseComp-VL, first level: answers end with a period."""
    home = folder / "browsecomp-vl"
    rows = []
    for number, answers in enumerate((["Gustave Eiffel."], ["1889.", "In 1889."])):
        name = f"images/level1/level1_{number}.jpg"
        _write(home / name, number)
        rows.append(
            {
                "question": "Who designed the tower that the sign names?",
                "image_path": f"browsecomp-vl/{name}",
                "answers": answers,
                "domain": "architecture",
            }
        )
    file = home / "bc_vl_level1.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return Specimen(file)


def mmsearch_plus(folder: Path) -> Specimen:
    """MMSearch-Plus: a question with one picture and one with two, encrypted."""
    rows = []
    for number in range(2):
        shown: dict[str, Any] = dict.fromkeys(f"img_{place}" for place in range(1, 6))
        for place in range(number + 1):
            shown[f"img_{place + 1}"] = {"bytes": base64.b64decode(coded(number + place)), "path": None}
        rows.append(
            {
                "question": encrypted("Who designed it?"),
                "answer": [encrypted("Gustave Eiffel"), encrypted("Eiffel")],
                "num_images": number + 1,
                "arxiv_id": encrypted("2401.00001") if number else None,
                "video_url": None,
                "category": "architecture",
                "difficulty": "easy",
                "subtask": "naming",
                **shown,
            }
        )
    file = folder / "data-00000-of-00001.arrow"
    table = pa.Table.from_pylist(rows)
    with pa.OSFile(str(file), "wb") as stream, pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return Specimen(file)


def encrypted(text: str) -> str:
    """A text, encrypted as in the data set."""
    key = cycle(hashlib.sha256(CANARY.encode()).digest())
    return base64.b64encode(bytes(a ^ b for a, b in zip(text.encode(), key, strict=False))).decode()


def mm_eval(folder: Path) -> Specimen:
    """A folder of mm-eval: rows as their source has them, and the file that says which column means what."""
    home = folder / "mm_eval"
    _write(home / "images/0.jpg", 0)
    rows = [
        {"pid": number, "figure": "images/0.jpg", "ask": "How many?", "truth": truth, "level": "easy"}
        for number, truth in enumerate(("3", "4"))
    ]
    (home / "test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    says = {
        "prompt_template": "{{ question }}\nAnswer with a number.",
        "prompt_template_source": "official",
        "mapping_from_source": {
            "media": "figure",
            "id": "pid",
            "question": "ask",
            "answer": "truth",
            "extra": ["level"],
        },
    }
    (home / "metadata.json").write_text(json.dumps(says), encoding="utf-8")
    return Specimen(home)


def _write(file: Path, number: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(base64.b64decode(coded(number)))
