import asyncio
import dataclasses
import io

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from tests.reward.build import INPUT, LEVELS, PIXELS, TARGET, encode, looks, noise
from vtune.errors import DataError
from vtune.reward.flags import call_flags
from vtune.sandbox import Limits, Sandbox
from vtune.schema.box import Box
from vtune.schema.message import Picture
from vtune.schema.remembered import Remembered
from vtune.schema.trajectory import Call, Crop, Trajectory

MARKED = PIXELS.copy()
MARKED[20, 10:90] = [255, 0, 0]


def decode(picture: Picture) -> np.ndarray:
    assert picture.data is not None
    return np.asarray(Image.open(io.BytesIO(picture.data)))


def flags(trajectory: Trajectory) -> list[tuple[str, ...]]:
    return [call_flags(trajectory, k, LEVELS) for k in range(len(trajectory.calls))]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        pytest.param([(40, 40, 60, 60)], [()], id="a look"),
        pytest.param([(0, 0, 100, 100)], [("whole_image",)], id="whole image"),
        pytest.param([(0, 0, 95, 95)], [("whole_image",)], id="nearly the whole image"),
        pytest.param([(0, 0, 90, 90)], [()], id="a large part"),
        pytest.param(
            [(10, 10, 50, 50), (10, 10, 50, 50)], [(), ("repeated_crop",)], id="the same crop again"
        ),
        pytest.param([(10, 10, 50, 50), (10, 10, 50, 51)], [(), ("repeated_crop",)], id="one pixel more"),
        pytest.param([(10, 10, 50, 50), (20, 20, 40, 40)], [(), ()], id="closer"),
        pytest.param([INPUT], [("scratchpad",)], id="the input, saved again"),
        pytest.param([Picture(encode(PIXELS, "JPEG"))], [("scratchpad",)], id="the input, as JPEG"),
        pytest.param([Picture(encode(np.rot90(PIXELS)))], [()], id="the input, turned"),
        pytest.param([Picture(encode(MARKED))], [()], id="the input, with a line drawn"),
        pytest.param(["error"], [("sandbox_error",)], id="error"),
        pytest.param(["blocked"], [("sandbox_error",)], id="blocked"),
        pytest.param(["timeout"], [("sandbox_error",)], id="timeout"),
        pytest.param(["killed"], [("sandbox_error",)], id="killed"),
        pytest.param(["infra"], [()], id="our failure is not a flag"),
        pytest.param(["limit"], [()], id="nor is a limit that the prompt does not mention"),
        pytest.param(["ok"], [()], id="printing only is not a flag"),
    ],
)
def test_calls_get_the_expected_flags(calls: list[object], expected: list[tuple[str, ...]]) -> None:
    assert flags(looks(*calls)) == expected  # type: ignore[arg-type]


def test_a_call_refused_by_a_tool_is_not_flagged_as_a_sandbox_failure() -> None:
    (call,) = looks("error").calls
    for tool in ("rotate_tool", "image_zoom_in_tool", "invalid"):
        refused = dataclasses.replace(looks("error"), calls=(dataclasses.replace(call, tool=tool),))
        assert flags(refused) == [("bad_call",)]


def reworked(*boxes: Box) -> Trajectory:
    """Crops returned upside down, as reported by the sandbox."""
    plain = looks(*boxes)
    images = [
        Picture(encode(decode(picture)[::-1, ::-1]), origin=picture.origin) for picture in plain.images[1:]
    ]
    return dataclasses.replace(plain, images=(INPUT, *images))


def test_only_a_repeated_operation_on_a_picture_or_crop_is_flagged() -> None:
    assert flags(reworked((0, 0, 100, 100))) == [()]
    assert flags(reworked((10, 10, 50, 50), (10, 10, 50, 50))) == [(), ("scratchpad",)]
    plain, turned = looks((10, 10, 50, 50), (10, 10, 50, 50)), reworked((10, 10, 50, 50), (10, 10, 50, 50))
    mixed = dataclasses.replace(plain, images=(*plain.images[:2], turned.images[2]))
    assert flags(mixed) == [(), ()]


