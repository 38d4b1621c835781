"""Processes that serve one session after another."""

import asyncio
import io
import mmap
import os
import signal
from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np
import PIL.Image
import pytest
from PIL import ImageCms
from PIL.PngImagePlugin import PngInfo

from tests.sandbox.conftest import QUICK, Box, encoded, picture, running, textured
from tests.sandbox.test_contained import CONTAINED
from vtune.sandbox import Execution, Limits, Sandbox
from vtune.schema.decoded import decoded


@pytest.fixture(scope="module")
def one() -> Iterator[Box]:
    """A sandbox that keeps one process, and forks no others ahead."""
    with running(Limits(), warm=1) as box:
        yield box


def pid_of(
    box: Box, *codes: str, raw: bool = False, content: bytes | None = None
) -> tuple[int, list[Execution]]:
    async def story() -> tuple[int, list[Execution]]:
        async with await box.sandbox.open([content or textured()], seed=0) as session:
            found = [await session.run(code, raw=raw) for code in codes]
            return session.pid, found

    return box.runner.run(story())


def facts(execution: Execution) -> dict[str, object]:
    return {
        field.name: getattr(execution, field.name) for field in fields(execution) if field.name != "seconds"
    }


def test_a_process_whose_code_was_contained_serves_the_next_session(one: Box) -> None:
    first, _ = pid_of(one, CONTAINED["crop"], CONTAINED["opened"])
    assert pid_of(one)[0] == first
    assert pid_of(one, "print(1)")[0] == first


def test_whatever_contained_code_ran_before_a_session_is_as_in_a_new_process(one: Box) -> None:
    async def story() -> list[Execution]:
        async with Sandbox(warm=0, decode="host") as sandbox:
            found = []
            for code in CONTAINED.values():
                async with await sandbox.open([textured()], seed=0) as session:
                    found.append(await session.run(code))
            return found

    new = asyncio.run(story())
    assert {execution.status for execution in new} == {"ok"}
    pids = set()
    for _ in range(2):
        for code, expected in zip(CONTAINED.values(), new, strict=True):
            pid, (found,) = pid_of(one, code)
            pids.add(pid)
            assert facts(found) == facts(expected), code
    assert len(pids) == 1


LEFT = """
print(sorted(n for n in globals() if n[0] != '_'), sorted(os.listdir('.')), random.random(), np.random.rand())
print(len(images), image.size)
image.crop((0, 0, 50, 50)).save('a.png')
"""


def test_nothing_of_the_session_before_is_left(one: Box) -> None:
    expected = pid_of(one, LEFT)[1][0]
    codes = (
        "crop = image.crop((10, 10, 60, 60))\ncrop.save('a.png')",
        "secret = 5\nimages.append(crop)\nimage = crop\nimage_path = 'x'\ndisplay(crop)",
        "cv2.imwrite('b.png', np.asarray(crop))\nprint(secret)",
    )
    before, ran = pid_of(one, *codes)
    assert [execution.status for execution in ran] == ["ok"] * 3
    after, (found,) = pid_of(one, LEFT)
    assert after == before
    assert facts(found) == facts(expected)


def test_files_of_one_session_are_not_open_in_the_next(one: Box) -> None:
    """A list that contains itself lives until it is garbage collected, as does a stored exception."""
    hold = "x = []\nx.append(x)\nfor number in range(50):\n    x.append(Image.open(image_path))"
    before, (held,) = pid_of(one, hold)
    after, (found,) = pid_of(one, "print(len([Image.open(image_path) for i in range(30)]))")
    assert (held.status, after) == ("ok", before)
    assert found.output == "30"


def test_what_one_session_printed_and_drew_is_not_read_by_the_next(one: Box) -> None:
    secret = "print('a secret', [image.crop((0, 0, 400, 300)) for i in range(5)])"
    before, _ = pid_of(one, secret)
    drawn = "np.count_nonzero(np.empty((300, 400, 3), np.uint8))"
    read = f"import os\nprint(os.pread(1, 1000, 0).count(b'a secret'), {drawn})"
    # Black: what the session itself has read and decoded does not count.
    after, (found,) = pid_of(one, read, content=encoded(np.zeros((300, 400, 3), np.uint8)))
    assert after == before
    texts, pixels = map(int, found.output.split())
    assert texts == 0
    # Memory is returned in pages: at each end of a free block, part of a page stays.
    assert pixels < 2 * mmap.PAGESIZE


def test_a_picture_without_a_colour_is_black_and_shows_nothing_of_another_session(one: Box) -> None:
    pid_of(one, "parts = [image.crop((i, 0, i + 40, 40)) for i in range(200)]\nprint(len(parts))")
    blank = "print([np.asarray(Image.new('RGB', (40, 40), None)).max() for i in range(50)] == [0] * 50)"
    assert pid_of(one, blank)[1][0].output == "True"


