"""Small changes to parsed code before it runs: invented paths, slices that would wrap around, lookup tables.

They work on the syntax tree, so error messages keep the model's line numbers and text.
"""

import ast
from typing import Any

import numpy as np

from . import paths
from .provenance import TrackedArray, listing, region_of, track

TAKE = "_take"
"""Name of `take` in rewritten code."""
MAY_BE_ARRAYS = (ast.Name, ast.Attribute, ast.Call, ast.BinOp, ast.Subscript)
"""Expressions that are rewritten if they alone are an index: a picture, or numbers made from one."""


def rewrite(tree: ast.Module, inputs: tuple[str, ...]) -> None:
    """Point paths into the workspace, and let `take` do what brackets do.

    Args:
        tree: The model's code; modified in place.
        inputs: File names of the input images.
    """
    _Rewriter(inputs).visit(tree)


def take(value: Any, index: Any) -> Any:
    """`value[index]`, except for slices beyond a picture's edge, and tables in which a picture is looked up.

    A picture slice from -10 to 50 starts at 0. Only slices that would be empty in numpy change, so
    `array[-10:-1]` keeps its usual meaning. What a table gives for each level of a picture shows what the
    picture shows, though numpy makes a plain array of it.
    """
    if not isinstance(value, np.ndarray):
        return value[index]
    if isinstance(index, np.ndarray):
        return _looked_up(value, index)
    if value.ndim >= 2 and type(index) is tuple and all(isinstance(part, slice) for part in index[:2]):
        index = (*map(_inside, index[:2], value.shape), *index[2:])
    return value[index]


def _looked_up(table: Any, index: Any) -> Any:
    """`table[index]`; it shows what `index` shows, unless the table itself is a picture."""
    found = table[index]
    if index.dtype.kind not in "iu" or region_of(table) is not None:
        return found
    if isinstance(index, TrackedArray) and index.ndim == 1:
        return listing(found, index.pixels)
    return track(found, region_of(index)) if index.ndim >= 2 else found


def _inside(part: slice, length: int) -> slice:
    start, stop = part.start, part.stop
    if not isinstance(start, (int, np.integer)) or not isinstance(stop, (int, np.integer)):
        return part
    wraps = start < 0 < stop <= length + start
    return slice(0, stop, part.step) if wraps and part.step in (None, 1) else part


class _Rewriter(ast.NodeTransformer):
    def __init__(self, inputs: tuple[str, ...]) -> None:
        self.inputs = inputs

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if not isinstance(node.value, str):
            return node
        return ast.copy_location(ast.Constant(paths.into_workspace(node.value, self.inputs)), node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        first = node.values[0] if node.values else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            first.value = paths.prefix_into_workspace(first.value)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part.value)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        index = node.slice
        if not isinstance(node.ctx, ast.Load):
            return node
        if isinstance(index, MAY_BE_ARRAYS):
            return _call(TAKE, [node.value, index], node)
        if not isinstance(index, ast.Tuple) or len(index.elts) < 2:
            return node
        if not all(isinstance(part, ast.Slice) for part in index.elts[:2]):
            return node
        parts = [_as_call(part) if isinstance(part, ast.Slice) else part for part in index.elts]
        return _call(TAKE, [node.value, ast.copy_location(ast.Tuple(parts, ast.Load()), index)], node)


def _as_call(part: ast.Slice) -> ast.expr:
    none = ast.copy_location(ast.Constant(None), part)
    return _call("slice", [part.lower or none, part.upper or none, part.step or none], part)


def _call(name: str, arguments: list[ast.expr], like: ast.expr) -> ast.Call:
    """A call that takes the place of `like`."""
    function = ast.copy_location(ast.Name(name, ast.Load()), like)
    return ast.copy_location(ast.Call(function, arguments, []), like)
