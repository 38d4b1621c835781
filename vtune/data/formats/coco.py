"""Instance annotations in COCO's layout as perception tasks: detection, grounding and counting.

Ground truths of boxes are integers in 0-1000, relative to width and height, as in V-Triune (appendix A);
`verifier_parm` says so. A COCO photograph gives one detection question, one counting question per category,
and one grounding question per category that appears exactly once. V3Det and Objects365 give only detection,
as in V-Triune: some of their many categories contain others (a cup, a mug), so counts are uncertain. `vtune
data make coco` makes other questions from COCO's files: regions and counts for which a crop helps.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vtune.data.coco_scenes import (
    MIN_SIDE,
    Scene,
    Thing,
    countable,
    detection_question,
    photograph,
    read_scenes,
)
from vtune.data.formats import specimens
from vtune.data.formats.building import Found, Options, build_sample
from vtune.data.formats.source import Place, files
from vtune.data.formats.table import FORMATS, Format, Glance
from vtune.errors import DataError, RecipeError
from vtune.schema.fields import Row
from vtune.schema.message import IMAGE, Picture
from vtune.schema.sample import Sample
from vtune.verifiers import counting, detection, grounding

FORMAT_RATIO = 0.1
"""Weight of the format in detection and grounding, as in the published rows of V-Triune."""
SPACE = 1000
PHOTOGRAPHS = "its photographs with --images"
UNCERTAIN = (
    "categories of photographs whose number there is uncertain (crowds, or objects that are fake, reflected "
    f"or under {MIN_SIDE} px a side)"
)
"""What no question is asked about."""
TASKS = (detection.NAME, grounding.NAME, counting.NAME)
"""Each is also the name of the verifier that judges it."""


@dataclass(frozen=True, slots=True)
class Collection:
    """A dataset annotated in COCO's layout."""

    name: str
    tasks: tuple[str, ...]
    """The tasks made for each photograph."""
    optional_folders: int
    """How many leading folders of its paths are missing in some copies of the photographs."""
    named_photographs: bool
    """Whether samples identify a photograph by its path; otherwise by its id in the JSON."""

    def source(self, task: str) -> str:
        """`data_source` of a task: just the name if there is only one task."""
        return f"{self.name}_{task}" if len(self.tasks) > 1 else self.name


COCO = Collection("coco", TASKS, optional_folders=0, named_photographs=False)
# Paths are `images/n07745046/21_371_….jpg`, ids count from 1 in each split.
V3DET = Collection("v3det", (detection.NAME,), optional_folders=1, named_photographs=True)
# Paths are `images/v1/patch8/objects365_v1_00420917.jpg`; archives unpack to `patch8/…`, or into one flat
# folder.
OBJECTS365 = Collection("objects365", (detection.NAME,), optional_folders=3, named_photographs=True)


def read_coco(path: Path, options: Options) -> Iterator[Found]:
    """Samples of COCO's `instances_*.json`."""
    return read_annotated(path, options, COCO)


def read_v3det(path: Path, options: Options) -> Iterator[Found]:
    """Samples of V3Det's `v3det_2023_v1_*.json`."""
    return read_annotated(path, options, V3DET)


def read_objects365(path: Path, options: Options) -> Iterator[Found]:
    """Samples of Objects365's `zhiyuan_objv2_*.json`."""
    return read_annotated(path, options, OBJECTS365)


def read_annotated(path: Path, options: Options, collection: Collection) -> Iterator[Found]:
    """Samples of annotations; a place's row is the photograph's number when sorted by id.

    Raises:
        DataError: If the file is missing or has another layout.
        RecipeError: If the folder of photographs is not given.
    """
    if options.images is None:
        raise RecipeError(
            f"the photographs of {collection.name} are in a separate folder", fix="name it with --images"
        )
    for file, name in files(path, (".json",)):
        odd: list[tuple[int, DataError]] = []
        scenes, _ = read_scenes(file, odd)
        for number, error in odd:
            yield Place(file, number, name), error
        for number, scene in enumerate(scenes):
            for category in scene.uncountable:
                options.passed_over(UNCERTAIN, category)
            place = Place(file, number, name)
            try:
                for sample in scene_samples(scene, options.images, place, collection):
                    yield place, sample
            except DataError as error:
                yield place, error


