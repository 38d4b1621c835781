"""Good files of every kind, and corrupted versions of them."""

import json
import os
import shutil
import socket
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from PIL import Image

from vtune.config import shipped
from vtune.runs.data.lens import make_lens
from vtune.schema.parquet import read_samples
from vtune.schema.sample_row import SAMPLE_COLUMNS, sample_to_row

Row = dict[str, Any]
ESCAPES = "\x1b[31m\x1b]0;owned\x07[red]a[/] [/] \u202eevil\u2066"
"""Controls for terminals, markup and text direction."""
DEEP = "[" * 50_000 + "]" * 50_000
NESTED = '{"a":' * 400 + "1" + "}" * 400
"""Deeply nested, but shallow enough for Python's parser."""


def jpeg(size: tuple[int, int] = (96, 64)) -> bytes:
    """A picture that does not compress well."""
    out = BytesIO()
    Image.effect_noise(size, 80).convert("RGB").save(out, "JPEG", quality=90)
    return out.getvalue()


def damaged_jpeg() -> bytes:
    """A JPEG with a valid header and end but impossible Huffman tables."""
    content = bytearray(jpeg())
    table = content.index(b"\xff\xc4")
    content[table + 5 : table + 21] = b"\xff" * 16
    return bytes(content)


def special(folder: Path) -> dict[str, Path]:
    """Paths that are not ordinary files: missing, folders, pipes, devices, sockets, loops, giant files."""
    folder.mkdir()
    names = {name: folder / name for name in ("missing", "folder", "pipe", "socket", "loop", "empty", "huge")}
    names["folder"].mkdir()
    os.mkfifo(names["pipe"])
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(folder)  # names of sockets are short
        server.bind("socket")
        os.chdir(here)
    names["loop"].symlink_to("loop")
    names["empty"].touch()
    with names["huge"].open("wb") as file:
        file.truncate(2**40)
    # Links: a command that wrongly replaces its output replaces only the link, not the device.
    names |= {"zero": folder / "zero", "full": folder / "full"}
    names["zero"].symlink_to("/dev/zero")
    names["full"].symlink_to("/dev/full")
    names["noise"] = folder / "noise"
    names["noise"].write_bytes(bytes(range(256)) * 64)
    names["utf16"] = folder / "utf16"
    names["utf16"].write_text('{"a": "b"}\n' * 20, encoding="utf-16")
    return names


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)
YAMLS = {
    "bomb": BOMB,
    "self alias": "a: &a [*a]\n",
    "deep flow": "a: " + "[" * 50_000,
    "deep block": "- " * 20_000 + "x",
    "many": "a:\n" + "- x\n" * 100_000,
    "sexagesimal": "a: 1" + ":1" * 200_000,
    "digits": "seed: " + "9" * 5_000,
    "list": "- a\n",
    "scalar": "a\n",
    "tag": "a: !!python/object/apply:os.system [id]\n",
    "date": "a: 2001-99-99\n",
    "key": "? [a]\n: b\n",
    "tab": "a:\n\tb: c\n",
    "nul": 'a: "x\\0y"\n',
    "escapes": "a: {'" + "\\x1b" + '\': 1}\n"\\e[31m\\u202e[/]": 2\n',
}
"""Documents that no verb can use."""

Spoil = Callable[[Row], object]


def _image(row: Row, **values: Any) -> None:
    row["images"][0].update({"bytes": None, "path": None} | values)


def spoils(world: Path) -> dict[str, Spoil]:
    """Name -> corrupted row of samples."""
    return {
        "deep verifier_parm": lambda row: row["reward_model"].update(verifier_parm=DEEP),
        "nested verifier_parm": lambda row: row["reward_model"].update(verifier_parm=NESTED),
        "deep extra_info": lambda row: row["extra_info"].update(more_json=DEEP),
        "unknown verifier": lambda row: row["reward_model"].update(verifier=ESCAPES),
        "nan evidence": lambda row: row.update(
            evidence=[{"label": "a", "image": 0, "bbox_2d": [0.0, 0.0, float("nan"), 5.0]}]
        ),
        "inf evidence": lambda row: row.update(
            evidence=[{"label": "a", "image": 0, "bbox_2d": [0.0, 0.0, float("inf"), 5.0]}]
        ),
        "nan truth": lambda row: row["reward_model"].update(
            verifier="detection", ground_truth='[{"bbox_2d": [0, 0, NaN, 5], "label": "a"}]'
        ),
        "deep truth": lambda row: row["reward_model"].update(verifier="detection", ground_truth=DEEP),
        "damaged picture": lambda row: _image(row, bytes=damaged_jpeg()),
        "no picture": lambda row: _image(row, bytes=b"GIF89a"),
        "pipe as picture": lambda row: _image(row, path=str(world / "special" / "pipe")),
        "device as picture": lambda row: _image(row, path=str(world / "special" / "zero")),
        "giant as picture": lambda row: _image(row, path=str(world / "special" / "huge")),
        "loop as picture": lambda row: _image(row, path=str(world / "special" / "loop")),
        "nul in path": lambda row: _image(row, path="a\0b.png"),
        "line break in path": lambda row: _image(row, path="a\nfix: \x1b[2J.png"),
        "escapes in role": lambda row: row["prompt"][0].update(role=ESCAPES),
        "no prompt": lambda row: row.update(prompt=None),
        "ratios": lambda row: row["reward_model"].update(accuracy_ratio=float("nan")),
    }


