"""Benchmarks of search agents as their authors publish them: BrowseComp-VL and MMSearch-Plus.

Neither includes image search results: offering that tool takes an index, a service or the web.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa

from vtune.data.formats import specimens_search
from vtune.data.formats.building import Found, Options, build_sample, each, others
from vtune.data.formats.source import Place, Raw, files, read_rows
from vtune.data.formats.specimens_search import CANARY
from vtune.data.formats.table import FORMATS, Format
from vtune.data.formats.values import conversation, needed, pictures, text_of
from vtune.errors import DataError
from vtune.schema.fields import Row, mistyped, wrong
from vtune.schema.sample import Sample
from vtune.tools import image_search, text_search, zoom
from vtune.verifiers import judge

TOOLS = (zoom.NAME, text_search.NAME, image_search.NAME)
_ENCRYPTED = ("question", "answer", "arxiv_id", "video_url")


def read_browsecomp_vl(path: Path, options: Options) -> Iterator[Found]:
    """Samples of `bc_vl_level1.jsonl` and `bc_vl_level2.jsonl`, or of the folder with both.

    Picture paths begin with the name of that folder, `browsecomp-vl`, so they are relative to its parent
    unless `--images` says otherwise.
    """

    def convert(row: Row, place: Place) -> Sample:
        base = options.images or place.file.resolve().parent.parent
        shown = pictures("image_path", needed(row, "image_path"), base)
        return _sample(row, place, options, "browsecomp_vl", shown, ("question", "image_path", "answers"))

    return each(read_rows(path), convert)


def read_mmsearch_plus(path: Path, options: Options) -> Iterator[Found]:
    """Samples of MMSearch-Plus: its Arrow files, or the same rows as Parquet; decrypted in memory.

    A question has one to five pictures, in `img_1` to `img_5`.
    """

    def convert(row: Row, place: Place) -> Sample:
        names = [f"img_{number}" for number in range(1, 6)]
        images = [row[name] for name in names if row.get(name) is not None]
        shown = pictures("img_1", images, options.base(place.file))
        count = row.get("num_images")
        if count is not None and int(count) != len(shown):
            raise wrong(
                "num_images", f"it says {count}, and {len(shown)} picture(s) are there", "download it again"
            )
        row = row | {name: _decrypted(name, row[name]) for name in _ENCRYPTED if row.get(name)}
        return _sample(
            row, place, options, "mmsearch_plus", shown, ("question", "answer", "num_images", *names)
        )

    return each(_arrow_rows(path), convert)


def _sample(
    row: Row, place: Place, options: Options, source: str, shown: Any, used: tuple[str, ...]
) -> Sample:
    answers = needed(row, "answers", "answer")
    truths = answers if isinstance(answers, list) else [answers]
    if not truths:
        raise mistyped("answer", None, "the reference answer")
    texts = list(dict.fromkeys(text_of("answer", truth).strip() for truth in truths))
    return build_sample(
        place,
        source=source,
        turns=conversation(text_of("question", needed(row, "question")), len(shown)),
        images=shown,
        ability="search",
        answer=texts[0],
        ground_truth=texts[0],
        verifier=options.verifier or judge.NAME,
        verifier_parm={"aliases": texts[1:]} if texts[1:] else {},
        tools=TOOLS,
        extra=others(row, *used),
    )


def _decrypted(column: str, value: Any) -> Any:
    """A text, or a list of texts, decoded from base64 and XORed with the SHA-256 of the canary."""
    if isinstance(value, list):
        return [_decrypted(column, item) for item in value]
    if not value:
        return value
    try:
        encrypted = base64.b64decode(text_of(column, value), validate=True)
        key = cycle(hashlib.sha256(CANARY.encode()).digest())
        return bytes(a ^ b for a, b in zip(encrypted, key, strict=False)).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise wrong(
            column, "it is not encrypted as the data set is published", "download Cie1/MMSearch-Plus again"
        ) from None


def _arrow_rows(path: Path) -> Iterator[Raw]:
    for file, name in files(path, (".arrow", ".parquet")):
        if file.suffix != ".arrow":
            yield from read_rows(file)
            continue
        try:
            number = 0
            with pa.OSFile(str(file)) as stream, pa.ipc.open_stream(stream) as reader:
                for batch in reader:
                    for part in range(batch.num_rows):
                        yield Place(file, number, name), batch.slice(part, 1).to_pylist()[0]
                        number += 1
        except (pa.ArrowException, OSError) as error:
            yield (
                Place(file, None, name),
                DataError(f"not an Arrow file of `datasets`: {error}", fix="download it again"),
            )


FORMATS.add(
    "browsecomp_vl",
    Format(
        read_browsecomp_vl,
        "JSON lines of BrowseComp-VL",
        offers_tools=True,
        specimen=specimens_search.browsecomp_vl,
    ),
)
FORMATS.add(
    "mmsearch_plus",
    Format(
        read_mmsearch_plus,
        "Arrow files of MMSearch-Plus, encrypted as they are published",
        offers_tools=True,
        specimen=specimens_search.mmsearch_plus,
    ),
)
