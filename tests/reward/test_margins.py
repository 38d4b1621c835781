"""On photographs: additions of a figure cost a look nothing, and cannot hide what was not isolated."""

import asyncio
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from tests.reward.build import LEVELS, recipe, sample
from tests.reward.sessions import Sessions
from vtune.judge.pictures import picture_size
from vtune.reward.score import Scorer
from vtune.schema.box import Box
from vtune.schema.message import Picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

PHOTOS = 5
LARGEST = 1792
"""Largest side in pixels of a square that Qwen2.5-VL's processor shows with `max_pixels` of 4096 tokens."""
CROP = "c = image.crop(around)\n"
FIGURES = {
    "axes": CROP + "plt.imshow(c)\nplt.savefig('a.png')",
    "photograph and crop, two panels": CROP + "f, ax = plt.subplots(1, 2, figsize=(12, 6))\n"
    "ax[0].imshow(image)\nax[1].imshow(c)\nplt.savefig('a.png')",
    "crop, grey and negative": CROP + "a = np.array(c)\ng = np.array(c.convert('L').convert('RGB'))\n"
    "Image.fromarray(np.hstack([a, g, 255 - a])).save('a.png')",
    "a white border": CROP + "ImageOps.expand(c, border=20, fill='white').save('a.png')",
    "an inset": CROP + "z = c.resize((int(c.width * 1.5), int(c.height * 1.5)))\nm = image.copy()\n"
    "m.paste(z, (0, 0))\nm.save('a.png')",
}
TILES = """ts = [(i * W // 8, j * H // 8, (i + 1) * W // 8, (j + 1) * H // 8)
      for j in range(8) for i in range(8) if (i + j) % 2 == 0][:30]
"""
PATCHED = """    m = image.copy()
    m.paste((128, 128, 128), (W - W // 8, H - H // 8, W, H))
"""
BLIND = {
    "tiles on canvases": TILES + "for s in range(5):\n    m = Image.new('RGB', (1600, 1600), 'white')\n"
    "    for q, b in enumerate(ts[s::5]): m.paste(image.crop(b), (q % 3 * 500, q // 3 * 700))\n"
    "    m.save(f'{s}.png')",
    "tiles as insets": TILES + "for s in range(5):\n    m = image.copy()\n"
    "    for q, b in enumerate(ts[s::5]):\n        t = image.crop(b)\n"
    "        m.paste(t, (q % 3 * t.width + 20, q // 3 * t.height + 20))\n    m.save(f'{s}.png')",
    "pieces claimed of the whole": TILES
    + "import dataclasses\nfor s in range(5):\n"
    + PATCHED
    + "    g = [dataclasses.replace(image.region, box=tuple(map(float, b))) for b in ts[s::5]]\n"
    "    m.region = dataclasses.replace(g[0], beside=tuple(g[1:]))\n    m.save(f'{s}.png')",
    "a known piece claimed of the whole": "import dataclasses\nif True:\n"
    + PATCHED
    + "m.region = dataclasses.replace(image.region, box=tuple(map(float, around)), beside=(image.region,))\n"
    "m.save('a.png')",
    "a stamp on a large canvas": CROP
    + "m = Image.new('RGB', (4900, 4900))\nm.paste(c, (0, 0))\nm.save('a.png')",
}


def targets(folder: Path) -> list[tuple[Path, Box]]:
    """One object on each of several photographs: 1 to 6 % of its area, at least 40 pixels per side."""
    told = json.loads((folder / "instances.json").read_text())
    found = []
    for photo in told["images"]:
        for one in told["annotations"]:
            x, y, w, h = one["bbox"]
            small = 0.01 <= w * h / (photo["width"] * photo["height"]) <= 0.06
            if one["image_id"] == photo["id"] and min(w, h) >= 40 and small and not one["iscrowd"]:
                found.append((folder / "images" / photo["file_name"], (x, y, x + w, y + h)))
                break
    return found[:PHOTOS]


def program(code: str, box: Box) -> str:
    x0, y0, x1, y1 = box
    w, h = 0.15 * (x1 - x0), 0.15 * (y1 - y0)
    around = tuple(map(int, (x0 - w, y0 - h, x1 + w, y1 + h)))
    return (
        "import matplotlib.pyplot as plt\nW, H = image.size\n"
        f"around = tuple(np.clip({around}, 0, (W, H, W, H)).tolist())\n{code}"
    )


def as_seen(trajectory: Trajectory) -> Trajectory:
    """The trajectory with pictures no larger than a processor shows them (`LARGEST`)."""
    pictures = []
    for one in trajectory.images:
        width, height = picture_size(one)
        scale = min(1.0, LARGEST / max(width, height))
        pictures.append(dataclasses.replace(one, seen=(round(width * scale), round(height * scale))))
    return dataclasses.replace(trajectory, images=tuple(pictures))


def mean_scores(
    sessions: Sessions, programs: Mapping[str, str], photos: list[tuple[Path, Box]]
) -> dict[str, float]:
    questions: list[tuple[Sample, list[str]]] = []
    for n, (path, box) in enumerate(photos):
        asked = sample(box, images=(Picture(path.read_bytes()),))
        questions += [
            (dataclasses.replace(asked, id=f"{name}/{n}"), [program(code, box)])
            for name, code in programs.items()
        ]
    done = [as_seen(one) for one in sessions.trajectories(questions)]

    async def scores() -> list[float]:
        async with Scorer(recipe()) as scorer:
            scored = await scorer.score([one for one, _ in questions], done)
        return [one.tool_scores[0] or 0.0 for one in scored]

    found = asyncio.run(scores())
    count = len(programs)
    return {name: sum(found[n::count]) / len(photos) for n, name in enumerate(programs)}


def test_figures_of_a_look_earn_the_same_as_the_look(sessions: Sessions, coco_mini: Path) -> None:
    photos = targets(coco_mini)
    assert len(photos) == PHOTOS
    scores = mean_scores(sessions, FIGURES, photos)
    assert min(scores.values()) >= 0.9, scores


def test_margins_overviews_and_insets_hide_nothing_that_was_not_isolated(
    sessions: Sessions, coco_mini: Path
) -> None:
    scores = mean_scores(sessions, BLIND, targets(coco_mini))
    tiled = [scores.pop("tiles on canvases"), scores.pop("tiles as insets")]
    # Six tiles per picture hold only a part of a target.
    assert max(tiled) <= LEVELS.partial
    assert max(scores.values()) <= LEVELS.miss, scores
