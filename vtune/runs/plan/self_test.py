"""`vtune doctor --self-test`: tests in seconds whether this machine really does what it should.

A trial is a function that returns what failed, or an empty text if nothing did. To add one, write it and list
it in `TRIALS`.
"""

import asyncio
import io
import resource
import struct
import time
import zlib
from collections.abc import Callable, Mapping

from PIL import Image

from vtune.errors import DataError, ServiceError
from vtune.runs.audit.attack import run_attack
from vtune.sandbox import Limits, Sandbox
from vtune.schema.pixels import decode_picture

Trial = Callable[[], str]
"""Returns what failed, as one line; empty if nothing did."""

ATTACKS = (
    "fs_read_secret",
    "fs_overwrite",
    "fs_sibling",
    "fs_locks",
    "net_tcp",
    "proc_fork",
    "proc_kill",
    "proto_gap_handlers",
)
"""One for each thing that could be harmed: files, other sessions, network, processes, the next answer."""
SECONDS = 1.0
"""Time limit for rejecting a picture bomb. Ours: it takes a millisecond."""
MEGABYTES = 100
"""Limit on this process's memory growth meanwhile. Ours."""


def self_test() -> list[dict[str, str]]:
    """Run every trial.

    Returns:
        One check per trial, as `vtune doctor` shows them: `name`, `level` (ok or fail), `found` and `fix`.
    """
    return [_check(name, trial) for name, trial in TRIALS.items()]


def _check(name: str, trial: Trial) -> dict[str, str]:
    began = time.monotonic()
    try:
        wrong = trial()
    except ServiceError as error:
        wrong = error.what
    found = wrong or f"held, {time.monotonic() - began:.1f} s"
    fix = "report it, with the output of `vtune doctor --self-test --json`" if wrong else ""
    return {"name": f"self-test: {name}", "level": "fail" if wrong else "ok", "found": found, "fix": fix}


def attacks() -> str:
    """A few attacks from the shipped suite, in the tier that a run gets."""
    result = run_attack(None, ATTACKS, isolation="auto", without=())
    bad = [row for row in result["attacks"] if row["outcome"] in ("breach", "error")]
    return "; ".join(f"{row['name']}: {', '.join(row['breaches']) or row['note']}" for row in bad)


def picture_bombs() -> str:
    """Small files that would take gigabytes or minutes to decode, as rows of data might contain them."""
    wrong = []
    for name, content in bombs().items():
        before, began = _peak(), time.monotonic()
        try:
            decode_picture(content)
        except DataError:
            pass
        else:
            wrong.append(f"{name} was decoded")
        took, grown = time.monotonic() - began, (_peak() - before) >> 10
        if took > SECONDS or grown > MEGABYTES:
            wrong.append(f"{name} cost {took:.1f} s and {grown} MB")
    return "; ".join(wrong)


def session_pictures() -> str:
    """The same bombs left behind by code: a note names each, and the good picture beside them is shown."""
    return asyncio.run(_session_pictures())


async def _session_pictures() -> str:
    files: Mapping[str, bytes] = {f"{number}.png": bomb for number, bomb in enumerate(bombs().values())}
    code = "import zlib\n" + "".join(
        f"open({name!r}, 'wb').write(zlib.decompress({zlib.compress(content)!r}))\n"
        for name, content in files.items()
    )
    limits = Limits(images_per_call=len(files) + 1, code_chars=1 << 22)
    async with Sandbox(limits, warm=0) as sandbox, await sandbox.open([], seed=0) as session:
        execution = await session.run(f"{code}Image.new('RGB', (40, 30)).save('good.png')")
        after = await session.run("print(6 * 7)")
    if execution.status != "ok":
        return f"code that leaves bombs ended as {execution.status}: {execution.error}"
    missing = [name for name in files if f"{name} is not shown" not in execution.output]
    if missing or execution.names != ("good.png",):
        return f"shown: {', '.join(execution.names) or 'nothing'}; no mention of {', '.join(missing)}"
    return "" if after.output == "42" else f"the next call gave {after.output!r}"


def bombs() -> dict[str, bytes]:
    """Pictures of at most a few hundred kilobytes, by what is wrong with them."""
    return {
        "a hairline of 24 million pixels": _png(24_000_000, 1),
        "a hairline of 200000 pixels": _png(1, 200_000),
        "a head that promises 10^10 pixels": _png(100_000, 100_000, rows=1),
        "a JPEG of 2000 scans": _scans(3000, 3000, 2000),
    }


def _png(width: int, height: int, rows: int | None = None) -> bytes:
    """A grey PNG; if `rows` is given, with only that many of its rows."""
    packed = zlib.compress(bytes((rows or height) * (width + 1)), 9)
    parts = {b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0), b"IDAT": packed, b"IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts.items()
    )


def _scans(width: int, height: int, more: int) -> bytes:
    """A progressive JPEG whose last scan is repeated many times."""
    file = io.BytesIO()
    Image.new("L", (width, height), 90).save(file, "JPEG", progressive=True)
    content = file.getvalue()
    # The last scan, with its tables.
    last = content[content.rindex(b"\xff\xc4", 0, content.rindex(b"\xff\xda")) : -2]
    return content[:-2] + last * more + content[-2:]


def _peak() -> int:
    """Peak memory of this process, in kilobytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


TRIALS: Mapping[str, Trial] = {
    "sandbox attacks": attacks,
    "picture bombs in data": picture_bombs,
    "picture bombs of code": session_pictures,
}
