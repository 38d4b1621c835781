"""A sweep as one figure: curves over its seeds, and differences with their intervals."""

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image

from vtune.report.sweep import effects, is_wider

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

KINDS = ("svg", "pdf", "png")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8f6200")
"""The palette of Okabe and Ito, distinguishable with any colour vision, without its yellow."""
STYLES = ("-", "--", ":", "-.")
ACROSS = 3
"""Panels side by side."""
WIDE, HIGH, ROW, AROUND, LINE = 3.2, 2.2, 0.52, 0.7, 0.18
"""Inches: a panel's width; height with curves; height per difference, and around them; a legend's line."""
SMALL, GLYPH, SAMPLE = 7.0, 0.0085, 0.55
"""Font size of a difference's name in points; inches per character and point; of a legend's sample line."""
BANDS = 8
"""With more variants than this, bands would hide each other."""
SETTINGS: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.solid_capstyle": "butt",  # other caps make intervals look longer
    "svg.fonttype": "none",  # keep text as text
    "svg.hashsalt": "vtune",  # the same numbers give the same file
    "pdf.fonttype": 42,
    "savefig.dpi": 150,
    "text.parse_math": False,  # keep a `$` in names
}


class Curve(NamedTuple):
    """One number of one variant, at every step for which all of its runs have it."""

    steps: Sequence[int]
    mean: Sequence[float]
    low: Sequence[float]
    """The lowest value of any run."""
    high: Sequence[float]
    """The highest value of any run."""


Curves = Mapping[str, Mapping[str, Curve]]
"""Title -> variant -> its curve."""


def draw_sweep(table: Mapping[str, Any], curves: Curves, kind: str) -> bytes:
    """Draw a sweep: at the top, means over seeds with bands from lowest to highest; below, differences.

    Args:
        table: The result of `vtune.runs.sweep.table.sweep_table`.
        curves: The sweep's curves.
        kind: One of `KINDS`.

    Returns:
        The file's content.
    """
    import matplotlib.style as mpl_style
    from matplotlib.figure import Figure

    found = list(effects(table))
    above, below = (math.ceil(len(panels) / ACROSS) for panels in (curves, found))
    heights = [HIGH] * above + [AROUND + ROW * max((len(one["rows"]) for one in found), default=0)] * below
    names = {name for of in curves.values() for name in of}
    entry = SAMPLE + max((len(name) for name in names), default=0) * SETTINGS["font.size"] * GLYPH
    columns = max(1, int(WIDE * ACROSS / entry))
    legend = LINE * math.ceil(len(names) / columns)
    # Ignores the user's own matplotlib settings.
    with mpl_style.context(["default", SETTINGS]):
        size = WIDE * ACROSS, sum(heights) + legend + AROUND
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(above + below, ACROSS, squeeze=False, height_ratios=heights)
        for axes in panels.flat:
            axes.set_axis_off()
        lines = _draw_curves(panels[:above].flat, curves, table["last_steps"])
        _draw_effects(panels[above:].flat, found)
        if lines:
            place = "outside upper center"
            figure.legend(lines.values(), lines.keys(), loc=place, ncols=columns, frameon=False)
        _settle(figure, panels.flat)
        # No time or version, so that the same numbers give the same file.
        unsaid = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}
        out = io.BytesIO()
        figure.savefig(out, format=kind, metadata=unsaid[kind])
    return _palette(out.getvalue()) if kind == "png" else out.getvalue()


def _palette(png: bytes) -> bytes:
    """The same picture with 256 colours, enough for lines and bands: a third of the bytes."""
    out = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        picture.convert("RGB").quantize(256, Image.Quantize.MEDIANCUT).save(out, "PNG", optimize=True)
    return out.getvalue()


