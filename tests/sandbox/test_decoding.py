"""Returned files become pictures, here or in a confined process, and never anything more."""

import asyncio
import io
import os
import shutil
import signal
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import PIL.Image
import pytest

from tests.sandbox.conftest import QUICK, Box, decoded, encoded, picture, textured
from vtune.errors import ServiceError
from vtune.sandbox import Limits, Sandbox, decoding
from vtune.sandbox.forkserver import Place
from vtune.sandbox.process import Process
from vtune.sandbox.workspace import NotShown, check_picture
from vtune.schema.decode import UNDECODABLE

MARK = b"only in the file, not in its pixels"


def running_confined(limits: Limits, **options: Any) -> Iterator[Box]:
    with asyncio.Runner() as runner:
        sandbox = runner.run(Sandbox(limits, decode="confined", **options).__aenter__())
        yield Box(runner, sandbox)
        runner.run(sandbox.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def careful() -> Iterator[Box]:
    yield from running_confined(Limits())


@pytest.fixture(scope="module")
def hurt() -> Iterator[Box]:
    """For tests that kill its decoders or its fork server."""
    yield from running_confined(QUICK, warm=0)


@pytest.fixture
def lasting(hurt: Box) -> Box:
    """With a live fork server, though the previous test may have killed it."""
    hurt.run("pass")
    return hurt


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_a_confined_decoder_returns_the_same_pixels(careful: Box, mode: str) -> None:
    run = careful.one(f"image.convert({mode!r}).save('a.png')")
    (content,) = run.images
    with PIL.Image.open(io.BytesIO(content)) as shown:
        assert shown.mode == ("L" if mode == "L" else "RGB"), "nothing shows through a picture"
        expected = PIL.Image.fromarray(picture()).convert(shown.mode)
        assert np.array_equal(np.array(shown), np.array(expected))


def test_a_confined_decoder_hands_on_nothing_but_pixels(careful: Box, box: Box) -> None:
    code = f"from PIL import PngImagePlugin as p\ni = p.PngInfo()\ni.add_text('t', {MARK.decode()!r})\n"
    code += "image.save('a.png', pnginfo=i)"
    assert MARK in box.one(code).images[0]
    (content,) = careful.one(code).images
    assert MARK not in content
    assert np.array_equal(decoded(content), picture())


def test_what_a_confined_decoder_refuses_is_said_and_the_next_picture_is_shown(careful: Box) -> None:
    code = (
        "open('a.png', 'wb').write(open(image_path, 'rb').read()[:900])\n"
        "Image.new('1', (60_000, 1000)).save('b.png')\nimage.save('c.png')"
    )
    run = careful.one(code)
    assert run.names == ("c.png",)
    assert "a.png is not shown: it is not a picture" in run.output
    assert "b.png is not shown" in run.output


def test_a_confined_decoder_that_dies_costs_nobody_a_picture(lasting: Box) -> None:
    async def story() -> None:
        sandbox = lasting.sandbox
        async with await sandbox.open([encoded(picture())], seed=0) as session:
            assert (await session.run("import sys; image.save('a.png')")).names == ("a.png",)
            decoder = sandbox._confined._free[-1]
            first, before = decoder._process, len(list(sandbox.folder.glob("s*")))
            assert first is not None
            first.kill()
            assert (await session.run("image.save('b.png')")).names == ("b.png",)
            assert decoder._process is not first
            # That of the first decoder is gone.
            assert len(list(sandbox.folder.glob("s*"))) == before

    lasting.runner.run(story())


@pytest.mark.parametrize("replaced", [False, True])
def test_pictures_are_decoded_after_the_fork_server_died(lasting: Box, replaced: bool) -> None:
    async def story() -> None:
        sandbox, content = lasting.sandbox, encoded(picture())
        await sandbox._confined.decode(content)
        os.kill(sandbox.zygote_pid, signal.SIGKILL)
        if replaced:
            # Another fork server, while the decoder still belongs to the dead one, whose folder is gone.
            await (await sandbox.open([content], seed=0)).close()
        assert np.array_equal(decoded(await sandbox._confined.decode(content)), picture())

    lasting.runner.run(story())


def test_a_decoder_whose_folder_goes_as_it_starts_is_started_again_for_the_next_picture() -> None:
    """As when its fork server dies at that moment: the replacement removes the old folder."""

    async def story() -> None:
        async with Sandbox(QUICK, decode="confined", warm=0) as sandbox:
            decoder, content = sandbox._confined.all[-1], encoded(picture())
            spawn, started = decoder._spawn, []

            async def unlucky(place: Place | None) -> tuple[Process, Place]:
                process, place = await spawn(place)
                if not started:
                    shutil.rmtree(place.folder)
                started.append(process)
                return process, place

            decoder._spawn = unlucky
            with pytest.raises(ServiceError, match="cannot hand a picture"):
                await sandbox._confined.decode(content)
            assert started[0].closed
            assert np.array_equal(decoded(await sandbox._confined.decode(content)), picture())
            assert len(started) == 2

    asyncio.run(story())


def test_a_decoding_that_is_cancelled_leaves_nothing_for_the_next(lasting: Box) -> None:
    async def story() -> None:
        sandbox, content = lasting.sandbox, encoded(picture())
        await sandbox._confined.decode(content)
        cancelled = asyncio.create_task(sandbox._confined.decode(encoded(picture(seed=1))))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert np.array_equal(decoded(await sandbox._confined.decode(content)), picture())

    lasting.runner.run(story())


@pytest.mark.parametrize("kind", ["WEBP", "BMP", "GIF"])
def test_other_formats_come_as_png(box: Box, kind: str) -> None:
    run = box.one(f"image.save('a.{kind.lower()}')")
    assert run.images[0].startswith(b"\x89PNG")


def test_the_head_is_looked_at_before_anything_is_decoded() -> None:
    huge = io.BytesIO()
    PIL.Image.new("1", (3000, 3000)).save(huge, "PNG")
    with pytest.raises(NotShown, match="9000000 pixels, more than the 8999999"):
        check_picture(huge.getvalue(), max_pixels=8_999_999)
    assert check_picture(huge.getvalue(), max_pixels=9_000_000) == "PNG"


@pytest.mark.parametrize("content", [b"", b"no", b"\x89PNG\r\n\x1a\n" + bytes(50), b"%PDF-1.4 not allowed"])
def test_what_is_no_picture_is_refused(content: bytes) -> None:
    with pytest.raises(NotShown, match="not a picture"):
        check_picture(content, max_pixels=100)


def test_formats_outside_the_list_are_refused_whatever_their_name() -> None:
    file = io.BytesIO()
    PIL.Image.new("RGB", (5, 5)).save(file, "TIFF")
    with pytest.raises(NotShown, match="it is TIFF, and PNG"):
        check_picture(file.getvalue(), max_pixels=100)


def with_chunk_at_its_end(content: bytes, name: bytes, data: bytes = b"") -> bytes:
    """A PNG with a chunk before its last one; Pillow reads it only when it loads the pixels."""
    chunk = struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return content[:-12] + chunk + content[-12:]


def test_a_chunk_that_breaks_the_reader_late_is_a_broken_picture_everywhere(box: Box) -> None:
    small = io.BytesIO()
    PIL.Image.linear_gradient("L").resize((8, 8)).save(small, "PNG")
    broken = with_chunk_at_its_end(small.getvalue(), b"iCCP")
    with pytest.raises(UNDECODABLE):
        PIL.Image.open(io.BytesIO(broken)).load()
    run = box.one(f"open('a.png', 'wb').write({broken!r})\nprint('goes on')")
    assert (run.status, run.output, run.images) == (
        "ok",
        "goes on\n(note: a.png is not shown: it is not a picture)",
        (),
    )


def test_a_large_picture_of_another_format_holds_nobody_up(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    encode = decoding.encode
    monkeypatch.setattr(
        decoding, "encode", lambda *what: threads.append(threading.current_thread()) or encode(*what)
    )
    assert box.one("image.save('a.gif')").status == "ok"
    assert threads != [threading.main_thread()]
    assert len(threads) == 1


def test_no_more_pictures_are_decoded_here_at_a_time_than_elsewhere(
    careful: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may take 600 MB; a machine with many cores has 32 threads for such work."""
    running = threading.Semaphore(len(careful.sandbox._confined.all))
    late = []

    def anew(content: bytes, kind: str, max_pixels: int) -> bytes:
        late.append(not running.acquire(blocking=False))
        time.sleep(0.02)
        running.release()
        return content

    monkeypatch.setattr(decoding, "_decoded_here", anew)

    async def story() -> None:
        await asyncio.gather(*(careful.sandbox._confined.decode(textured(), True) for _ in range(12)))

    careful.runner.run(story())
    assert late == [False] * 12


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_confined_decoder_keeps_the_kind_and_the_look(careful: Box, box: Box, kind: str) -> None:
    code = f"image.save('a.{kind.lower()}')"
    (content,), (written,) = careful.one(code).images, box.one(code).images
    with PIL.Image.open(io.BytesIO(content)) as shown:
        assert shown.format == kind
    loss = np.abs(decoded(content).astype(int) - decoded(written).astype(int))
    assert loss.max() <= (0 if kind == "PNG" else 16)


BOMBS = """
import io, struct
def png(mode, size):
    file = io.BytesIO(); Image.new(mode, size).save(file, "PNG"); return file.getvalue()
def jpeg(side, times):
    file = io.BytesIO(); Image.new("L", (side, side)).save(file, "JPEG", progressive=True)
    data = file.getvalue(); scan = data.rindex(b"\\xff\\xda")
    last = data[data.rindex(b"\\xff\\xc4", 0, scan):-2]
    return data[:-2] + last * times + data[-2:]
for name, content in {
    "a.png": png("L", (24_000_000, 1)),
    "b.png": png("RGB", (1, 200_000)),
    "c.jpg": jpeg(3000, 2000),
    "d.png": png("RGB", (50, 40)),
}.items():
    open(name, "wb").write(content)
kept = 17
"""


@pytest.mark.parametrize("decode", ["host", "confined"])
def test_bombs_are_the_models_error_and_cost_it_neither_its_state_nor_its_good_pictures(
    box: Box, careful: Box, decode: str
) -> None:
    run, after = (box if decode == "host" else careful).run(BOMBS, "print(kept)")
    assert (run.status, run.names) == ("ok", ("d.png",))
    assert "a.png is not shown: it is 24000000 x 1, and a side has 32768 pixels at most" in run.output
    assert "b.png is not shown: it is 1 x 200000, and a side has 32768 pixels at most" in run.output
    assert "c.jpg is not shown: it is a JPEG of 2006 scans, which takes too long" in run.output
    assert after.output == "17"


def test_a_picture_that_keeps_its_decoder_busy_holds_up_no_other(
    lasting: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        sandbox, content = lasting.sandbox, encoded(picture())
        first = sandbox._confined._free[-1]

        async def never(content: bytes) -> bytes:
            await asyncio.sleep(60)
            return content

        monkeypatch.setattr(first, "decode", never)
        stuck = asyncio.create_task(sandbox._confined.decode(content))
        await asyncio.sleep(0)
        assert np.array_equal(decoded(await sandbox._confined.decode(content)), picture())
        assert not stuck.done()
        stuck.cancel()
        await asyncio.wait([stuck])
        assert len(sandbox._confined._free) == len(sandbox._confined.all)

    lasting.runner.run(story())


def test_pixels_larger_than_a_file_may_be_come_in_parts() -> None:
    async def story() -> None:
        limits = Limits(file_mb=1)
        async with Sandbox(limits, warm=0) as sandbox:
            content = encoded(picture(800, 600))
            shown = await sandbox._confined.decode(content)
            assert np.array_equal(decoded(shown), picture(800, 600))

    asyncio.run(story())


def test_what_shows_through_a_picture_is_white_for_everybody(careful: Box, box: Box) -> None:
    code = "c = image.convert('RGBA')\nc.putalpha(0)\nc.save('a.png')"
    for one in (careful, box):
        (content,) = one.one(code).images
        with PIL.Image.open(io.BytesIO(content)) as shown:
            assert shown.mode == "RGB"
            assert shown.getextrema() == ((255, 255),) * 3


def test_an_input_of_sixteen_bits_is_given_as_one_of_eight_and_its_crops_are_known(box: Box) -> None:
    levels = np.linspace(0, 255, 60 * 80).reshape(60, 80).astype(np.uint8)
    deep = PIL.Image.fromarray(levels.astype(np.uint16) * 257)
    file = io.BytesIO()
    deep.save(file, "PNG")
    code = "a = np.array(image)\nprint(image.mode, a[0, 0, 0], a[30, 40, 0], a[-1, -1, 2])\n"
    run = box.one(code + "image.crop((8, 4, 40, 50)).save('c.png')", images=[file.getvalue()])
    assert run.output.split() == ["RGB", "0", str(levels[30, 40]), "255"]
    assert np.array_equal(decoded(run.images[0])[..., 0], levels[4:50, 8:40])
    (crop,) = run.crops
    assert crop.bbox == (8, 4, 40, 50)


def test_a_confined_decoder_makes_eight_bits_of_sixteen(careful: Box) -> None:
    run = careful.one("Image.fromarray(np.full((9, 9), 40_000, np.uint16)).save('a.png')")
    assert set(decoded(run.images[0]).ravel()) == {40_000 // 256}
