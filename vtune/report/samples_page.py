"""Samples as one self-contained HTML page: pictures scaled down, with boxes drawn on them."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

COLOURS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#9a6324", "#808000")

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
section { border-top: 1px solid #ccc; padding: 1rem 0; }
h2 { font-size: 1rem; overflow-wrap: anywhere; }
figure { display: inline-block; margin: 0 1rem 0.5rem 0; vertical-align: top; }
figcaption, .small { color: #555; font-size: 0.85rem; }
svg { display: block; max-width: 100%; height: auto; }
dt { font-weight: 600; } dd { margin: 0 0 0.4rem 0; white-space: pre-wrap; overflow-wrap: anywhere; }
li { overflow-wrap: anywhere; }
"""


def samples_page(result: Mapping[str, Any], thumbnails: Sequence[Sequence[str]]) -> str:
    """The page for a result of `vtune.runs.data.inspecting.inspect`.

    Args:
        result: Its examples are shown, one section each, and its problems listed.
        thumbnails: For each example, a data URI for each of its pictures.
    """
    sections = [_section(example, uris) for example, uris in zip(result["examples"], thumbnails, strict=True)]
    sources = ", ".join(f"{source} {rows}" for source, rows in result["by_source"].items())
    bad = "".join(
        f"<li>row {problem['row']}: {escape(problem['what'])}; {escape(problem['fix'])}</li>"
        for problem in result["problems"]
    )
    return "\n".join(
        [
            '<!doctype html><html lang="en"><meta charset="utf-8">',
            f"<title>{escape(result['file'])}</title><style>{_STYLE}</style>",
            f"<h1>{escape(result['file'])}</h1>",
            f"<p>{result['rows']} rows: {escape(sources)}</p>",
            f"<h2>Bad rows</h2><ul>{bad}</ul>" if bad else "",
            *sections,
            "</html>\n",
        ]
    )


def _section(example: Mapping[str, Any], uris: Sequence[str]) -> str:
    figures = "".join(
        _figure(index, image, uri, [box for box in example["boxes"] if box["image"] == index])
        for index, (image, uri) in enumerate(zip(example["images"], uris, strict=True))
    )
    facts = {
        "question": example["question"],
        "choices": "\n".join(example["choices"]),
        "ground truth": example["ground_truth"],
        "verifier": example["verifier"],
        "tools": ", ".join(example["tools"]),
        "environment": example["environment"],
    }
    listed = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts.items() if value)
    head = (
        f"{escape(example['id'])} <span class=small>{escape(example['source'])}, row {example['row']}</span>"
    )
    return f"<section><h2>{head}</h2>{figures}<dl>{listed}</dl></section>"


def _figure(index: int, image: Mapping[str, int], uri: str, boxes: Sequence[Mapping[str, Any]]) -> str:
    width, height = image["width"], image["height"]
    stroke = max(width, height) / 250
    drawn = "".join(_box(box, COLOURS[number % len(COLOURS)], stroke) for number, box in enumerate(boxes))
    shown = min(1.0, 512 / max(width, height))
    return (
        f'<figure><svg viewBox="0 0 {width} {height}" width="{round(width * shown)}">'
        f'<image href="{uri}" width="{width}" height="{height}"/>{drawn}</svg>'
        f"<figcaption>image {index}: {width} × {height} px</figcaption></figure>"
    )


def _box(box: Mapping[str, Any], colour: str, stroke: float) -> str:
    x0, y0, x1, y1 = box["bbox_2d"]
    dash = f' stroke-dasharray="{3 * stroke:.1f}"' if box["of"] == "ground truth" else ""
    label = escape(f"{box['label']} ({box['of']})")
    return (
        f'<rect x="{x0:.1f}" y="{y0:.1f}" width="{x1 - x0:.1f}" height="{y1 - y0:.1f}" fill="none" '
        f'stroke="{colour}" stroke-width="{stroke:.1f}"{dash}><title>{label}</title></rect>'
        f'<text x="{x0:.1f}" y="{max(y0 - stroke, 5 * stroke):.1f}" fill="{colour}" '
        f'font-size="{5 * stroke:.1f}">{escape(box["label"])}</text>'
    )
