"""Boxes on a picture, drawn with characters, so that any terminal shows where they lie."""

from collections.abc import Sequence

COLUMNS = 48
"""Width of a landscape picture in characters."""
ROWS = 16
"""Height of a portrait picture in lines."""
CELL = 2.0
"""Height-to-width ratio of a character."""
MARKS = "0123456789abcdefghijklmnopqrstuvwxyz"
"""Marks of boxes, in order."""


def sketch(width: int, height: int, boxes: Sequence[tuple[str, Sequence[float]]]) -> list[str]:
    """Lines that draw a frame for the picture and one for each box, with its mark in the upper left corner.

    Args:
        width: Width of the picture in pixels.
        height: Height of the picture in pixels.
        boxes: Mark, and xyxy in pixels of the picture.
    """
    columns = min(COLUMNS, max(4, round(ROWS * CELL * width / height)))
    rows = min(ROWS, max(2, round(columns * height / width / CELL)))
    grid = [[" "] * (columns + 2) for _ in range(rows + 2)]
    _frame(grid, 0, 0, columns + 1, rows + 1)
    for mark, (x0, y0, x1, y1) in boxes:
        left, top = _cell(x0, width, columns), _cell(y0, height, rows)
        right, bottom = max(left, _last(x1, width, columns)), max(top, _last(y1, height, rows))
        _frame(grid, left, top, right, bottom)
        grid[top][left] = mark
    return ["".join(line).rstrip() for line in grid]


def _cell(side: float, size: int, cells: int) -> int:
    """The cell, from 1, that a coordinate falls into."""
    return min(max(int(side / size * cells), 0), cells - 1) + 1


def _last(side: float, size: int, cells: int) -> int:
    """The last cell covered by a box that ends at a coordinate."""
    return min(max(-int(-side / size * cells // 1), 1), cells)


def _frame(grid: list[list[str]], left: int, top: int, right: int, bottom: int) -> None:
    for column in range(left, right + 1):
        grid[top][column] = grid[bottom][column] = "─"
    for row in range(top, bottom + 1):
        grid[row][left] = grid[row][right] = "│"
    grid[top][left], grid[top][right] = "┌┐"
    grid[bottom][left], grid[bottom][right] = "└┘"
