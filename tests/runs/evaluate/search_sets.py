"""Small benchmarks for search agents in their published layouts, and a judge for them."""

import json
from pathlib import Path
from typing import Any

from tests.models.rows import picture
from vtune.config import find, load_recipe
from vtune.data.formats.table import FORMATS
from vtune.runs.evaluate.suite import EvalSuite

TRUTHS = ["Gustave Eiffel", "G. Eiffel"]
REPLIES = [
    "<answer>the Gustave Eiffel!</answer>",
    "<thinking>Hm.</thinking>He is called Eiffel",
    "Napoleon",
    "<answer></answer>",
    "I do not know",
    "<answer>Nobody</answer> or <answer>Mr Eiffel</answer>",
]


def mars_rows(folder: Path, name: str, count: int = len(REPLIES)) -> Path:
    """A test set of SenseNova-MARS: a folder with `data.jsonl`, and pictures below it."""
    home = folder / name
    (home / "images").mkdir(parents=True)
    rows = []
    for number in range(count):
        (home / f"images/{number}.png").write_bytes(picture(64, 48 + number))
        rows.append(
            {
                "prompt": [{"role": "user", "content": f"<image>Who designed tower {number}?"}],
                "image": [f"images/{number}.png"],
                "reward_model": {"ground_truth": TRUTHS},
                "index": number,
                "image_search_title_list": ["A tower"],
                "image_search_thumbnail_list": ["t/0.jpg"],
            }
        )
    file = home / "data.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def grows(file: Path, count: int = len(REPLIES)) -> Path:
    """Repeats the first row of JSON lines."""
    line = file.read_text().splitlines()[0]
    file.write_text(f"{line}\n" * count)
    return file


def data_of(suite: str, folder: Path) -> Path:
    """A file of six questions in the format of a suite."""
    loaded = load_recipe(find(suite, "eval_suites"), EvalSuite)
    if loaded.format == "mars":
        return mars_rows(folder, Path(loaded.data[0]).parent.name)
    specimen = FORMATS[loaded.format].specimen
    assert specimen is not None
    found = specimen(folder).path
    return grows(found) if found.suffix == ".jsonl" else found


def judge(body: dict[str, Any]) -> str:
    """A judge that accepts answers naming Eiffel and not nobody, in the form that each grading asks for."""
    system, user = (message["content"] for message in body["messages"])
    given = user[0]["text"].rpartition("nswer: ")[2]
    right = "Eiffel" in given and "Nobody" not in given
    if "<judge>" in system:
        return f"<judge>{'Yes' if right else 'No'}</judge><reason>So it is.</reason>"
    if "A, B or C" in system:
        return "A" if right else "C" if "know" in given else "B"
    if "extracted_final_answer" in system:
        return f"extracted_final_answer: x\nreasoning: correct or not\ncorrect: {'yes' if right else 'no'}"
    return "TRUE" if right else "FALSE"