def test_a_format_of_one_session_is_not_that_of_an_ending_in_the_next(one: Box) -> None:
    code = "image.crop((0, 0, 50, 50)).save('a.jpg')"
    expected = pid_of(one, code)[1][0]
    assert expected.names == ("a.jpg",)
    pid_of(one, "try:\n    image.save('b.jpg', 'SPIDER')\nexcept Exception:\n    print('refused')")
    assert facts(pid_of(one, code)[1][0]) == facts(expected)


def test_a_warning_comes_again_in_the_next_session(one: Box) -> None:
    """Python issues it once per place in a library, and there is only one library."""
    paletted = PIL.Image.new("P", (40, 40))
    file = io.BytesIO()
    paletted.putpalette([0, 0, 0, 9, 9, 9])
    paletted.save(file, "PNG", transparency=b"\x00\x80")
    code = "print(Image.open(image_path).convert('RGB').size)"
    first, second = (one.one(code, [file.getvalue()]) for _ in range(2))
    assert "UserWarning" in first.output
    assert facts(second) == facts(first)


@pytest.mark.parametrize(
    "codes",
    [
        ("import sys",),
        ("import sys", "x = 1"),
        ("x = 1", "def f(): pass"),
        ("x = 1 / 0",),
        ("nothing.crop((0, 0, 1, 1))",),
        ("image.crop((0, 0, 9, 9)).save('deep/er.png')",),
        ("x = = 1",),
    ],
    ids=["module", "before", "after", "error", "name", "folder", "syntax"],
)
def test_any_other_process_serves_one_session(one: Box, codes: tuple[str, ...]) -> None:
    first, _ = pid_of(one, *codes)
    assert pid_of(one, "x = 1")[0] != first


def test_code_that_was_refused_has_not_run(one: Box) -> None:
    first, runs = pid_of(one, "os.system('ls')", "x = 1")
    assert [run.status for run in runs] == ["blocked", "ok"]
    assert pid_of(one, "x = 1")[0] == first


def test_code_that_ran_as_it_stood_is_not_contained(one: Box) -> None:
    first, _ = pid_of(one, "x = 1", raw=True)
    assert pid_of(one, "x = 1")[0] != first


def test_one_that_has_used_much_time_is_not_kept() -> None:
    with running(replace(QUICK, cpu_seconds=1), warm=1) as box:
        used = {pid_of(box, "x = 1")[0]}
        for _ in range(200):
            pid, _ = pid_of(box, "image.resize((900, 900)).save('a.png')")
            if pid not in used:
                break
            used.add(pid)
        else:
            pytest.fail("the same process served 200 sessions of more than a tenth of a second in all")


def test_a_session_has_as_much_memory_as_in_a_new_process() -> None:
    """Scattered remains of many pictures occupy the addresses between them, though not the memory."""
    many = "a = [image.resize((100 + i, 100)) for i in range(500)]\na = [i.resize((90, 90)) for i in a[250:]]"
    with running(Limits(memory_mb=96, seconds=60), warm=1) as box:
        for _ in range(2):
            assert pid_of(box, many)[1][0].status == "ok"
            assert pid_of(box, "a = np.ones(12_000_000)\nprint(a.size)")[1][0].status == "ok"


def test_time_for_pictures_that_no_code_looked_at_counts() -> None:
    images = [encoded(np.random.default_rng(0).integers(0, 256, (1000, 1000, 3), np.uint8))] * 4

    async def story() -> set[int]:
        pids = set()
        async with Sandbox(Limits(cpu_seconds=1), warm=1) as sandbox:
            for _ in range(15):
                async with await sandbox.open(images, seed=0) as session:
                    await asyncio.sleep(0.2)  # the model writes, and the pictures are decoded
                    assert (await session.run("x = 1")).status == "ok"
                    pids.add(session.pid)
        return pids

    assert len(asyncio.run(story())) > 1


def test_no_more_are_kept_than_are_wanted() -> None:
    async def story() -> None:
        async with Sandbox(warm=2) as sandbox:
            sessions = [await sandbox.open([], seed=0) for _ in range(4)]
            await asyncio.gather(*(session.run("x = 1") for session in sessions))
            await asyncio.gather(*(session.close() for session in sessions))
            assert len(sandbox._kept) == 2
            assert sandbox.live == 0

    asyncio.run(story())


