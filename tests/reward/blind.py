"""A table of box-based audits of policies that look at their target, and of blind ones.

    python -m tests.reward.blind COCO

takes a folder with COCO's `instances.json` and `images`, and uses the first medium-sized object of each
picture (0.4 to 6 % of the area, at least 24 pixels per side). No model is involved.
"""

import argparse
import asyncio
import io
import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from tests.reward.build import RIGHT, recipe, sample
from vtune.metrics.faithfulness import faithfulness
from vtune.reward.audit import AuditRow, audit, with_chance
from vtune.reward.score import Scorer
from vtune.schema.box import Box
from vtune.schema.message import Message, Picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, Crop, Trajectory

Region = tuple[int, int, int, int]


def halves(width: int, height: int, _: Box, __: random.Random) -> list[list[Region]]:
    """Two calls, each with five strips of one half."""
    ends = [height * n // 5 for n in range(6)]
    rows = list(itertools.pairwise(ends))
    return [[(x, y0, x + width // 2, y1) for y0, y1 in rows] for x in (0, width // 2)]


def quarter(width: int, height: int, _: Box, chance: random.Random) -> list[list[Region]]:
    """One crop of half the width and height at a random place."""
    x, y = chance.randint(0, width // 2), chance.randint(0, height // 2)
    return [[(x, y, x + width // 2, y + height // 2)]]


def at_target(width: int, height: int, box: Box, _: random.Random) -> list[list[Region]]:
    """One crop of the target, with a margin of 15 %."""
    x, y = 0.15 * (box[2] - box[0]), 0.15 * (box[3] - box[1])
    ends = (max(0, box[0] - x), max(0, box[1] - y), min(width, box[2] + x), min(height, box[3] + y))
    return [[tuple(map(round, ends))]]  # type: ignore[list-item]


POLICIES: dict[str, Callable[[int, int, Box, random.Random], list[list[Region]]]] = {
    "crops the target": at_target,
    "blind: two calls, five strips of a half each": halves,
    "blind: a crop of a quarter, somewhere": quarter,
}


def questions(coco: Path) -> list[Sample]:
    """One question per picture with such an object."""
    said = json.loads((coco / "instances.json").read_text())
    found = []
    for picture in said["images"]:
        for one in said["annotations"]:
            x, y, width, height = one["bbox"]
            size = width * height / (picture["width"] * picture["height"])
            if one["image_id"] != picture["id"] or one["iscrowd"] or min(width, height) < 24:
                continue
            if 0.004 <= size <= 0.06:
                data = (coco / "images" / picture["file_name"]).read_bytes()
                shown = Picture(data, seen=(picture["width"], picture["height"]))
                box = (x, y, x + width, y + height)
                found.append(sample(box, id=str(picture["id"]), source="coco", images=(shown,)))
                break
    return found


def played(one: Sample, calls: list[list[Region]]) -> Trajectory:
    """A trajectory with these calls, which return their regions at twice the size."""
    scene = Image.open(io.BytesIO(one.images[0].data or b"")).convert("RGB")
    pictures, made = [*one.images], []
    for k, regions in enumerate(calls):
        crops = []
        for region in regions:
            out = io.BytesIO()
            scene.crop(region).save(out, "PNG")
            size = (2 * (region[2] - region[0]), 2 * (region[3] - region[1]))
            crops.append(Crop(0, tuple(map(float, region)), len(pictures)))  # type: ignore[arg-type]
            pictures.append(Picture(out.getvalue(), origin=f"call:{k}", seen=size))
        images = tuple(crop.shown for crop in crops if crop.shown is not None)
        made.append(Call(tool="python", arguments="{}", status="ok", images=images, crops=tuple(crops)))
    turns = (Message("user", "?"), Message("assistant", RIGHT))
    return Trajectory(
        sample_id=one.id, source=one.source, messages=turns, images=tuple(pictures), calls=tuple(made)
    )


async def audited(asked: list[Sample], name: str) -> list[AuditRow]:
    """The audit's result for one policy."""
    chance = random.Random(0)
    drawn = []
    for one in asked:
        width, height = Image.open(io.BytesIO(one.images[0].data or b"")).size
        drawn.append(played(one, POLICIES[name](width, height, one.evidence[0].bbox, chance)))
    async with Scorer(recipe()) as scorer:
        rows = await audit(asked, await scorer.score(asked, drawn), scorer.judges)
        return with_chance(rows, scorer.judges.levels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("coco", type=Path)
    asked = questions(parser.parse_args().coco)
    print(f"| policy, {len(asked)} photographs | faithful, of the correct | by chance |\n|---|---|---|")
    for name in POLICIES:
        found = faithfulness(asyncio.run(audited(asked, name)), seed=0, max_unaudited=0.0)
        shares = (found.faithful_of_correct, found.faithful_by_chance)
        cells = [f"{100 * one.value:.0f} [{100 * one.low:.0f}, {100 * one.high:.0f}]" for one in shares]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