def _settle(figure: "Figure", panels: Iterable["Axes"]) -> None:
    """Lay out the panels and round their positions: the solver's last digits differ from call to call."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in panels:
        left, low, width, height = (round(end, 4) for end in axes.get_position().bounds)
        axes.set_position((left, low, width, height))


def _draw_curves(panels: Iterable["Axes"], curves: Curves, smooth: int) -> dict[str, "Line2D"]:
    """Draw one panel per number. Returns variant -> one of its lines, for the legend."""
    names = list(dict.fromkeys(name for of in curves.values() for name in of))
    lines: dict[str, Line2D] = {}
    for axes, (title, of) in zip(panels, curves.items(), strict=False):
        axes.set_axis_on()
        axes.set_title(title)
        axes.set_xlabel(f"step (mean of {smooth})")
        axes.xaxis.get_major_locator().set_params(integer=True)
        for name, curve in of.items():
            at = names.index(name)
            colour, style = COLOURS[at % len(COLOURS)], STYLES[at // len(COLOURS) % len(STYLES)]
            if len(names) <= BANDS:
                axes.fill_between(curve.steps, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
            (lines[name],) = axes.plot(curve.steps, curve.mean, color=colour, linestyle=style, linewidth=1.2)
    return lines


def _draw_effects(panels: Iterable["Axes"], found: Sequence[Mapping[str, Any]]) -> None:
    """Draw one panel per suite and number: a dot with its interval per difference, a tick per seed.

    The wide grey line behind is the interval over questions.
    """
    for axes, one in zip(panels, found, strict=False):
        axes.set_axis_on()
        axes.spines["left"].set_visible(False)
        axes.set_title(one["title"])
        grey = "; grey: over questions" if any(row["by_questions"] for row in one["rows"]) else ""
        axes.set_xlabel(f"{one['unit']}, with 95 % intervals{grey}".removeprefix(", "))
        axes.set_yticks([])
        axes.set_ylim(len(one["rows"]) - 0.5, -0.9)
        # Panels in percentage points share a scale; others have one per suite.
        axes.set_xlim(*_ends([other for other in found if other["unit"]] if one["unit"] else [one]))
        axes.axvline(0, color="0.6", linewidth=0.8)
        for at, row in enumerate(one["rows"]):
            ends = _said(row)
            size = min(SMALL, (WIDE - 0.3) / (GLYPH * max(1, len(row["name"]))))
            said = axes.text(
                *(0, at - 0.18, f"{row['name']}\n{row['value']:+.1f}{ends}"),
                **{"fontsize": size, "va": "bottom", "transform": axes.get_yaxis_transform()},
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            )
            said.set_in_layout(False)  # a long name must not shrink the panel
            axes.plot(row["values"], [at] * len(row["values"]), "|", color="0.4", markersize=6)
            if row["by_questions"]:
                axes.plot(list(row["by_questions"].values()), [at, at], color="0.7", linewidth=4)
            if row["low"] is not None:
                axes.plot([row["low"], row["high"]], [at, at], color=COLOURS[0], linewidth=1.5)
            axes.plot(row["value"], at, "o", color=COLOURS[0], markersize=4)


def _said(row: Mapping[str, Any]) -> str:
    """The interval in words; the one over questions if it is wider than the one over seeds."""
    if row["by_questions"] and is_wider(row):
        return f" [{row['by_questions']['low']:.1f}, {row['by_questions']['high']:.1f}] over questions"
    return "" if row["low"] is None else f" [{row['low']:.1f}, {row['high']:.1f}]"


def _ends(found: Iterable[Mapping[str, Any]]) -> tuple[float, float]:
    """Lowest and highest value over panels that share a scale, including 0, with some margin."""
    rows = [row for one in found for row in one["rows"]]
    values = [
        0.0,
        *(
            value
            for row in rows
            for value in (row["low"], row["high"], *row["values"], *(row["by_questions"] or {}).values())
            if value is not None
        ),
    ]
    room = 0.05 * (max(values) - min(values)) or 1.0
    return min(values) - room, max(values) + room