def write_samples_spoilt(good: Path, out: Path, spoil: Spoil) -> None:
    """Write a sample file with a corrupted second row."""
    rows = [sample_to_row(sample) for sample in read_samples(good)]
    spoil(rows[1])
    pq.write_table(pa.Table.from_pylist(rows, schema=SAMPLE_COLUMNS), out)


def parquets(folder: Path, good: Path) -> dict[str, Path]:
    """Sample files that are bad as a whole or in one row."""
    folder.mkdir()
    made = {}
    for name, spoil in spoils(folder.parent).items():
        made[name] = folder / f"{name.replace(' ', '_')}.parquet"
        write_samples_spoilt(good, made[name], spoil)
    content = good.read_bytes()
    plain = {
        "cut": content[:-100],
        "cut in data": content[: len(content) // 3] + content[-2000:],
        "middle": content[:200] + bytes(200) + content[400:],
        "footer": content[:-8] + b"\xff\xff\xff\x7f" + content[-4:],
    }
    for name, data in plain.items():
        made[name] = folder / f"{name.replace(' ', '_')}.parquet"
        made[name].write_bytes(data)
    rows = [sample_to_row(sample) for sample in read_samples(good)]
    tables = {
        "columns": pa.table({"a": [1, 2]}),
        "types": pa.table({"data_source": [1], "prompt": ["x"], "reward_model": [[1.5]], "images": [True]}),
        "no rows": pa.Table.from_pylist([], schema=SAMPLE_COLUMNS),
        "twice": pa.Table.from_pylist([rows[0], rows[0]], schema=SAMPLE_COLUMNS),
        "tiny rows": pa.table(
            {name: pa.nulls(15_000, pa.string()) for name in ("data_source", "prompt", "reward_model")}
        ),
        "zeros": pa.table(
            {
                "data_source": ["a"],
                "prompt": pa.array([bytes(136 * 2**20)], pa.large_binary()),
                "reward_model": ["x"],
            }
        ),
        "repeated": pa.table(
            {
                "data_source": ["a"] * 8,
                "reward_model": ["x"] * 8,
                "prompt": pa.DictionaryArray.from_arrays(pa.array([0] * 8), pa.array(["x" * (100 * 2**20)])),
            }
        ),
    }
    for name, table in tables.items():
        made[name] = folder / f"{name.replace(' ', '_')}.parquet"
        # Statistics of values this large take seconds, and are left out of the file anyway.
        pq.write_table(table, made[name], compression="zstd", write_statistics=False)
    return made


COCO = {
    "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
    "images": [
        {"id": 1, "file_name": "a.jpg", "width": 96, "height": 64},
        {"id": 2, "file_name": "b.jpg", "width": 96, "height": 64},
    ],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 1, "bbox": [4, 4, 40, 40], "iscrowd": 0},
        {"id": 2, "image_id": 2, "category_id": 2, "bbox": [4, 4, 40, 40], "iscrowd": 0},
    ],
}


def cocos(folder: Path) -> dict[str, Path]:
    """Corrupted annotations of two photographs."""
    folder.mkdir()
    pictures = folder / "pictures"
    pictures.mkdir()
    for name in ("a.jpg", "b.jpg"):
        (pictures / name).write_bytes(jpeg())

    def spoilt(change: Callable[[Any], object]) -> str:
        content = json.loads(json.dumps(COCO))
        change(content)
        return json.dumps(content)

    texts = {
        "good": json.dumps(COCO),
        "narrow": spoilt(lambda c: c["images"][1].update(width=20)),
        "wide": spoilt(lambda c: c["images"][1].update(width=9_600)),
        "small": spoilt(
            lambda c: (
                c["images"][1].update(width=9, height=6),
                c["annotations"][1].update(bbox=[1, 1, 4, 4]),
            )
        ),
        "no size": spoilt(lambda c: c["images"][1].update(width=0)),
        "nan box": spoilt(lambda c: c["annotations"][1].update(bbox=[float("nan"), 0, 40, 40])),
        "huge box": spoilt(lambda c: c["annotations"][1].update(bbox=[0, 0, 10**400, 40])),
        "deep name": spoilt(lambda c: c["images"][1].update(file_name="../" * 40 + "etc/passwd")),
        "nul name": spoilt(lambda c: c["images"][1].update(file_name="a\0.jpg")),
        "escapes": spoilt(lambda c: c["images"][1].update(file_name=ESCAPES)),
        "deep": DEEP,
        "list": "[]",
        "cut": json.dumps(COCO)[:-20],
        "many": "[" + "[]," * 11_000_000 + "[]]",
    }
    made = {}
    for name, text in texts.items():
        made[name] = folder / f"{name.replace(' ', '_')}.json"
        made[name].write_text(text, encoding="utf-8")
    return made


