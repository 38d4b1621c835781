"""A picture with structure at all scales, and regions in it."""

import cv2
import numpy as np

from vtune.looks.agreement import Pixels


def scene(width: int = 480, height: int = 360, seed: int = 0) -> Pixels:
    """Overlaid coloured blotches of four sizes with hard edges: as busy as a photograph."""
    rng = np.random.default_rng(seed)
    total = np.zeros((height, width, 3), np.float32)
    for cells, weight in ((6, 1.0), (20, 0.7), (60, 0.5), (160, 0.3)):
        blotches = rng.normal(0, 1, (cells * 3 // 4, cells, 3)).astype(np.float32)
        total += weight * cv2.resize(blotches, (width, height), interpolation=cv2.INTER_CUBIC)
    total = np.where(total > 0.8, total + 1, total)
    return np.clip(128 + 45 * total, 0, 255).astype(np.uint8)


SCENE = scene()
BOX = (120.0, 80.0, 250.0, 190.0)


def crop(box: tuple[float, float, float, float] = BOX, of: Pixels = SCENE) -> Pixels:
    x0, y0, x1, y1 = map(int, box)
    return np.ascontiguousarray(of[y0:y1, x0:x1])
