"""`vtune sandbox run`: one piece of code in the sandbox, run as a model's code would be."""

import asyncio
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import PIL.Image

from vtune.errors import DataError
from vtune.files.reading import MAX_TEXT, read_bytes, read_text, why_unread
from vtune.files.writing import check_folder_output, write_atomically
from vtune.sandbox import Execution, Sandbox
from vtune.sandbox.types import Isolation
from vtune.schema.pixels import Refused, decode

STANDARD_INPUT = "-"


def run_snippet(
    file: str, images: Sequence[Path], *, isolation: Isolation, out: Path | None, seed: int
) -> dict[str, Any]:
    """Run a Python file: scanned, repaired and rewritten like a model's code.

    Args:
        file: Path of the code; "-" reads standard input.
        images: Input pictures, available to the code as `image_0.png` and so on.
        isolation: Tier of the sandbox.
        out: Folder for the returned pictures; None: they are not saved.
        seed: Seed of the session's random generators.

    Returns:
        `tier`, `status`, `seconds`, `output`, `error`, `images` (each `name`, `width`, `height`, `bytes`, and
        `path` or None), and `crops` (each `bbox`, `image`, and `shown` or None).

    Raises:
        DataError: If the code or a picture cannot be read, or `out` cannot be written.
        ServiceError: If the sandbox does not start.
    """
    if out is not None:
        check_folder_output(out)
    code = _code(file)
    pictures = [_bytes(path) for path in images]
    tier, execution = asyncio.run(_run(code, pictures, isolation, seed))
    return {
        "tier": tier,
        "status": execution.status,
        "seconds": round(execution.seconds, 4),
        "output": execution.output,
        "error": execution.error,
        "images": [
            _picture(name, content, out)
            for name, content in zip(execution.names, execution.images, strict=True)
        ],
        "crops": [
            {"bbox": list(crop.bbox), "image": crop.image, "shown": crop.shown} for crop in execution.crops
        ],
    }


async def _run(
    code: str, pictures: Sequence[bytes], isolation: Isolation, seed: int
) -> tuple[str, Execution]:
    async with (
        Sandbox(isolation=isolation, warm=0) as sandbox,
        await sandbox.open(pictures, seed=seed) as session,
    ):
        return sandbox.info()["tier"], await session.run(code)


def _code(file: str) -> str:
    try:
        return _typed() if file == STANDARD_INPUT else read_text(Path(file))
    except (OSError, UnicodeDecodeError) as error:
        utf8 = isinstance(error, UnicodeDecodeError)
        raise DataError(
            f"the code cannot be read: {why_unread(error)}",
            where="standard input" if file == STANDARD_INPUT else file,
            fix="write it in UTF-8" if utf8 else "give a Python file, or - to read standard input",
        ) from error


def _typed() -> str:
    """Standard input, always decoded as UTF-8: Python's own reader uses the locale.

    Raises:
        OSError: If it is closed, or longer than code may be.
        UnicodeDecodeError: If it is not UTF-8.
    """
    if sys.stdin is None:
        raise OSError("it is closed")
    content = sys.stdin.buffer.read(MAX_TEXT + 1)
    if len(content) > MAX_TEXT:
        raise OSError(f"it is larger than {MAX_TEXT >> 20} MiB")
    return content.decode("utf-8-sig").replace("\r\n", "\n")


def _bytes(path: Path) -> bytes:
    try:
        content = read_bytes(path)
    except OSError as error:
        raise DataError(
            f"the picture cannot be read: {error.strerror}", where=str(path), fix="give a picture file"
        ) from error
    try:
        decode(content, None)
    except Refused as refused:
        raise DataError(
            f"this is not a picture that can be used: {refused}",
            where=str(path),
            fix="give a PNG, JPEG, WEBP, BMP or GIF file",
        ) from refused
    return content


def _picture(name: str, content: bytes, out: Path | None) -> dict[str, Any]:
    """A returned picture; folders in its workspace name are flattened for the file in `out`."""
    with PIL.Image.open(io.BytesIO(content)) as picture:
        width, height = picture.size
        ending = f".{(picture.format or 'png').lower().replace('jpeg', 'jpg')}"
    path = None
    if out is not None:
        flat = name.replace("/", "_")
        path = out / (flat if flat.lower().endswith((ending, ".jpeg")) else flat + ending)
        write_atomically(path, content)
    return {
        "name": name,
        "width": width,
        "height": height,
        "bytes": len(content),
        "path": str(path) if path else None,
    }