RESULTS = json.dumps({"model": "m", "suite": {}, "environment": {"data": {"a": "b"}}})
"""Results of an evaluation, as far as a comparison reads them before the questions."""


def runs(folder: Path) -> dict[str, Path]:
    """Folders of runs and evaluations with corrupted files."""
    folder.mkdir()
    recipe = shipped("recipes.rl")["codev-tiny"].read_text()
    line = '{"step": 0, "source": "lens", "reward": 0.5}\n'
    contents = {
        "bomb": {"recipe.yaml": BOMB, "metrics.jsonl": line},
        "deep metrics": {"recipe.yaml": recipe, "metrics.jsonl": DEEP + "\n"},
        "digits": {"recipe.yaml": recipe, "metrics.jsonl": '{"step": ' + "9" * 5_000 + ', "source": "a"}\n'},
        "noise": {"recipe.yaml": "\x00\xff", "metrics.jsonl": line},
        "no json": {"recipe.yaml": recipe, "metrics.jsonl": "no\n"},
        "environment": {"recipe.yaml": recipe, "metrics.jsonl": line, "environment.json": DEEP},
        "evaluation": {"suite.yaml": recipe, "results.json": DEEP},
        "list": {"suite.yaml": recipe, "results.json": "[]"},
        "items": {"suite.yaml": recipe, "results.json": RESULTS, "items.jsonl": DEEP},
        "sweep": {"sweep.yaml": BOMB},
    }
    made = {}
    for name, files in contents.items():
        made[name] = folder / name.replace(" ", "_")
        made[name].mkdir()
        for file, text in files.items():
            (made[name] / file).write_text(text, encoding="latin-1" if name == "noise" else "utf-8")
    made["pipe"] = folder / "pipe"
    made["pipe"].mkdir()
    os.mkfifo(made["pipe"] / "recipe.yaml")
    os.mkfifo(made["pipe"] / "metrics.jsonl")
    return made


def build(folder: Path) -> dict[str, Any]:
    """Make everything that is passed to commands."""
    folder.mkdir()
    made: dict[str, Any] = {"special": special(folder / "special")}
    make_lens(folder / "lens", train=4, heldout=2, traces=2, level=1, guessable=0.0, seed=0)
    made["samples"] = folder / "lens" / "train.parquet"
    made["traces"] = folder / "lens" / "traces.parquet"
    made["parquet"] = parquets(folder / "parquet", made["samples"])
    made["coco"] = cocos(folder / "coco")
    made["runs"] = runs(folder / "runs")
    (folder / "yaml").mkdir()
    made["yaml"] = {}
    for name, text in YAMLS.items():
        made["yaml"][name] = folder / "yaml" / f"{name.replace(' ', '_')}.yaml"
        made["yaml"][name].write_text(text, encoding="utf-8")
    made["pictures"] = folder / "coco" / "pictures"
    made["bad picture"] = folder / "damaged.jpg"
    made["bad picture"].write_bytes(damaged_jpeg())
    made["code"] = folder / "code.py"
    made["code"].write_text("print(1)\n")
    made["columns"] = folder / "columns.yaml"
    made["columns"].write_text(yaml.safe_dump({"source": "x", "question": "q", "answer": "a"}))
    made["passages"] = folder / "passages.jsonl"
    made["passages"].write_text('{"id": "a", "text": "b"}\n')
    lines = {
        "deep": DEEP,
        "cut": '{"text": "a',
        "escapes": json.dumps({"text": None, ESCAPES: ESCAPES}),
        "list": "[1]",
        "types": '{"text": {"a": 1}, "id": []}',
        "utf16": '{"text": "a"}\n',
        "twice": '{"id": "a", "text": "b"}\n{"id": "a", "text": "c"}',
    }
    (folder / "lines").mkdir()
    made["lines"] = {}
    for name, text in lines.items():
        made["lines"][name] = folder / "lines" / f"{name}.jsonl"
        made["lines"][name].write_text(text + "\n", encoding="utf-16" if name == "utf16" else "utf-8")
    made["lines"]["long"] = folder / "lines" / "long.jsonl"
    with made["lines"]["long"].open("wb") as file:
        file.write(b'{"text": "')
        file.truncate(300 * 2**20)
    shutil.copytree(made["pictures"], folder / "more")
    (folder / "more" / "c.jpg").write_bytes(damaged_jpeg())
    made["more"] = folder / "more"
    return made
