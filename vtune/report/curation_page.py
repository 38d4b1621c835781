"""A self-contained page about a curation: the funnel, and examples of what each filter dropped."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil
from typing import Any

from PIL import ImageDraw

from vtune.curate.boxes import boxes_of, stated_extent
from vtune.curate.item import Item, identity, input_pictures, question
from vtune.errors import DataError
from vtune.schema.box import Box
from vtune.schema.pixels import decode_reduced, size_of
from vtune.schema.sample import Sample

SIDE = 240
"""Longest side of a picture on the page, in pixels (ours)."""
LONGEST = 400
"""Maximum number of characters of a text on the page (ours)."""

RATES = ("0", *[f"to {tenth / 10:g}" for tenth in range(1, 10)], "below 1", "1")
"""Bins of a mean score: never right, tenths, always right."""

_STYLE = """body{font:15px/1.45 system-ui,sans-serif;margin:2rem;max-width:80rem;color:#222}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .6rem;border-bottom:1px solid #ddd;
text-align:right}td:first-child,th:first-child{text-align:left}tr:last-child{font-weight:600}
.row{display:flex;flex-wrap:wrap;gap:1rem}.card{width:240px;font-size:13px;overflow-wrap:anywhere}
.card img{display:block;max-width:240px;margin-bottom:.3rem}.why{color:#a33}.id{color:#777}
.warning{color:#a33}.rates tr:last-child{font-weight:400}.bar{width:24rem;text-align:left}
.bar i{display:inline-block;height:.8rem;background:#2a7}.bar i.gone{background:#c77}"""


@dataclass(frozen=True, slots=True)
class Shown:
    """An example."""

    source: str
    reason: str
    """Why it was dropped; empty if it was kept."""
    item: Item | None
    """None if the row cannot be read."""


def curation_page(
    result: Mapping[str, Any],
    dropped: Mapping[str, Sequence[Shown]],
    kept: Mapping[str, Sequence[Shown]],
) -> str:
    """The page as HTML.

    Args:
        result: The result of `vtune.runs.curate.curation.run_curate`.
        dropped: Filter -> examples of dropped rows.
        kept: Source -> examples of kept rows.
    """
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Curation</title>",
        f"<style>{_STYLE}</style><h1>Curation</h1>",
        *[f"<p class=warning>{escape(warning)}</p>" for warning in result["warnings"]],
        _funnel(result),
        *[_histogram(name, bins) for name, bins in result["rates"].items()],
    ]
    for name, examples in dropped.items():
        rows = sum(_lost(row, name) for source, row in result["funnel"].items() if source != "all")
        if rows:
            parts.append(f"<h2>{escape(name)}: {rows} dropped</h2>{_cards(examples)}")
    parts += [f"<h2>{escape(source)}: kept</h2>{_cards(shown)}" for source, shown in kept.items() if shown]
    return "\n".join([*parts, "</html>", ""])


def rate_bin(rate: float) -> int:
    """Index into `RATES` for a mean score in [0, 1]."""
    if rate >= 1:
        return len(RATES) - 1
    return 0 if rate <= 0 else min(ceil(rate * 10 - 1e-9), 10)


def _histogram(name: str, bins: Mapping[str, Sequence[int]]) -> str:
    """Histogram of rows by mean score, kept and dropped."""
    most = max(map(sum, zip(bins["kept"], bins["dropped"], strict=True)), default=0) or 1
    lines = "".join(
        f"<tr><td>{rate}</td><td>{kept}</td><td>{dropped}</td><td class=bar>"
        f"{_bar(kept / most, '')}{_bar(dropped / most, ' class=gone')}</td></tr>"
        for rate, kept, dropped in zip(RATES, bins["kept"], bins["dropped"], strict=True)
    )
    head = "<tr><th>mean score</th><th>left</th><th>dropped</th><th></th></tr>"
    return f"<h2>{escape(name)}: how hard the rows are</h2><table class=rates>{head}{lines}</table>"


def _bar(share: float, kind: str) -> str:
    return f'<i{kind} style="width:{100 * share:.1f}%"></i>'


def _lost(row: Mapping[str, int], name: str) -> int:
    names = list(row)
    return row[names[names.index(name) - 1]] - row[name]


def _funnel(result: Mapping[str, Any]) -> str:
    names = list(next(iter(result["funnel"].values())))
    head = "".join(f"<th>{escape(name)}</th>" for name in ["source", *names])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in [source, *row.values()]) + "</tr>"
        for source, row in result["funnel"].items()
    )
    return f"<h2>Rows left after each step</h2><table><tr>{head}</tr>{body}</table>"


def _cards(examples: Sequence[Shown]) -> str:
    return f"<div class=row>{''.join(map(_card, examples))}</div>"


def _card(shown: Shown) -> str:
    why = f"<div class=why>{escape(shown.reason)}</div>" if shown.reason else ""
    if shown.item is None:
        unread = f"{escape(shown.source)}: a row that cannot be read"
        return f"<div class=card>{why}<div class=id>{unread}</div></div>"
    record = shown.item.record
    truth = record.ground_truth if isinstance(record, Sample) else record.answer or ""
    return (
        f"<div class=card>{_picture(shown.item)}<div>{escape(_short(question(record)))}</div>"
        f"<div><b>{escape(_short(truth))}</b></div>{why}"
        f"<div class=id>{escape(shown.source)}, {escape(identity(record))}</div></div>"
    )


def _picture(item: Item) -> str:
    """The first picture, reduced, with the boxes of the ground truth and the evidence."""
    try:
        pictures = input_pictures(item)
        if not pictures:
            return ""
        width, height = size_of(pictures[0])
        small = decode_reduced(pictures[0], SIDE)
    except DataError as error:
        return f"<div class=why>{escape(_short(str(error)))}</div>"
    small.thumbnail((SIDE, SIDE))
    draw = ImageDraw.Draw(small)
    for x0, y0, x1, y1 in _shares(item, width, height):
        corners = (x0 * small.width, y0 * small.height, x1 * small.width, y1 * small.height)
        draw.rectangle(corners, outline=(255, 60, 60), width=2)
    out = io.BytesIO()
    small.save(out, "JPEG", quality=80)
    return f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}">'


def _shares(item: Item, width: int, height: int) -> list[Box]:
    """Boxes as fractions of the picture's sides."""
    record = item.record
    if not isinstance(record, Sample):
        return []
    boxes = [_over(entry.bbox, width, height) for entry in record.evidence if entry.image == 0]
    try:
        truth = [entry.box for entry in boxes_of(record)]
    except DataError:
        return boxes
    size = stated_extent(record) or (width, height)
    return boxes + [_over(box, *size) for box in truth]


def _over(box: Box, width: float, height: float) -> Box:
    x0, y0, x1, y1 = box
    return x0 / width, y0 / height, x1 / width, y1 / height


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