def test_two_places_that_look_the_same_are_two_looks() -> None:
    sky = Picture(encode(np.full((100, 100, 3), 200, np.uint8)))
    trajectory = looks((0, 0, 40, 40), (60, 60, 100, 100))
    blue = Picture(encode(np.full((40, 40, 3), 200, np.uint8)), origin="call:0")
    assert flags(dataclasses.replace(trajectory, images=(sky, blue, blue))) == [(), ()]


def test_a_whole_image_is_recognised_with_one_decoding_of_each_picture() -> None:
    """So a puzzle of 448 pixels takes less than 5 ms, nearly all of it decoding.

    The check of the look reuses the decoded pictures. Here the crop is the same file as its source.
    """
    trajectory = looks((0, 0, 100, 100))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vtune.schema.decoded._pictures", Remembered(1 << 30, lambda *_: 1))
        opened = []
        load = PngImageFile.load

        def counted(image: PngImageFile) -> object:
            if image.tile:
                opened.append(image)
            return load(image)

        patch.setattr(PngImageFile, "load", counted)
        assert flags(trajectory) == [("whole_image",)]
    assert len(opened) == 1


HABITS = {
    "saved again": (["image.save('a.png')"], [("whole_image",)]),
    "saved as JPEG": (["image.save('a.jpg')"], [("whole_image",)]),
    "file copied": (["import shutil\nshutil.copy(image_path, 'a.png')"], [("whole_image",)]),
    "cropped whole": (["image.crop((0, 0, *image.size)).save('a.png')"], [("whole_image",)]),
    "cropped nearly whole": (["image.crop((5, 4, 395, 296)).save('a.png')"], [("whole_image",)]),
    "cropped a large part": (["image.crop((0, 0, 370, 290)).save('a.png')"], [()]),
    "enlarged whole": (["image.resize((800, 600)).save('a.png')"], [("whole_image",)]),
    "reduced whole": (["image.resize((200, 150), Image.NEAREST).save('a.png')"], [("whole_image",)]),
    "read and written by OpenCV": (["cv2.imwrite('a.png', cv2.imread(image_path))"], [("whole_image",)]),
    "turned": (["image.rotate(180).save('a.png')"], [()]),
    "turned by a quarter": (["image.rotate(90, expand=True).save('a.png')"], [()]),
    "contrast": (
        ["from PIL import ImageEnhance\nImageEnhance.Contrast(image).enhance(3).save('a.png')"],
        [()],
    ),
    "box drawn": (
        [
            "from PIL import ImageDraw\n"
            "ImageDraw.Draw(image).rectangle((90, 90, 150, 150), outline='red', width=3)\n"
            "image.save('a.png')"
        ],
        [()],
    ),
    "edges": (["cv2.imwrite('a.png', cv2.Canny(cv2.imread(image_path), 50, 150))"], [()]),
    "two operations": (["image.rotate(180).save('a.png')", "image.convert('L').save('b.png')"], [(), ()]),
    "one crop, then in grey": (
        ["image.crop((9, 9, 99, 99)).save('a.png')", "image.crop((9, 9, 99, 99)).convert('L').save('b.png')"],
        [(), ()],
    ),
    "one crop twice": (["image.crop((9, 9, 99, 99)).save('a.png')"] * 2, [(), ("repeated_crop",)]),
    "one crop, then enlarged": (
        [
            "image.crop((9, 9, 99, 99)).save('a.png')",
            "image.crop((9, 9, 99, 99)).resize((300, 300)).save('b.png')",
        ],
        [(), ()],
    ),
    "one crop, then its file enlarged": (
        ["image.crop((9, 9, 99, 99)).save('a.png')", "Image.open('a.png').resize((180, 180)).save('b.png')"],
        [(), ()],
    ),
    "one crop, then enlarged by a hair": (
        [
            "image.crop((9, 9, 99, 99)).save('a.png')",
            "image.crop((9, 9, 99, 99)).resize((105, 105)).save('b.png')",
        ],
        [(), ("repeated_crop",)],
    ),
    "one crop enlarged, then as it was": (
        [
            "image.crop((9, 9, 99, 99)).resize((300, 300)).save('a.png')",
            "image.crop((9, 9, 99, 99)).save('b.png')",
        ],
        [(), ("repeated_crop",)],
    ),
    "one crop enlarged twice alike": (
        ["image.crop((9, 9, 99, 99)).save('a.png')"]
        + ["image.crop((9, 9, 99, 99)).resize((300, 300)).save('b.png')"] * 2,
        [(), (), ("repeated_crop",)],
    ),
    "a turned crop, then enlarged": (
        [
            "image.crop((9, 9, 99, 99)).rotate(90).save('a.png')",
            "image.crop((9, 9, 99, 99)).rotate(90).resize((300, 300)).save('b.png')",
        ],
        [(), ()],
    ),
    "a turned picture read and saved": (
        ["image.rotate(180).save('a.png')", "Image.open('a.png').save('b.png')"],
        [(), ("scratchpad",)],
    ),
    "a drawing read and saved": (
        ["d = Image.new('RGB', (50, 50), 'red')\nd.save('a.png')", "Image.open('a.png').save('b.jpg')"],
        [(), ("scratchpad",)],
    ),
}
"""Code for each call, and the expected flags."""