def scene_samples(scene: Scene, images: Path, place: Place, collection: Collection) -> Iterator[Sample]:
    """The questions about one photograph; empty if nothing on it can be counted.

    Raises:
        DataError: If the photograph is missing, damaged or of the wrong size.
    """
    groups = [things for _, things in countable(scene)]
    if not groups and not scene.uncountable:
        return
    # Checked even if everything is too small to ask about: wrong sizes could be the reason.
    data = photograph(scene.photo, images, optional_folders=collection.optional_folders)
    if not groups:
        return
    asking = _Asking(scene, Picture(data, scene.photo.file_name), place, collection)
    yield asking.boxes(
        detection.NAME,
        asking.photograph,
        detection_question(things[0].category for things in groups),
        [thing for things in groups for thing in things],
    )
    for things in groups:
        category = things[0].category
        if grounding.NAME in collection.tasks and len(things) == 1:
            question = f"Where is the {category} in the image?"
            yield asking.boxes(grounding.NAME, things[0].identity, question, things)
        if counting.NAME in collection.tasks:
            question = f"How many instances of the category '{category}' are in the image?"
            yield asking.count(f"{asking.photograph}/{category}", question, things)


@dataclass(frozen=True, slots=True)
class _Asking:
    """What all questions about a photograph share."""

    scene: Scene
    picture: Picture
    place: Place
    collection: Collection

    @property
    def photograph(self) -> str:
        """The photograph's id."""
        photo = self.scene.photo
        if not self.collection.named_photographs:
            return photo.identity
        return PurePosixPath(photo.file_name).with_suffix("").as_posix().removeprefix("images/")

    def boxes(self, task: str, identity: str, question: str, things: Sequence[Thing]) -> Sample:
        """A question whose answer is the boxes of the things."""
        width, height = self.scene.photo.width, self.scene.photo.height
        truth = json.dumps([_relative(thing, width, height) for thing in things], ensure_ascii=False)
        parm = {"space": "relative_1000", "width": width, "height": height}
        return self._sample(
            task, identity, question, things, truth=truth, parm=parm, format_ratio=FORMAT_RATIO
        )

    def count(self, identity: str, question: str, things: Sequence[Thing]) -> Sample:
        """A question whose answer is the number of things."""
        return self._sample(counting.NAME, identity, question, things, truth=str(len(things)))

    def _sample(
        self,
        task: str,
        identity: str,
        question: str,
        things: Sequence[Thing],
        *,
        truth: str,
        parm: Row | None = None,
        format_ratio: float = 0.0,
    ) -> Sample:
        source = self.collection.source(task)
        novel = sorted({thing.category for thing in things if thing.novel})
        return build_sample(
            self.place,
            source=source,
            turns=[{"role": "user", "content": f"{IMAGE}\n{question}"}],
            images=(self.picture,),
            ability=task,
            identity=f"{source}/{identity}",
            ground_truth=truth,
            answer=truth if task == counting.NAME else "",
            verifier=task,
            verifier_parm=parm,
            ratios=(1.0, format_ratio, 0.0),
            evidence=[{"label": thing.category, "image": 0, "bbox_2d": list(thing.box)} for thing in things],
            extra={"image_path": self.scene.photo.file_name} | ({"novel": novel} if novel else {}),
        )


def _relative(thing: Thing, width: int, height: int) -> Row:
    sides = [round(side * SPACE / size) for side, size in zip(thing.box, (width, height) * 2, strict=True)]
    return {"label": thing.category, "bbox_2d": sides}


def is_annotated(glance: Glance) -> bool:
    """Whether a file has COCO's layout, which many box datasets use."""
    return '"annotations"' in glance.head or '"categories"' in glance.head


FORMATS.add(
    "coco",
    Format(
        read_coco,
        f"instances_*.json of COCO; {PHOTOGRAPHS}",
        takes=("images", "tools"),
        own_questions=True,
        looks=is_annotated,
        specimen=specimens.coco,
    ),
)
FORMATS.add(
    "v3det",
    Format(
        read_v3det,
        f"v3det_2023_v1_*.json of V3Det; {PHOTOGRAPHS}",
        takes=("images", "tools"),
        own_questions=True,
        shares=lambda options: (is_annotated,),
        specimen=specimens.v3det,
    ),
)
FORMATS.add(
    "objects365",
    Format(
        read_objects365,
        f"zhiyuan_objv2_*.json of Objects365; {PHOTOGRAPHS}",
        takes=("images", "tools"),
        own_questions=True,
        aliases=("object365",),
        shares=lambda options: (is_annotated,),
        specimen=specimens.objects365,
    ),
)
