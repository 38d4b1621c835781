"""COCO instance annotations as perception tasks: detection, grounding and counting.

Ground truths of boxes are integers in 0-1000, relative to width and height, as in V-Triune (appendix A);
`verifier_parm` says so. A photograph gives one question of detection, one of
counting for each category, and one of grounding for each category that is there once. `vtune data make
coco` makes other questions of the same files: regions and counts that a crop helps with.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from vtune.data.coco_scenes import Scene, Thing, countable, photograph, read_scenes
from vtune.data.formats.building import Found, Options, build_sample
from vtune.data.formats.source import Place, files
from vtune.errors import DataError, RecipeError
from vtune.schema.fields import Row
from vtune.schema.message import IMAGE, Picture
from vtune.schema.sample import Sample

FORMAT_RATIO = 0.1
"""Of detection and grounding, as in the published rows of V-Triune."""
SPACE = 1000


def read_coco(path: Path, options: Options) -> Iterator[Found]:
    """Samples of an `instances_*.json`; the row of a place is the number of the photograph, sorted by id.

    Raises:
        DataError: If the file is missing or has another layout.
        RecipeError: If the folder of photographs is not given.
    """
    if options.images is None:
        raise RecipeError("COCO's photographs lie in a folder of their own", fix="name it by --images")
    for file, name in files(path, (".json",)):
        odd: list[tuple[int, DataError]] = []
        scenes, _ = read_scenes(file, odd)
        for number, error in odd:
            yield Place(file, number, name), error
        for number, scene in enumerate(scenes):
            place = Place(file, number, name)
            try:
                for sample in scene_samples(scene, options.images, place):
                    yield place, sample
            except DataError as error:
                yield place, error


def scene_samples(scene: Scene, images: Path, place: Place) -> Iterator[Sample]:
    """The questions about one photograph; none where nothing on it can be counted.

    Raises:
        DataError: If the photograph is missing, damaged or of another size.
    """
    groups = [things for _, things in countable(scene)]
    if not groups and not scene.uncountable:
        return
    # Also where everything is too small to ask about: it may be so because the sizes are wrong.
    picture = Picture(photograph(scene.photo, images), scene.photo.file_name)
    if not groups:
        return
    yield _boxes(
        scene,
        picture,
        place,
        [thing for things in groups for thing in things],
        task="detection",
        identity=scene.photo.identity,
        # Figure 8; how to answer is added by who imports.
        text="Please detect all instances of the following categories within the image:\n"
        + "\n".join(f"- {things[0].category}" for things in groups),
    )
    for things in groups:
        if len(things) == 1:
            yield _boxes(
                scene,
                picture,
                place,
                things,
                task="grounding",
                identity=things[0].identity,
                text=f"Where is the {things[0].category} in the image?",
            )
        yield build_sample(
            place,
            source="coco_counting",
            turns=_turns(f"How many instances of the category '{things[0].category}' are in the image?"),
            images=(picture,),
            ability="counting",
            identity=f"coco_counting/{scene.photo.identity}/{things[0].category}",
            ground_truth=str(len(things)),
            answer=str(len(things)),
            verifier="counting",
            evidence=_evidence(things),
            extra={"image_path": scene.photo.file_name},
        )


def _boxes(
    scene: Scene,
    picture: Picture,
    place: Place,
    things: Sequence[Thing],
    *,
    task: str,
    identity: str,
    text: str,
) -> Sample:
    width, height = scene.photo.width, scene.photo.height
    return build_sample(
        place,
        source=f"coco_{task}",
        turns=_turns(text),
        images=(picture,),
        ability=task,
        identity=f"coco_{task}/{identity}",
        ground_truth=json.dumps([_relative(thing, width, height) for thing in things], ensure_ascii=False),
        verifier=task,
        verifier_parm={"space": "relative_1000", "width": width, "height": height},
        ratios=(1.0, FORMAT_RATIO, 0.0),
        evidence=_evidence(things),
        extra={"image_path": scene.photo.file_name},
    )


def _turns(text: str) -> list[Row]:
    return [{"role": "user", "content": f"{IMAGE}\n{text}"}]


def _evidence(things: Sequence[Thing]) -> list[Row]:
    return [{"label": thing.category, "image": 0, "bbox_2d": list(thing.box)} for thing in things]


def _relative(thing: Thing, width: int, height: int) -> Row:
    sides = [round(side * SPACE / size) for side, size in zip(thing.box, (width, height) * 2, strict=True)]
    return {"label": thing.category, "bbox_2d": sides}