@pytest.fixture(scope="module")
def called() -> dict[str, Trajectory]:
    """The result of each habit on a picture of 400 x 300 pixels in the real sandbox."""
    source = encode(noise(400, 300, 2))

    async def run(sandbox: Sandbox, codes: list[str]) -> Trajectory:
        images, calls = [Picture(source)], []
        async with await sandbox.open([source], seed=0) as session:
            for k, code in enumerate(codes):
                done = await session.run(code)
                assert done.status == "ok", done.error
                first = len(images)
                images += [Picture(data, origin=f"call:{k}") for data in done.images]
                crops = tuple(
                    Crop(crop.image, crop.bbox, None if crop.shown is None else first + crop.shown)
                    for crop in done.crops
                )
                shown = tuple(range(first, len(images)))
                calls.append(Call(tool="python", arguments="{}", status="ok", images=shown, crops=crops))
        return looks(images=tuple(images), calls=tuple(calls))

    async def story() -> dict[str, Trajectory]:
        async with Sandbox(Limits()) as sandbox:
            return {name: await run(sandbox, codes) for name, (codes, _) in HABITS.items()}

    return asyncio.run(story())


@pytest.mark.parametrize("name", HABITS)
def test_sandbox_results_get_the_expected_flags(called: dict[str, Trajectory], name: str) -> None:
    assert all(call.images for call in called[name].calls)
    assert flags(called[name]) == HABITS[name][1]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param((80, 80), ("repeated_crop",), id="the policy's processor shows it no larger"),
        pytest.param((96, 96), ("repeated_crop",), id="or hardly larger"),
        pytest.param((104, 104), (), id="a closer look"),
    ],
)
def test_a_second_look_counts_as_closer_if_the_policy_sees_it_larger(
    seen: tuple[int, int], expected: tuple[str, ...]
) -> None:
    twice = looks(TARGET, TARGET)
    assert twice.images[1].seen == (80, 80)
    enlarged = encode(np.asarray(Image.fromarray(decode(twice.images[2])).resize((200, 200))))
    closer = dataclasses.replace(twice.images[2], data=enlarged, seen=seen)
    assert flags(dataclasses.replace(twice, images=(*twice.images[:2], closer))) == [(), expected]


def test_returning_an_earlier_calls_picture_is_a_scratchpad() -> None:
    first = looks((10, 10, 50, 50))
    again = looks((10, 10, 50, 50), first.images[1])
    assert flags(again) == [(), ("scratchpad",)]


def test_a_crop_that_is_never_shown_has_no_flag() -> None:
    trajectory = looks((0, 0, 100, 100))
    hidden = dataclasses.replace(trajectory.calls[0], crops=(Crop(0, (0, 0, 100, 100)),), images=())
    assert flags(dataclasses.replace(trajectory, calls=(hidden,))) == [()]


def test_flags_do_not_depend_on_the_policys_text() -> None:
    trajectory = looks((0, 0, 100, 100), "error")
    assert flags(trajectory) == flags(dataclasses.replace(trajectory, messages=()))


def test_an_unreadable_picture_is_our_error() -> None:
    trajectory = looks((10, 10, 50, 50))
    broken = dataclasses.replace(trajectory, images=(Picture(b"no picture"), *trajectory.images[1:]))
    with pytest.raises(DataError, match="decoded"):
        flags(broken)
