"""How many looks at photographs are verified if regions are returned in honest and in hostile ways.

    python -m tests.bench.photo_looks ../shared/data/coco-mini

Not a test: it prints numbers. One annotated box per photograph that has one of 0.4 to 6 % of its area and at
least 24 pixels per side, cropped with a margin of 15 %; crops of other places are resized to the same shape.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from vtune.looks.agreement import Pixels
from vtune.looks.geometry import onto
from vtune.looks.verify import check
from vtune.looks.view import View

SIDE = 300
"""Side of the returned picture, in pixels."""
Way = Callable[[list[Pixels]], Pixels]
"""Makes the returned picture from the crop, the whole photograph and its corners, all of one size."""


def grey(picture: Pixels) -> Pixels:
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), np.uint8)


def merged(*places: int) -> Way:
    """Each channel holds the brightness of one of the pictures; -1 means noise."""
    noise = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE), np.uint8)
    return lambda of: np.dstack([noise if place < 0 else grey(of[place]) for place in places])


def mean(count: int) -> Way:
    """The mean of the crop and corners."""
    return lambda of: np.mean([of[0], *of[2 : count + 1]], axis=0).astype(np.uint8)


def mixed(pixels: int, *, rows: bool) -> Way:
    """Alternate the crop and a corner, in columns or as a checkerboard."""
    y, x = np.indices((SIDE, SIDE)) // pixels
    return lambda of: np.where(((x + rows * y) % 2)[..., None] == 1, of[0], of[2]).astype(np.uint8)


def covered(share: float, *places: float) -> Way:
    """Cover the crop with grey squares, sized as a share of the side, with corners at `places` in x and y."""

    def way(of: list[Pixels]) -> Pixels:
        shown, side = of[0].copy(), round(share * SIDE)
        for y in places:
            for x in places:
                shown[round(y * SIDE) :, round(x * SIDE) :][:side, :side] = 128
        return shown

    return way


def inpainted(share: float) -> Way:
    """Inpaint the centre, sized as a share of the side, from its surroundings."""
    mask, rim = np.zeros((SIDE, SIDE), np.uint8), round((1 - share) / 2 * SIDE)
    mask[rim:-rim, rim:-rim] = 255
    return lambda of: np.asarray(cv2.inpaint(of[0], mask, 5, cv2.INPAINT_TELEA), np.uint8)


def pixelated(cells: int) -> Way:
    return lambda of: np.asarray(Image.fromarray(of[0]).resize((cells, cells), Image.Resampling.BOX))


def jet(picture: Pixels, clip: float) -> Pixels:
    """False colours after equalizing tiles."""
    tiles = cv2.createCLAHE(clip, (8, 8)).apply(grey(picture))
    return np.asarray(cv2.applyColorMap(tiles, cv2.COLORMAP_JET)[..., ::-1], np.uint8)


WAYS: dict[str, Way] = {
    "a crop": lambda of: of[0],
    "false colours": lambda of: np.asarray(cv2.applyColorMap(grey(of[0]), cv2.COLORMAP_JET), np.uint8),
    "false colours, equalized in tiles": lambda of: jet(of[0], 3.0),
    "HSV": lambda of: np.asarray(cv2.cvtColor(of[0], cv2.COLOR_RGB2HSV), np.uint8),
    "edges in one channel": lambda of: np.dstack([grey(of[0]), grey(of[0]), cv2.Canny(of[0], 100, 200)]),
    "red alone": lambda of: of[0] * np.array([1, 0, 0], np.uint8),
    "crop in R, noise in G and B": merged(0, -1, -1),
    "crop in R, photograph in G and B": merged(0, 1, 1),
    "crop in G, photograph in R and B": merged(1, 0, 1),
    "three crops in R, G and B": merged(0, 2, 5),
    "mean of 2 crops": mean(2),
    "mean of 3 crops": mean(3),
    "mean of 4 crops": mean(4),
    "two crops in columns of 2 pixels": mixed(2, rows=False),
    "two crops in a checkerboard of 4 pixels": mixed(4, rows=True),
    "centre of 30 % of the side inpainted": inpainted(0.3),
    "centre of 40 % of the side inpainted": inpainted(0.4),
    "centre of 50 % of the side inpainted": inpainted(0.5),
    "centre of 30 % of the side grey": covered(0.3, 0.35),
    "four grey patches of 22 % of the side": covered(0.22, 0.12, 0.66),
    "pixelated to 20 x 20": lambda of: np.kron(pixelated(20)(of), np.ones((20, 20, 1), np.uint8)),
}


def main() -> None:
    """Print how many looks are verified for each way."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    photos = json.loads((folder / "instances.json").read_text())
    regions = [
        (folder / "images" / photo["file_name"], box)
        for photo in photos["images"]
        for box in [
            one["bbox"]
            for one in photos["annotations"]
            if one["image_id"] == photo["id"]
            and not one["iscrowd"]
            and 0.004 <= one["bbox"][2] * one["bbox"][3] / (photo["width"] * photo["height"]) <= 0.06
            and min(one["bbox"][2:]) >= 24
        ][:1]
    ]
    verified = dict.fromkeys(WAYS, 0)
    for path, (x, y, w, h) in regions:
        source = np.asarray(Image.open(path).convert("RGB"))
        high, wide = source.shape[:2]
        box = (max(0, x - 0.15 * w), max(0, y - 0.15 * h), min(wide, x + 1.15 * w), min(high, y + 1.15 * h))
        corners = [
            (i * wide // 3, j * high // 3, (i + 1) * wide // 3, (j + 1) * high // 3)
            for j in (0, 2)
            for i in (0, 2)
        ]
        places = [
            np.asarray(Image.fromarray(source).resize((SIDE, SIDE), Image.Resampling.BICUBIC, place))
            for place in (box, (0, 0, wide, high), *corners)
        ]
        for name, way in WAYS.items():
            shown = np.ascontiguousarray(way(places))
            size = (shown.shape[1], shown.shape[0])
            verified[name] += check(source, View(shown, size), onto(box, size), box).look == "verified"
    for name, count in verified.items():
        print(f"{name:42s} {count:3d} of {len(regions)}")


if __name__ == "__main__":
    main()
