"""COCO instance annotations as samples: two kinds of questions about real photographs.

*Which object is in this region* gives a pixel box and four categories; its evidence is that box. *How many X
are there* is answered by a number; its evidence is the boxes of all X. The two kinds alternate. Regions cycle
through the categories and counts through the answers, so that neither persons nor the answer 1 dominates the
file.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import TypeVar

from vtune.data.coco_scenes import Question, countable, photograph, read_scenes
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.sample import Evidence, Sample
from vtune.tools.python import NAME as PYTHON
from vtune.verifiers import choice, exact

CHOICES = 4
TOOL_RATIO = 0.5
"""Weight of the evidence reward, as in the lens puzzles (ours)."""


def coco_samples(
    instances: Path, images: Path, *, limit: int | None, seed: int, passed_over: Counter[str] | None = None
) -> Iterator[Sample]:
    """Samples of an annotated folder of photographs; the same arguments give the same samples.

    Args:
        instances: A COCO `instances_*.json`. No questions are asked about crowds or boxes under 16 px a side.
        images: The folder of its photographs. Samples store the original bytes.
        limit: Maximum number of samples, regions and counts alternating; None for all.
        seed: Shuffles questions and options.
        passed_over: Counts what no question is asked about, by reason, regardless of `limit`.

    Raises:
        DataError: If the JSON or a photograph is missing, broken or of another size than it says.
    """
    rng = random.Random(seed)
    passed_over = Counter() if passed_over is None else passed_over
    scenes, categories = read_scenes(instances, passed_over=passed_over)
    regions = [(scene, (thing,)) for scene in scenes for thing in scene.things]
    counts = [group for scene in scenes for group in countable(scene)]
    passed_over["photographs without a box to ask about"] += sum(not scene.things for scene in scenes)
    passed_over["counts that nobody can be sure of"] += sum(len(scene.uncountable) for scene in scenes)
    by_category = _round_robin(regions, [things[0].category for _, things in regions], rng)
    by_answer = _round_robin(counts, [len(things) for _, things in counts], rng)
    for number, (kind, question) in enumerate(_in_turn(by_category, by_answer)):
        if number == limit:
            return
        yield _region(question, categories, images, rng) if kind == 0 else _count(question, images)


def _region(question: Question, categories: Sequence[str], images: Path, rng: random.Random) -> Sample:
    scene, (thing,) = question
    # Only categories that appear nowhere in the picture: the region may well show part of a neighbour.
    present = {other.category for other in scene.things} | scene.uncountable
    absent = [category for category in categories if category not in present]
    options = [thing.category, *rng.sample(absent, min(CHOICES - 1, len(absent)))]
    rng.shuffle(options)
    letter = ascii_uppercase[options.index(thing.category)]
    listed = "\n".join(f"{mark}. {option}" for mark, option in zip(ascii_uppercase, options, strict=False))
    corners = ", ".join(str(round(side)) for side in thing.box)
    return _sample(
        question,
        images,
        identity=f"coco_region/{thing.identity}",
        source="coco_region",
        ability="visual_search",
        text=f"Which object is in the region [{corners}] (x0, y0, x1, y1 in pixels)?\n{listed}",
        ground_truth=letter,
        answer=thing.category,
        verifier=choice.NAME,
        choices=tuple(options),
    )


def _count(question: Question, images: Path) -> Sample:
    scene, things = question
    category, number = things[0].category, str(len(things))
    return _sample(
        question,
        images,
        identity=f"coco_count/{scene.photo.identity}/{category}",
        source="coco_count",
        ability="counting",
        text=f"How many instances of the category '{category}' are there? Answer with a number.",
        ground_truth=number,
        answer=number,
        verifier=exact.NAME,
    )


def _sample(
    question: Question,
    images: Path,
    *,
    identity: str,
    source: str,
    ability: str,
    text: str,
    ground_truth: str,
    answer: str,
    verifier: str,
    choices: tuple[str, ...] = (),
) -> Sample:
    scene, things = question
    return Sample(
        id=identity,
        source=source,
        prompt=(Message("user", f"{IMAGE}\n{text}", (0,)),),
        images=(Picture(data=photograph(scene.photo, images)),),
        ability=ability,
        ground_truth=ground_truth,
        answer=answer,
        verifier=verifier,
        tool_ratio=TOOL_RATIO,
        tools=(PYTHON,),
        evidence=tuple(Evidence(thing.category, 0, thing.box) for thing in things),
        choices=choices,
        extra={"image_path": scene.photo.file_name},
    )


T = TypeVar("T")


def _round_robin(items: Sequence[T], keys: Sequence[Hashable], rng: random.Random) -> list[T]:
    """All items, shuffled, taking one of each key in turn until every key runs out."""
    heaps: dict[Hashable, list[T]] = defaultdict(list)
    for item, key in zip(items, keys, strict=True):
        heaps[key].append(item)
    for heap in heaps.values():
        rng.shuffle(heap)
    order = list(heaps.values())
    rng.shuffle(order)
    most = max(map(len, order), default=0)
    return [heap[turn] for turn in range(most) for heap in order if turn < len(heap)]


def _in_turn(*kinds: Sequence[T]) -> Iterator[tuple[int, T]]:
    """(kind, item), one of each kind in turn, until all are used."""
    for turn in range(max(map(len, kinds), default=0)):
        for kind, items in enumerate(kinds):
            if turn < len(items):
                yield kind, items[turn]