@pytest.mark.parametrize("whom", ["process", "server"])
def test_one_that_died_while_it_waited_costs_nobody_a_session(whom: str) -> None:
    async def story() -> None:
        async with Sandbox(warm=1) as sandbox:
            session = await sandbox.open([textured()], seed=0)
            await session.run("x = 1")
            pid = session.pid
            await session.close()
            assert len(sandbox._kept) == 1
            os.kill(pid if whom == "process" else sandbox.zygote_pid, signal.SIGKILL)
            async with await sandbox.open([textured()], seed=0) as other:
                assert (await other.run("print(image.size)")).output == "(400, 300)"
                assert other.pid != pid

    asyncio.run(story())


def test_a_session_that_is_given_up_while_it_opens_loses_no_process() -> None:
    async def story() -> int:
        given_up = 0
        async with Sandbox(warm=1) as sandbox:
            await (await sandbox.open([textured()], seed=0)).close()
            for turns in range(1, 6):
                opening = asyncio.create_task(sandbox.open([textured()], seed=0))
                for _ in range(turns):
                    await asyncio.sleep(0)
                opening.cancel()
                await asyncio.wait([opening])
                if opening.cancelled():
                    given_up += 1
                else:  # a busy machine held this process up until all answers were there
                    await opening.result().close()
                await (await sandbox.open([textured()], seed=0)).close()
            # One that is kept, and one that was forked ahead.
            assert await sandbox.children() <= 2
        return given_up

    assert asyncio.run(story()) > 0


def test_a_session_that_is_closed_in_the_middle_of_a_call_is_not_used_again(one: Box) -> None:
    async def story() -> int:
        session = await one.sandbox.open([textured()], seed=0)
        call = asyncio.create_task(session.run("image.resize((9000, 9000)).save('a.png')"))
        await asyncio.sleep(0.05)
        pid = session.pid
        await session.close()
        assert (await call).status in ("infra", "killed")
        return pid

    pid = one.runner.run(story())
    assert pid_of(one, "x = 1")[0] != pid


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "GIF"])
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "1", "I;16", "LA"])
def test_pictures_of_contained_code_are_decoded_to_the_same_pixels(one: Box, kind: str, mode: str) -> None:
    file = io.BytesIO()
    drawn = PIL.Image.open(io.BytesIO(encoded(picture(120, 90)))).convert("RGBA")
    drawn.putalpha(drawn.getchannel("R"))
    shown = PIL.Image.new("I;16", (120, 90), 700) if mode == "I;16" else drawn.convert(mode)
    try:
        shown.save(file, kind)
    except (OSError, ValueError, KeyError) as error:
        pytest.skip(f"Pillow writes no {kind} of {mode}: {error}")

    async def story() -> list[bytes]:
        decode = one.sandbox._confined.decode
        return [await decode(file.getvalue()), await decode(file.getvalue(), True)]

    confined, here = one.runner.run(story())
    if (kind, mode) in (("PNG", "RGB"), ("PNG", "L")) and shown.mode == mode:
        assert here == file.getvalue()
        assert np.array_equal(decoded(here), decoded(confined))
    else:
        assert here == confined


@pytest.mark.parametrize("code", ["cv2.imwrite('a.png', np.asarray(image), [16, 0])",
    "cv2.imwrite('a.png', np.asarray(image, dtype='uint16'))"], ids=["stored", "deep"])  # fmt: skip
def test_a_picture_that_is_stored_otherwise_is_encoded_anew(one: Box, code: str) -> None:
    before, (found,) = pid_of(one, code)
    assert pid_of(one)[0] == before  # the code was contained
    (content,) = found.images
    assert content[24] == 16 or len(content) > 400 * 300 * 3
    shown = one.runner.run(one.sandbox._confined.decode(content, True))
    assert shown[24] == 8
    assert len(shown) < 400 * 300 * 3


@pytest.mark.parametrize("info", ["text", "profile", "transparency", "orientation", "private", "behind"])
def test_a_picture_that_says_more_than_its_pixels_is_encoded_anew(one: Box, info: str) -> None:
    shown, file = PIL.Image.open(io.BytesIO(encoded(picture(120, 90)))), io.BytesIO()
    notes = PngInfo()
    notes.add_text("secret", "42")
    private = PngInfo()
    private.add(b"prVt", b"42")
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    more: dict[str, object] = {
        "text": {"pnginfo": notes},
        "profile": {"icc_profile": ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()},
        "transparency": {"transparency": (0, 0, 0)},
        "orientation": {"exif": exif},
        "private": {"pnginfo": private},
        "behind": {},
    }[info]
    shown.save(file, "PNG", **more)
    file.write(b"more" if info == "behind" else b"")

    async def story() -> list[bytes]:
        decode = one.sandbox._confined.decode
        return [await decode(file.getvalue()), await decode(file.getvalue(), True)]

    confined, here = one.runner.run(story())
    assert here == confined != file.getvalue()
