"""Inputs that the trainer has decoded are not decoded again, and code cannot tell the difference."""

import io
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from PIL.PngImagePlugin import PngInfo

from tests.sandbox.conftest import Box, running
from vtune.sandbox import Execution, Limits
from vtune.sandbox.pixel_files import PixelFiles
from vtune.schema.decoded import decoded
from vtune.schema.remembered import Remembered


@pytest.fixture(scope="module")
def one() -> Iterator[Box]:
    with running(Limits(), warm=1) as box:
        yield box


def written(kind: str, mode: str = "RGB", side: int = 60, **more: object) -> bytes:
    """A picture that no other call has made."""
    pixels = np.random.default_rng().integers(0, 256, (side, side, 3), np.uint8)
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).convert(mode).save(file, kind, **more)
    return file.getvalue()


def noted(*, behind: bool) -> PngInfo:
    notes = PngInfo()
    notes.add(b"tEXt", b"who\x00somebody", after_idat=behind)
    return notes


SEES = """
print(image.__class__.__name__, image.size, image.mode, image.format, image.info, sorted(image.__dict__))
print([getattr(image, name, None) for name in ('fp', 'tile', 'text', 'map', 'readonly')], image.getexif())
print(image.draft('L', (20, 20)) if hasattr(image, 'draft') else None)
image.load()
print(int(np.asarray(image).sum()), image.getpixel((3, 5)), image.copy().size)
print(len(open(image_path, 'rb').read()), np.array_equal(np.asarray(image), np.asarray(images[1])))
image.thumbnail((30, 30))
image.save('small.png')
"""

PICTURES = {
    "PNG": written("PNG"),
    "PNG with a note": written("PNG", pnginfo=noted(behind=False)),
    "PNG with a note behind its pixels": written("PNG", pnginfo=noted(behind=True)),
    "JPEG": written("JPEG"),
    "JPEG, progressive": written("JPEG", progressive=True),
}
OTHERS = {
    "transparent": written("PNG", "RGBA"),
    "a colour that is transparent": written("PNG", transparency=(0, 0, 0)),
    "grey": written("PNG", "L"),
    "palette": written("PNG", "P"),
    "CMYK": written("JPEG", "CMYK"),
    "WEBP": written("WEBP"),
    "GIF": written("GIF", "P"),
    "large": written("JPEG", side=1100),
    "animated": written("PNG", save_all=True, append_images=[PIL.Image.new("RGB", (60, 60))]),
}


CUTS = """
image.crop((5, 5, 40, 40)).resize((70, 70)).save('a.png')
images[1].rotate(90).save('b.jpg')
print(image.size)
"""
"""Contained code: the process also serves the next session."""


def looked_at(box: Box, content: bytes, code: str = SEES) -> tuple[tuple[object, ...], int, int]:
    """What code sees and shows, how many pixel files its session has, and in which process."""

    async def story() -> tuple[Execution, int, int]:
        async with await box.sandbox.open([content, content], seed=0) as session:
            links = len(list((session.workspace.parent / "in").glob("*.rgb")))
            return await session.run(code), links, session.pid

    ran, links, pid = box.runner.run(story())
    assert ran.status == "ok", ran.error
    return (ran.output, ran.images, ran.names, ran.crops), links, pid


@pytest.mark.parametrize("name", [*PICTURES, *OTHERS])
@pytest.mark.parametrize("code", [SEES, CUTS], ids=["any code", "contained code"])
def test_a_picture_is_the_same_whoever_has_decoded_it(
    one: Box, name: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtune.schema.decoded._pictures", Remembered(1 << 30, lambda *_: 1))
    one.sandbox._pixels._files.clear()
    content = (PICTURES | OTHERS)[name]
    by_itself, links, _ = looked_at(one, content, code)
    assert links == 0
    decoded(content)
    pids = set()
    for _ in range(2):
        filled, links, pid = looked_at(one, content, code)
        assert links == (2 if name in PICTURES else 0)
        assert filled == by_itself
        pids.add(pid)
    assert len(pids) == (1 if code == CUTS else 2)


def test_the_next_session_finds_no_pixels_of_the_one_before(one: Box) -> None:
    first, second = written("PNG"), written("PNG")
    decoded(first)
    _, links, before = looked_at(one, first, CUTS)
    assert links == 2

    async def story() -> tuple[int, list[str]]:
        async with await one.sandbox.open([second], seed=0) as session:
            assert (await session.run("print(1)")).status == "ok"
            return session.pid, sorted(path.name for path in (session.workspace.parent / "in").iterdir())

    assert one.runner.run(story()) == (before, ["image_0.png"])


def test_a_disk_that_takes_no_file_of_pixels_costs_no_session(
    one: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    content = written("PNG")
    decoded(content)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.link", refuse)
        seen, links, _ = looked_at(one, content)
        assert links == 0
    assert looked_at(one, content)[:2] == (seen, 2)
    files = PixelFiles(tmp_path / "pixels")
    monkeypatch.setattr(Path, "chmod", refuse)
    assert not files.link(content, str(tmp_path / "none"))
    assert list((tmp_path / "pixels").iterdir()) == []


def test_a_colour_that_is_named_behind_the_pixels_makes_a_picture_transparent(tmp_path: Path) -> None:
    plain, chunk = written("PNG"), b"tRNS" + bytes(6)
    chunk = struct.pack("!I", 6) + chunk + struct.pack("!I", zlib.crc32(chunk))
    content = plain[:-12] + chunk + plain[-12:]
    decoded(content)
    assert not PixelFiles(tmp_path / "pixels").link(content, str(tmp_path / "none"))


def test_no_more_is_kept_than_there_is_room(tmp_path: Path) -> None:
    pictures = [written("PNG") for _ in range(5)]
    files = PixelFiles(tmp_path / "pixels", room=3 * (60 * 60 * 3 + max(map(len, pictures))))
    for number, content in enumerate(pictures):
        assert not files.link(content, str(tmp_path / "none"))
        pixels = decoded(content)
        assert files.link(content, str(tmp_path / f"{number}"))
        assert (tmp_path / f"{number}").read_bytes() == pixels.tobytes()
        assert files.link(pictures[0], str(tmp_path / f"again {number}"))
    assert len(list((tmp_path / "pixels").iterdir())) == 3
    made = {path.stat().st_ino for path in (tmp_path / "pixels").iterdir()}
    assert {(tmp_path / f"{number}").stat().st_ino in made for number in (0, 3, 4)} == {True}
    # A session that reads a file that is no longer kept still has it.
    assert (tmp_path / "1").read_bytes() == decoded(pictures[1]).tobytes()
