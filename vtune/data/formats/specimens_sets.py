"""A few pictures of each layout that is scored as a set (see `specimens`)."""

import json
from pathlib import Path

from vtune.data.formats.specimens import TARGET, Specimen, annotated


def coco_set(folder: Path) -> Specimen:
    """COCO's instances as unpacked: `annotations`, with `val2017` beside it."""
    file = folder / "annotations" / "instances_val2017.json"
    file.parent.mkdir()
    boxes = [(1, 1, TARGET), (1, 1, (100, 20, 150, 60)), (2, 2, TARGET)]
    return annotated(file, ("a.jpg", "b.jpg"), ("cat", "dog"), boxes, folder / "val2017")


def ovdeval(folder: Path) -> Specimen:
    """OVDEval: a subset of one picture, with categories that are in it and categories that are not."""
    root = folder / "ovdeval"
    for name in ("annotations", "images/color"):
        (root / name).mkdir(parents=True, exist_ok=True)
    file = root / "annotations" / "color.json"
    annotated(file, ("a.jpg",), ("red cup", "blue cup"), [(1, 1, TARGET)], root / "images" / "color")
    content = json.loads(file.read_text(encoding="utf-8"))
    content["images"][0] |= {"text": ["red cup"], "neg_text": ["blue cup"]}
    file.write_text(json.dumps(content), encoding="utf-8")
    return Specimen(root)
